package engine

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// lowRank is the factors of an adapter for one matrix as rows of f32, in bytes: A [rank, 4 * in] and, with the scale in it,
// B [out, 4 * rank]. A row's y = x W^T + (x A^T) (scale B)^T has the same bits in any company.
// (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
type lowRank struct{ a, b *tensor.Tensor }

// bytes are those of both; none of nil.
func (l *lowRank) bytes() int64 {
	if l == nil {
		return 0
	}
	return l.a.Bytes() + l.b.Bytes()
}

// add is y += the product of x f32 [tokens, in]; `inner` f32 [tokens, rank] is room for its first half.
func (l *lowRank) add(p *layer.Pass, x, inner, y *tensor.Tensor) {
	p.Check(tensor.GemmQuant(x, l.a, nil, nil, nil, inner, cuda.ActivationNone, cuda.FormatF32))
	p.Check(tensor.GemmQuant(inner, l.b, nil, nil, y, y, cuda.ActivationNone, cuda.FormatF32))
}

// newLowRank brings an adapter's factors to the device, by the names of their matrices. `order` is that of the rows of a head
// in which queries and keys are read, nil for the order of the folders that adapters are of.
func newLowRank(
	p *layer.Pass, keep *store, adapter *stored.Adapter, config *stored.LlamaConfig, order []int,
) map[string]*lowRank {
	if config.Rope.Layout == stored.RopeInterleaved {
		if config.Rope.Rotated > 0 {
			p.Check(wrongOption("adapter", "a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter"))
		}
		order = stored.InterleavedOrder(config.HeadDim)
	}
	made := make(map[string]*lowRank, len(adapter.Factors))
	for _, shape := range config.Shapes() {
		pair, adapted := adapter.Factors[shape.Name]
		if p.Err() != nil || !adapted {
			continue
		}
		if order != nil && stored.IsRotated(shape.Name) {
			pair.B = reordered(pair.B, order)
		}
		a, err := pair.A.Floats()
		p.Check(err)
		b, err := pair.B.Floats()
		p.Check(err)
		first, second := from(keep, p, cuda.F32, a), from(keep, p, cuda.F32, b)
		p.Check(tensor.Scale(second, second, float32(adapter.Scale)))
		made[shape.Name] = &lowRank{bytesOf(p, first, adapter.Rank), bytesOf(p, second, shape.Sizes[0])}
	}
	return made
}

// bytesOf is the same memory as u8 [rows, bytes of a row].
func bytesOf(p *layer.Pass, of *tensor.Tensor, rows int) *tensor.Tensor {
	made, err := p.View(of, rows, -1).AsBytes()
	if p.Check(err); err != nil {
		return tensor.Failed(err, cuda.U8, rows, 1)
	}
	return made
}

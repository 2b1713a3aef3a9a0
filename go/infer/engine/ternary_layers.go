package engine

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// ffnRows is the rows that the feed-forward network of a BitNet takes at a time: its inner width is several times that of
// the residual stream, and more rows would only need more memory.
const ffnRows = 128

// ternaryLayersOf are the products of a BitNet's layers: activations in 8 bits times weights -1, 0 and 1.
//
// Each row is normed and rounded to 8 bits by its largest magnitude before a product, whose integers are exact. (Ma et al.
// 2025, "BitNet b1.58 2B4T Technical Report", section 2) What adapters add takes the normed rows before they are rounded.
type ternaryLayersOf struct {
	adaptedRows
	config stored.LlamaConfig
	layers []ternaryLayer

	qkvRows, gateUp, inner *tensor.Tensor
	gate                   func(gate, up, y *tensor.Tensor) error
	// Of adapters: room for rows that are normed, and the products of matrices that are not packed as one.
	normedRows              *tensor.Tensor
	headsApart, gateUpApart []*tensor.Tensor
}

// newTernaryLayers makes them; rank is the largest of the adapters that weights may have, 0 without any.
func newTernaryLayers(
	p *layer.Pass, keep *store, config stored.LlamaConfig, layers []ternaryLayer, rows, rank int,
) *ternaryLayersOf {
	queries, keys, few := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim, min(rows, ffnRows)
	t := &ternaryLayersOf{
		config: config, layers: layers,
		qkvRows: keep.empty(p, cuda.F32, rows, queries+2*keys),
		gateUp:  keep.empty(p, cuda.F32, few, 2*config.FFNSize), inner: keep.empty(p, cuda.F32, few, config.FFNSize),
		gate: func(gate, up, y *tensor.Tensor) error { return tensor.SwiGLU(gate, up, nil, y) },
	}
	if config.Activation == stored.ReLU2 {
		t.gate = tensor.ReLU2Gate
	}
	if rank > 0 {
		t.room = keep.empty(p, cuda.F32, rows*rank)
		t.normedRows = keep.empty(p, cuda.F32, max(rows*max(config.HiddenSize, queries), few*config.FFNSize))
		for _, width := range []int{queries, keys, keys} {
			t.headsApart = append(t.headsApart, keep.empty(p, cuda.F32, rows, width))
		}
		for range 2 {
			t.gateUpApart = append(t.gateUpApart, keep.empty(p, cuda.F32, few, config.FFNSize))
		}
	}
	return t
}

func (t *ternaryLayersOf) qkv(p *layer.Pass, number int, x *tensor.Tensor) heads {
	of, tokens := &t.layers[number], x.Dim(0)
	if len(of.qkv) == 1 {
		qkv := p.Narrow(t.qkvRows, 0, 0, tokens)
		t.product(p, x, of.inputNorm, of.qkv[0], nil, qkv, 0)
		return splitHeads(p, &t.config, qkv)
	}
	var parts [3]*tensor.Tensor
	for at, y := range t.apart(p, x, of.inputNorm, of.qkv, t.headsApart, 0) {
		parts[at] = p.View(y, tokens, -1, t.config.HeadDim)
	}
	return heads{parts[0], parts[1], parts[2]}
}

func (t *ternaryLayersOf) attended(p *layer.Pass, number int, heads, x *tensor.Tensor) {
	of := &t.layers[number]
	t.product(p, heads, of.attentionNorm, of.o, x, x, 0)
}

func (t *ternaryLayersOf) feedForward(p *layer.Pass, number int, x *tensor.Tensor) {
	of := &t.layers[number]
	for first := 0; first < x.Dim(0); first += ffnRows {
		rows := min(ffnRows, x.Dim(0)-first)
		some, inner := p.Narrow(x, 0, first, rows), p.Narrow(t.inner, 0, 0, rows)
		gate, up := t.gateAndUp(p, of, some, first)
		p.Check(t.gate(gate, up, inner))
		t.product(p, inner, of.ffnNorm, of.down, some, some, first)
	}
}

func (t *ternaryLayersOf) gateAndUp(p *layer.Pass, of *ternaryLayer, x *tensor.Tensor, first int) (gate, up *tensor.Tensor) {
	if len(of.gateUp) > 1 {
		made := t.apart(p, x, of.postNorm, of.gateUp, t.gateUpApart, first)
		return made[0], made[1]
	}
	both, width := p.Narrow(t.gateUp, 0, 0, x.Dim(0)), t.config.FFNSize
	t.product(p, x, of.postNorm, of.gateUp[0], nil, both, first)
	return p.Narrow(both, 1, 0, width), p.Narrow(both, 1, width, width)
}

// apart gives the products of the normed rows with matrices that are not packed as one, each in its buffer.
func (t *ternaryLayersOf) apart(
	p *layer.Pass, x, gain *tensor.Tensor, weights []ternaryWeight, buffers []*tensor.Tensor, first int,
) []*tensor.Tensor {
	normed := t.normed(p, x, gain)
	made := make([]*tensor.Tensor, len(weights))
	for at, w := range weights {
		made[at] = p.Narrow(buffers[at], 0, 0, x.Dim(0))
		t.product(p, normed, nil, w, nil, made[at], first)
	}
	return made
}

// normed gives the normed rows, until the next are; as a product has them that norms its rows itself.
func (t *ternaryLayersOf) normed(p *layer.Pass, x, gain *tensor.Tensor) *tensor.Tensor {
	y := p.View(p.Narrow(t.normedRows, 0, 0, x.Size()), x.Shape()...)
	p.Check(tensor.RMSNorm(x, gain, y, nil, float32(t.config.NormEps)))
	return y
}

// product makes y the product of the rows, normed where there is a gain and rounded, plus residual where there is one, and what
// the adapters of the rows add, of which x begins with row `first` of the call.
func (t *ternaryLayersOf) product(
	p *layer.Pass, x, gain *tensor.Tensor, w ternaryWeight, residual, y *tensor.Tensor, first int,
) {
	adapted := t.adapted(w.lowRank, first, x.Dim(0))
	if len(adapted) > 0 && gain != nil {
		x, gain = t.normed(p, x, gain), nil
	}
	p.Check(tensor.BitLinearNorm(x, gain, w.data, w.scale, residual, y, float32(t.config.NormEps)))
	t.addTo(p, adapted, w.lowRank, x, y)
}

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
// 2025, "BitNet b1.58 2B4T Technical Report", section 2)
type ternaryLayersOf struct {
	config stored.LlamaConfig
	layers []ternaryLayer

	qkvRows, gateUp, inner *tensor.Tensor
	gate                   func(gate, up, y *tensor.Tensor) error
}

func newTernaryLayers(
	p *layer.Pass, keep *store, config stored.LlamaConfig, layers []ternaryLayer, rows int,
) *ternaryLayersOf {
	queries, few := config.NumHeads*config.HeadDim, min(rows, ffnRows)
	t := &ternaryLayersOf{
		config: config, layers: layers,
		qkvRows: keep.empty(p, cuda.F32, rows, queries+2*config.NumKVHeads*config.HeadDim),
		gateUp:  keep.empty(p, cuda.F32, few, 2*config.FFNSize), inner: keep.empty(p, cuda.F32, few, config.FFNSize),
		gate: func(gate, up, y *tensor.Tensor) error { return tensor.SwiGLU(gate, up, nil, y) },
	}
	if config.Activation == stored.ReLU2 {
		t.gate = tensor.ReLU2Gate
	}
	return t
}

func (t *ternaryLayersOf) qkv(p *layer.Pass, number int, x *tensor.Tensor) heads {
	of := &t.layers[number]
	qkv := p.Narrow(t.qkvRows, 0, 0, x.Dim(0))
	t.product(p, x, of.inputNorm, of.qkv, nil, qkv)
	return splitHeads(p, &t.config, qkv)
}

func (t *ternaryLayersOf) attended(p *layer.Pass, number int, heads, x *tensor.Tensor) {
	of := &t.layers[number]
	t.product(p, heads, of.attentionNorm, of.o, x, x)
}

func (t *ternaryLayersOf) feedForward(p *layer.Pass, number int, x *tensor.Tensor) {
	of, width := &t.layers[number], t.config.FFNSize
	for first := 0; first < x.Dim(0); first += ffnRows {
		rows := min(ffnRows, x.Dim(0)-first)
		some := p.Narrow(x, 0, first, rows)
		both, inner := p.Narrow(t.gateUp, 0, 0, rows), p.Narrow(t.inner, 0, 0, rows)
		t.product(p, some, of.postNorm, of.gateUp, nil, both)
		p.Check(t.gate(p.Narrow(both, 1, 0, width), p.Narrow(both, 1, width, width), inner))
		t.product(p, inner, of.ffnNorm, of.down, some, some)
	}
}

// product makes y the product of the rows, normed where there is a gain and rounded, plus residual where there is one.
func (t *ternaryLayersOf) product(p *layer.Pass, x, gain *tensor.Tensor, w ternaryWeight, residual, y *tensor.Tensor) {
	p.Check(tensor.BitLinearNorm(x, gain, w.data, w.scale, residual, y, float32(t.config.NormEps)))
}

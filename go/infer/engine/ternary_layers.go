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

	codes, scale           *tensor.Tensor // i8 [largest product's rows], f32 [rows]
	qkvRows, gateUp, inner *tensor.Tensor
	gate                   func(gate, up, y *tensor.Tensor) error
}

func newTernaryLayers(
	p *layer.Pass, keep *store, config stored.LlamaConfig, layers []ternaryLayer, rows int,
) *ternaryLayersOf {
	queries, few := config.NumHeads*config.HeadDim, min(rows, ffnRows)
	widest := max(rows*max(config.HiddenSize, queries), few*config.FFNSize)
	t := &ternaryLayersOf{
		config: config, layers: layers,
		codes: keep.empty(p, cuda.I8, widest), scale: keep.empty(p, cuda.F32, rows),
		qkvRows: keep.empty(p, cuda.F32, rows, queries+2*config.NumKVHeads*config.HeadDim),
		gateUp:  keep.empty(p, cuda.F32, few, 2*config.FFNSize), inner: keep.empty(p, cuda.F32, few, config.FFNSize),
		gate: tensor.SwiGLU,
	}
	if config.Activation == stored.ReLU2 {
		t.gate = tensor.ReLU2Gate
	}
	return t
}

func (t *ternaryLayersOf) qkv(p *layer.Pass, number int, x *tensor.Tensor) *tensor.Tensor {
	of := &t.layers[number]
	codes, scale := t.rounded(p, x, of.inputNorm)
	qkv := p.Narrow(t.qkvRows, 0, 0, x.Dim(0))
	p.Check(tensor.BitLinear(codes, scale, of.qkv.data, of.qkv.scale, nil, qkv))
	return qkv
}

func (t *ternaryLayersOf) attended(p *layer.Pass, number int, heads, x *tensor.Tensor) {
	of := &t.layers[number]
	codes, scale := t.rounded(p, heads, of.attentionNorm)
	p.Check(tensor.BitLinear(codes, scale, of.o.data, of.o.scale, x, x))
}

func (t *ternaryLayersOf) feedForward(p *layer.Pass, number int, x *tensor.Tensor) {
	of, width := &t.layers[number], t.config.FFNSize
	for first := 0; first < x.Dim(0); first += ffnRows {
		rows := min(ffnRows, x.Dim(0)-first)
		some := p.Narrow(x, 0, first, rows)
		codes, scale := t.rounded(p, some, of.postNorm)
		both, inner := p.Narrow(t.gateUp, 0, 0, rows), p.Narrow(t.inner, 0, 0, rows)
		p.Check(tensor.BitLinear(codes, scale, of.gateUp.data, of.gateUp.scale, nil, both))
		p.Check(t.gate(p.Narrow(both, 1, 0, width), p.Narrow(both, 1, width, width), inner))
		codes, scale = t.rounded(p, inner, of.ffnNorm)
		p.Check(tensor.BitLinear(codes, scale, of.down.data, of.down.scale, some, some))
	}
}

// rounded gives codes i8 [tokens, width] and scales f32 [tokens] of the rows, normed where there is a gain.
func (t *ternaryLayersOf) rounded(p *layer.Pass, x, gain *tensor.Tensor) (codes, scale *tensor.Tensor) {
	codes = p.View(p.Narrow(t.codes, 0, 0, x.Size()), x.Dim(0), x.Dim(1))
	scale = p.Narrow(t.scale, 0, 0, x.Dim(0))
	if gain == nil {
		p.Check(tensor.ActQuantI8(x, codes, scale))
	} else {
		p.Check(tensor.RMSNormQuantI8(x, gain, codes, scale, float32(t.config.NormEps)))
	}
	return codes, scale
}

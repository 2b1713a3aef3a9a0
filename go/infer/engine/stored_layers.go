package engine

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// storedLayers are the products of a Llama's layers, dense or with experts: weights multiplied as their file has them.
// Results lie in buffers made for the most rows of a call, so that no call allocates.
type storedLayers struct {
	config stored.LlamaConfig
	layers []storedLayer

	normedRows, qkvRows, inner *tensor.Tensor
	// Of a model with experts.
	router, probs, weights    *tensor.Tensor // f32 [rows, experts], [rows, experts], [rows, k]
	indices, slotRow, rowSlot *tensor.Tensor // i32 [rows, k], [rows, k], [slots]
	counts, offsets           *tensor.Tensor // i32 [experts], [experts + 1]
}

func newStoredLayers(p *layer.Pass, keep *store, config stored.LlamaConfig, layers []storedLayer, rows int) *storedLayers {
	width := (config.NumHeads + 2*config.NumKVHeads) * config.HeadDim
	experts, k := config.NumExperts, config.ExpertsPerToken
	s := &storedLayers{
		config: config, layers: layers,
		qkvRows: keep.empty(p, cuda.F32, rows, width),
	}
	if experts > 0 {
		s.normedRows = keep.empty(p, cuda.F32, rows, config.HiddenSize)
		s.router = keep.empty(p, cuda.F32, rows, experts)
		s.probs = keep.empty(p, cuda.F32, rows, experts)
		s.weights = keep.empty(p, cuda.F32, rows, k)
		s.indices = keep.empty(p, cuda.I32, rows, k)
		s.slotRow = keep.empty(p, cuda.I32, rows, k)
		s.rowSlot = keep.empty(p, cuda.I32, rows*k)
		s.counts = keep.empty(p, cuda.I32, experts)
		s.offsets = keep.empty(p, cuda.I32, experts+1)
	} else {
		s.inner = keep.empty(p, cuda.F32, rows, config.FFNSize)
	}
	return s
}

func (s *storedLayers) qkv(p *layer.Pass, number int, x *tensor.Tensor) *tensor.Tensor {
	of := &s.layers[number]
	qkv := p.Narrow(s.qkvRows, 0, 0, x.Dim(0))
	p.Check(tensor.GemmQuantQKV(x, of.q.data, of.k.data, of.v.data, of.qkvBias, of.inputNorm, qkv, float32(s.config.NormEps),
		of.q.format, of.k.format, of.v.format))
	return qkv
}

func (s *storedLayers) attended(p *layer.Pass, number int, heads, x *tensor.Tensor) {
	of := &s.layers[number]
	addProduct(p, heads, of.o, of.oBias, x)
}

func (s *storedLayers) feedForward(p *layer.Pass, number int, x *tensor.Tensor) {
	of := &s.layers[number]
	if of.mixture != nil {
		s.mix(p, of.mixture, of.postNorm, x)
		return
	}
	gate, up, inner := of.gated.gate, of.gated.up, p.Narrow(s.inner, 0, 0, x.Dim(0))
	p.Check(tensor.GemmQuantSwiGLU(x, gate.data, up.data, nil, of.postNorm, inner, float32(s.config.NormEps), gate.format,
		up.format))
	addProduct(p, inner, of.gated.down, nil, x)
}

// mix adds the sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows.
func (s *storedLayers) mix(p *layer.Pass, of *mixture, gain, x *tensor.Tensor) {
	tokens, slots := x.Dim(0), x.Dim(0)*s.config.ExpertsPerToken
	normed, router := p.Narrow(s.normedRows, 0, 0, tokens), p.Narrow(s.router, 0, 0, tokens)
	probs, weights := p.Narrow(s.probs, 0, 0, tokens), p.Narrow(s.weights, 0, 0, tokens)
	indices, slotRow, rowSlot := p.Narrow(s.indices, 0, 0, tokens), p.Narrow(s.slotRow, 0, 0, tokens), p.Narrow(s.rowSlot, 0, 0, slots)
	p.Check(tensor.GemmQuantRoute(x, gain, of.router.data, normed, router, weights, indices, probs, s.counts, s.offsets, slotRow,
		rowSlot, float32(s.config.NormEps), s.config.NormTopKProb, of.router.format))
	p.Check(tensor.GemmQuantExperts(normed, of.w1.data, of.w3.data, of.w2.data, weights, s.offsets, slotRow, rowSlot, x, x,
		of.w1.format, of.w3.format, of.w2.format))
}

// addProduct is x += rows * W^T + bias.
func addProduct(p *layer.Pass, rows *tensor.Tensor, of weight, bias, x *tensor.Tensor) {
	p.Check(tensor.GemmQuant(rows, of.data, nil, bias, x, x, cuda.ActivationNone, of.format))
}

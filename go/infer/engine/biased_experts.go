package engine

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// biasedRows are for a mixture whose router and experts have biases and clipped gates, as gpt-oss has it. Its steps are calls
// of their own: the fused ones have neither biases nor bounds.
type biasedRows struct {
	rows            *tensor.Tensor // f32 [slots, hidden]
	gate, up, inner *tensor.Tensor // f32 [slots, ffn]
}

// What bounds the gates of such experts. (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
const (
	clippedAlpha = 1.702
	clippedLimit = 7
)

func newBiasedRows(p *layer.Pass, keep *store, config stored.LlamaConfig, slots int) *biasedRows {
	inner := func() *tensor.Tensor { return keep.empty(p, cuda.F32, slots, config.FFNSize) }
	return &biasedRows{keep.empty(p, cuda.F32, slots, config.HiddenSize), inner(), inner(), inner()}
}

// mixBiased adds the sum over each token's experts of weight * (W2 (g sigmoid(1.702 g) (u + 1)) + b2), where g and u are
// W1 h + b1 and W3 h + b3, bounded by 7, and h are the normed rows. A token's weights are the softmax of the router's largest
// logits. (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
func (s *storedLayers) mixBiased(p *layer.Pass, of *mixture, gain, x *tensor.Tensor) {
	tokens, slots := x.Dim(0), x.Dim(0)*s.config.ExpertsPerToken
	normed, router := p.Narrow(s.normedRows, 0, 0, tokens), p.Narrow(s.router, 0, 0, tokens)
	probs, weights := p.Narrow(s.probs, 0, 0, tokens), p.Narrow(s.weights, 0, 0, tokens)
	indices, slotRow, rowSlot := p.Narrow(s.indices, 0, 0, tokens), p.Narrow(s.slotRow, 0, 0, tokens), p.Narrow(s.rowSlot, 0, 0, slots)
	rows, inner := p.Narrow(s.biased.rows, 0, 0, slots), p.Narrow(s.biased.inner, 0, 0, slots)
	gate, up := p.Narrow(s.biased.gate, 0, 0, slots), p.Narrow(s.biased.up, 0, 0, slots)
	product := func(x *tensor.Tensor, w weight, bias, y *tensor.Tensor) {
		p.Check(tensor.GemmQuant(x, w.data, s.offsets, nil, nil, y, cuda.ActivationNone, w.format))
		p.Check(tensor.GroupedBias(y, bias, s.offsets, y))
	}
	p.Check(tensor.RMSNorm(x, gain, normed, nil, float32(s.config.NormEps)))
	p.Check(tensor.GemmQuant(normed, of.router.data, nil, of.biases.router, nil, router, cuda.ActivationNone, of.router.format))
	// The softmax of all logits, divided by the sum of the largest: that of these alone.
	p.Check(tensor.MoERoute(router, normed, weights, indices, probs, s.counts, s.offsets, slotRow, rowSlot, rows, nil,
		s.config.NormTopKProb, 0, 0))
	product(rows, of.w1, of.biases.w1, gate)
	product(rows, of.w3, of.biases.w3, up)
	p.Check(tensor.SwiGLUClipped(gate, up, inner, clippedAlpha, clippedLimit))
	product(inner, of.w2, of.biases.w2, rows)
	p.Check(tensor.MoECombine(rows, weights, slotRow, x, x))
}

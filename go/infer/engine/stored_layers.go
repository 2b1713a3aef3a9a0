package engine

import (
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// storedLayers are the products of a Llama's layers, dense or with experts: weights multiplied as their file has them.
// Results lie in buffers made for the most rows of a call, so that no call allocates.
type storedLayers struct {
	adaptedRows
	config stored.LlamaConfig
	layers []storedLayer

	normedRows, qkvRows, inner *tensor.Tensor
	// Of a model with experts.
	router, probs, weights    *tensor.Tensor // f32 [rows, experts], [rows, experts], [rows, k]
	indices, slotRow, rowSlot *tensor.Tensor // i32 [rows, k], [rows, k], [slots]
	counts, offsets           *tensor.Tensor // i32 [experts], [experts + 1]
	biased                    *biasedRows    // of a model whose experts have biases, or nil
	// Of a model with norms of queries and keys, or an adapter: the products, f32 [rows, heads or kv_heads * head_dim], and two of
	// them normed.
	queries, keys, values, normedQueries, normedKeys *tensor.Tensor
	shared                                           *sharedRows
	gate, up                                         *tensor.Tensor // f32 [rows, ffn], of a gate that is not SiLU's, or an adapter
	added                                            *tensor.Tensor // f32 [rows, hidden], of a model with norms behind parts
}

// sharedRows are for the expert that every token goes to. A sigmoid is the softmax of a number beside 0: the expert's weight,
// and a slot that is dropped.
type sharedRows struct {
	inner           *tensor.Tensor // f32 [rows, shared ffn]
	out             *tensor.Tensor // f32 [2 * rows, hidden]
	logits, weights *tensor.Tensor // f32 [rows, 2]
	slotRow         *tensor.Tensor // i32 [rows, 2]
}

// newStoredLayers makes them; rank is the largest of the adapters that weights may have, 0 without any.
func newStoredLayers(
	p *layer.Pass, keep *store, config stored.LlamaConfig, layers []storedLayer, rows, rank int,
) *storedLayers {
	width := (config.NumHeads + 2*config.NumKVHeads) * config.HeadDim
	experts, k := config.NumExperts, config.ExpertsPerToken
	s := &storedLayers{
		config: config, layers: layers,
		qkvRows: keep.empty(p, cuda.F32, rows, width),
	}
	if rank > 0 {
		s.room = keep.empty(p, cuda.F32, rows*rank)
	}
	if config.QKNorm != stored.NoNorm || rank > 0 {
		queries, keys := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim
		s.queries, s.normedQueries = keep.empty(p, cuda.F32, rows, queries), keep.empty(p, cuda.F32, rows, queries)
		s.keys, s.normedKeys = keep.empty(p, cuda.F32, rows, keys), keep.empty(p, cuda.F32, rows, keys)
		s.values = keep.empty(p, cuda.F32, rows, keys)
	}
	if config.Activation != stored.SiLU || rank > 0 && experts == 0 {
		s.gate, s.up = keep.empty(p, cuda.F32, rows, config.FFNSize), keep.empty(p, cuda.F32, rows, config.FFNSize)
	}
	if config.PostNorms {
		s.added = keep.empty(p, cuda.F32, rows, config.HiddenSize)
	}
	if experts > 0 || config.QKNorm != stored.NoNorm || config.Activation != stored.SiLU || rank > 0 {
		s.normedRows = keep.empty(p, cuda.F32, rows, config.HiddenSize)
	}
	if config.SharedFFNSize > 0 {
		s.shared = newSharedRows(p, keep, config, rows)
	}
	if experts > 0 {
		s.router = keep.empty(p, cuda.F32, rows, experts)
		s.probs = keep.empty(p, cuda.F32, rows, experts)
		s.weights = keep.empty(p, cuda.F32, rows, k)
		s.indices = keep.empty(p, cuda.I32, rows, k)
		s.slotRow = keep.empty(p, cuda.I32, rows, k)
		s.rowSlot = keep.empty(p, cuda.I32, rows*k)
		s.counts = keep.empty(p, cuda.I32, experts)
		s.offsets = keep.empty(p, cuda.I32, experts+1)
		if config.BiasedExperts {
			s.biased = newBiasedRows(p, keep, config, rows*k)
		}
	} else {
		s.inner = keep.empty(p, cuda.F32, rows, config.FFNSize)
	}
	return s
}

func newSharedRows(p *layer.Pass, keep *store, config stored.LlamaConfig, rows int) *sharedRows {
	made := &sharedRows{inner: keep.empty(p, cuda.F32, rows, config.SharedFFNSize)}
	if !config.SharedGate {
		return made
	}
	made.out = keep.empty(p, cuda.F32, 2*rows, config.HiddenSize)
	made.logits, made.weights = keep.empty(p, cuda.F32, rows, 2), keep.empty(p, cuda.F32, rows, 2)
	slotRow := make([]int32, 0, 2*rows)
	for row := range rows {
		slotRow = append(slotRow, int32(row), -1)
	}
	made.slotRow = keep.empty(p, cuda.I32, rows, 2)
	p.Check(tensor.Write(made.slotRow, slotRow))
	return made
}

func (s *storedLayers) qkv(p *layer.Pass, number int, x *tensor.Tensor) heads {
	of := &s.layers[number]
	if of.qNorm != nil {
		return s.normedHeads(p, of, x)
	}
	if s.anyAdapted(x.Dim(0), of.q, of.k, of.v) {
		return s.headsApart(p, of, x)
	}
	qkv := p.Narrow(s.qkvRows, 0, 0, x.Dim(0))
	p.Check(tensor.GemmQuantQKV(x, of.q.data, of.k.data, of.v.data, of.qkvBias, of.inputNorm, qkv, float32(s.config.NormEps),
		of.q.format, of.k.format, of.v.format))
	return splitHeads(p, &s.config, qkv)
}

// headsApart gives queries, keys and values by a call for each.
func (s *storedLayers) headsApart(p *layer.Pass, of *storedLayer, x *tensor.Tensor) heads {
	tokens, first := x.Dim(0), 0
	normed := p.Narrow(s.normedRows, 0, 0, tokens)
	p.Check(tensor.RMSNorm(x, of.inputNorm, normed, nil, float32(s.config.NormEps)))
	rows := func(buffer *tensor.Tensor) *tensor.Tensor { return p.Narrow(buffer, 0, 0, tokens) }
	for _, product := range []struct {
		of weight
		y  *tensor.Tensor
	}{{of.q, rows(s.queries)}, {of.k, rows(s.keys)}, {of.v, rows(s.values)}} {
		var bias *tensor.Tensor
		if of.qkvBias != nil {
			bias = p.Narrow(of.qkvBias, 0, first, product.y.Dim(1))
		}
		s.multiply(p, normed, product.of, bias, nil, product.y)
		first += product.y.Dim(1)
	}
	head := func(buffer *tensor.Tensor) *tensor.Tensor { return p.View(rows(buffer), tokens, -1, s.config.HeadDim) }
	return heads{head(s.queries), head(s.keys), head(s.values)}
}

// normedHeads gives queries and keys with norms of their own: of each head by itself, or of all together, as many elements as
// there are gains.
func (s *storedLayers) normedHeads(p *layer.Pass, of *storedLayer, x *tensor.Tensor) heads {
	tokens, eps := x.Dim(0), float32(s.config.NormEps)
	rows := func(buffer *tensor.Tensor) *tensor.Tensor { return p.Narrow(buffer, 0, 0, tokens) }
	found := s.headsApart(p, of, x)
	for _, norm := range []struct{ x, gain, y *tensor.Tensor }{
		{rows(s.queries), of.qNorm, rows(s.normedQueries)}, {rows(s.keys), of.kNorm, rows(s.normedKeys)},
	} {
		gains := norm.gain.Dim(0)
		p.Check(tensor.RMSNorm(p.View(norm.x, -1, gains), norm.gain, p.View(norm.y, -1, gains), nil, eps))
	}
	head := func(buffer *tensor.Tensor) *tensor.Tensor { return p.View(rows(buffer), tokens, -1, s.config.HeadDim) }
	return heads{head(s.normedQueries), head(s.normedKeys), found.v}
}

func (s *storedLayers) attended(p *layer.Pass, number int, heads, x *tensor.Tensor) {
	of := &s.layers[number]
	scale(p, heads, s.config.ResidualScale)
	s.addNormed(p, heads, of.o, of.oBias, of.attentionNorm, x)
}

func (s *storedLayers) feedForward(p *layer.Pass, number int, x *tensor.Tensor) {
	of := &s.layers[number]
	switch {
	case of.mixture != nil && of.mixture.biases != nil:
		s.mixBiased(p, of.mixture, of.postNorm, x)
		return
	case of.mixture != nil:
		s.mix(p, of.mixture, of.postNorm, x)
		return
	}
	gate, up, inner := of.gated.gate, of.gated.up, p.Narrow(s.inner, 0, 0, x.Dim(0))
	if s.config.Activation == stored.SiLU && !s.anyAdapted(x.Dim(0), gate, up) {
		p.Check(tensor.GemmQuantSwiGLU(x, gate.data, up.data, nil, of.postNorm, inner, float32(s.config.NormEps), gate.format,
			up.format))
	} else {
		s.gatedApart(p, of, x, inner)
	}
	scale(p, inner, s.config.ResidualScale)
	s.addNormed(p, inner, of.gated.down, nil, of.ffnNorm, x)
}

// gatedApart is the inner part of a feed-forward network by a call for each product.
func (s *storedLayers) gatedApart(p *layer.Pass, of *storedLayer, x, inner *tensor.Tensor) {
	rows := func(buffer *tensor.Tensor) *tensor.Tensor { return p.Narrow(buffer, 0, 0, x.Dim(0)) }
	normed, gate, up := rows(s.normedRows), rows(s.gate), rows(s.up)
	p.Check(tensor.RMSNorm(x, of.postNorm, normed, nil, float32(s.config.NormEps)))
	s.multiply(p, normed, of.gated.gate, nil, nil, gate)
	s.multiply(p, normed, of.gated.up, nil, nil, up)
	if s.config.Activation == stored.SiLU {
		p.Check(tensor.SwiGLU(gate, up, nil, inner))
	} else {
		p.Check(tensor.Geglu(gate, up, inner))
	}
}

// addNormed is x += rows * W^T + bias, or a norm of that.
func (s *storedLayers) addNormed(p *layer.Pass, rows *tensor.Tensor, of weight, bias, norm, x *tensor.Tensor) {
	if norm == nil {
		s.multiply(p, rows, of, bias, x, x)
		return
	}
	added := p.Narrow(s.added, 0, 0, x.Dim(0))
	s.multiply(p, rows, of, bias, nil, added)
	p.Check(tensor.RMSNorm(added, norm, added, nil, float32(s.config.NormEps)))
	p.Check(tensor.Add(x, added, x))
}

// mix adds the sum over each token's experts of weight * W2 (silu(W1 h) * (W3 h)), h the normed rows.
func (s *storedLayers) mix(p *layer.Pass, of *mixture, gain, x *tensor.Tensor) {
	tokens, slots := x.Dim(0), x.Dim(0)*s.config.ExpertsPerToken
	normed, router := p.Narrow(s.normedRows, 0, 0, tokens), p.Narrow(s.router, 0, 0, tokens)
	probs, weights := p.Narrow(s.probs, 0, 0, tokens), p.Narrow(s.weights, 0, 0, tokens)
	indices, slotRow, rowSlot := p.Narrow(s.indices, 0, 0, tokens), p.Narrow(s.slotRow, 0, 0, tokens), p.Narrow(s.rowSlot, 0, 0, slots)
	p.Check(tensor.GemmQuantRoute(x, gain, of.router.data, normed, router, weights, indices, probs, s.counts, s.offsets, slotRow,
		rowSlot, float32(s.config.NormEps), s.config.NormTopKProb, of.router.format))
	scale(p, weights, s.config.ResidualScale)
	p.Check(tensor.GemmQuantExperts(normed, of.w1.data, of.w3.data, of.w2.data, weights, s.offsets, slotRow, rowSlot, x, x,
		of.w1.format, of.w3.format, of.w2.format))
	if of.shared != nil {
		s.addShared(p, of, normed, x)
	}
}

// addShared adds the expert that every token goes to, weighed by a sigmoid of the token where the model has it so.
func (s *storedLayers) addShared(p *layer.Pass, of *mixture, normed, x *tensor.Tensor) {
	tokens, to := x.Dim(0), s.shared
	gate, up, down, inner := of.shared.gate, of.shared.up, of.shared.down, p.Narrow(to.inner, 0, 0, tokens)
	p.Check(tensor.GemmQuantSwiGLU(normed, gate.data, up.data, nil, nil, inner, 0, gate.format, up.format))
	scale(p, inner, s.config.ResidualScale)
	if of.sharedGate == nil {
		s.multiply(p, inner, down, nil, x, x)
		return
	}
	out, sigmoid := p.Narrow(to.out, 0, 0, 2*tokens), of.sharedGate
	p.Check(tensor.GemmQuant(inner, down.data, nil, nil, nil, p.Narrow(out, 0, 0, tokens), cuda.ActivationNone, down.format))
	logits, weights := p.Narrow(to.logits, 0, 0, tokens), p.Narrow(to.weights, 0, 0, tokens)
	p.Check(tensor.GemmQuant(normed, sigmoid.data, nil, nil, nil, logits, cuda.ActivationNone, sigmoid.format))
	p.Check(tensor.Softmax(logits, weights))
	p.Check(tensor.MoECombine(out, weights, p.Narrow(to.slotRow, 0, 0, tokens), x, x))
}

// multiply is y = rows * W^T + bias + residual, and what the adapters of the rows add.
func (s *storedLayers) multiply(p *layer.Pass, rows *tensor.Tensor, of weight, bias, residual, y *tensor.Tensor) {
	p.Check(tensor.GemmQuant(rows, of.data, nil, bias, residual, y, cuda.ActivationNone, of.format))
	s.addTo(p, s.adapted(of.lowRank, 0, rows.Dim(0)), of.lowRank, rows, y)
}

// anyAdapted says whether something is added to products of so many rows with these weights. Without, a call may fuse them:
// the bits are the same.
func (s *storedLayers) anyAdapted(rows int, weights ...weight) bool {
	return slices.ContainsFunc(weights, func(of weight) bool { return len(s.adapted(of.lowRank, 0, rows)) > 0 })
}

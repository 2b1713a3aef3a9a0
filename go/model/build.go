package model

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// build makes arenas and layers.
func (m *MoETransformer) build(training bool) error {
	weights := m.Precision.DType()
	parameters := weights
	if training {
		parameters = cuda.F32
	}
	if m.partition && (!training || m.Experts != nil || m.Comm == nil || m.Comm.Ranks() == 1) {
		return errors.New("gradients are partitioned among the ranks of a communicator, which train all experts each")
	}
	if m.partition && m.Config.TieEmbeddings {
		return errors.New("gradients of a tied head, which are complete with the last layer's, are not partitioned")
	}
	if err := m.hold(parameters != weights || m.partition); err != nil {
		return err
	}
	var computes, updated []Span // nil is all
	if m.Held != nil {
		updated = m.Held.Updated
	}
	if m.Experts != nil {
		computes = m.Held.Computes()
	}
	spans, why := computes, m.partial()
	if parameters != weights {
		spans = updated
	}
	var err error
	if m.Parameters, err = m.newArena(parameters, spans, why); err != nil {
		return err
	}
	if training {
		if err = m.makeGradients(computes, why); err != nil {
			return err
		}
	}
	m.Weights = m.Parameters
	if parameters != weights {
		if m.Weights, err = m.newArena(weights, computes, why); err != nil {
			return err
		}
	}
	views := &viewer{model: m}
	m.rope = m.Config.ropeTables(1)
	m.allRows = &layer.AllRows{}
	m.embedding = &layer.Embedding{}
	m.embedding.Weight, m.embedding.Grad = views.pair("model.embed_tokens.weight")
	for at := range m.Config.NumLayers {
		m.blocks = append(m.blocks, views.block(at))
	}
	m.norm = views.norm("model.norm.weight")
	m.head = &layer.Linear{Weight: m.embedding.Weight, Grad: m.embedding.Grad}
	if !m.Config.TieEmbeddings {
		m.head = views.linear("lm_head.weight")
	}
	return views.err
}

// hold finds out what this rank has, where there are others that have a part of the experts, or, with parameters apart
// from the weights, of these.
func (m *MoETransformer) hold(apart bool) (err error) {
	var comm *cuda.Comm
	group := m.ExpertParallel()
	switch {
	case m.Experts != nil:
		comm = m.Experts.Comm
	case apart:
		comm = m.Comm
	}
	if comm != nil && comm.Ranks() > 1 {
		m.Held, err = NewHeld(m.Layout, comm.Rank(), comm.Ranks(), group)
	}
	return err
}

// makeGradients makes them, of all that this rank computes with; nil: of everything.
func (m *MoETransformer) makeGradients(computes []Span, why error) (err error) {
	if m.partition {
		computes = m.Held.Gradients()
		why = errors.New("this rank keeps the gradients of the parameters that it updates alone")
		if m.Partitioned, err = newPartitionedGradients(m.ctx, m.Layout); err != nil {
			return err
		}
	}
	m.Gradients, err = m.newArena(cuda.F32, computes, why)
	return err
}

// partial is the error of what cannot be done with what this rank has alone.
func (m *MoETransformer) partial() error {
	if m.Experts != nil {
		return m.Experts.Alone()
	}
	return errors.New("this rank has a part of the f32 parameters alone; GatherParameters of its trainer brings all")
}

// newArena makes an arena of which only spans are memory, with the error `why` of a view of the rest; nil: all of it is.
func (m *MoETransformer) newArena(dtype cuda.DType, spans []Span, why error) (*Arena, error) {
	if spans == nil {
		return NewArena(m.ctx, m.Layout, dtype)
	}
	return newPartialArena(m.ctx, m.Layout, dtype, spans, why)
}

// viewer makes layers over weights and gradients; it holds the first error.
type viewer struct {
	model *MoETransformer
	err   error
}

// pair gives views of a weight and of its gradient, which is nil where there are none; with a shape, of the
// neighbouring parameters that make it up.
func (v *viewer) pair(name string, shape ...int) (weight, grad *tensor.Tensor) {
	weight = v.view(v.model.Weights, name, shape)
	if weight != nil && v.model.Partitioned != nil {
		spec, _ := v.model.Layout.Find(name)
		if grad, v.err = v.model.Partitioned.view(spec.Offset, weight.Shape()); grad != nil || v.err != nil {
			return weight, grad
		}
	}
	return weight, v.view(v.model.Gradients, name, shape)
}

func (v *viewer) view(arena *Arena, name string, shape []int) *tensor.Tensor {
	if arena == nil || v.err != nil {
		return nil
	}
	var view *tensor.Tensor
	if len(shape) == 0 {
		view, v.err = arena.Parameter(name)
	} else {
		view, v.err = arena.fused(name, shape...)
	}
	return view
}

func (v *viewer) linear(name string, shape ...int) *layer.Linear {
	weight, grad := v.pair(name, shape...)
	return &layer.Linear{Weight: weight, Grad: grad}
}

func (v *viewer) norm(name string) *layer.RMSNorm {
	weight, grad := v.pair(name)
	return &layer.RMSNorm{Weight: weight, Grad: grad, Eps: v.model.Config.NormEps}
}

func (v *viewer) block(at int) *layer.TransformerBlock {
	config, prefix := v.model.Config, fmt.Sprintf("model.layers.%d", at)
	hidden := config.HiddenSize
	qkvRows := (config.NumHeads + 2*config.NumKVHeads) * config.HeadDim
	if config.Ternary {
		return v.ternaryBlock(prefix)
	}
	feedForward := v.dense
	if config.NumExperts > 0 {
		feedForward = v.mixture
	}
	var normed *layer.HeadNorms
	if config.QKNorm {
		normed = v.headNorms(prefix + ".self_attn")
	}
	qkv := v.linear(prefix+".self_attn.q_proj.weight", qkvRows, hidden)
	if config.QKVBias {
		qkv.Bias, qkv.BiasGrad = v.pair(prefix+".self_attn.q_proj.bias", qkvRows)
	}
	return &layer.TransformerBlock{
		Name:      prefix,
		InputNorm: v.norm(prefix + ".input_layernorm.weight"),
		Attention: &layer.MQAttention{
			QKV:    qkv,
			Normed: normed,
			Output: v.linear(prefix + ".self_attn.o_proj.weight"),
			Rope:   v.model.rope,
			Heads:  config.NumHeads, KVHeads: config.NumKVHeads,
		},
		PostNorm: v.norm(prefix + ".post_attention_layernorm.weight"),
		MoE:      feedForward(prefix, at),
	}
}

func (v *viewer) ternaryBlock(prefix string) *layer.TransformerBlock {
	config := v.model.Config
	hidden, ffn := config.HiddenSize, config.FFNSize
	queries, keys := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim
	product := func(name string, columns int, norm *layer.RMSNorm, heights ...int) *layer.TernaryLinear {
		rows := 0
		for _, height := range heights {
			rows += height
		}
		weight, grad := v.pair(prefix+"."+name+"_proj.weight", rows, columns)
		return &layer.TernaryLinear{Weight: weight, Grad: grad, Heights: heights, Norm: norm}
	}
	return &layer.TransformerBlock{
		Name:      prefix,
		InputNorm: v.norm(prefix + ".input_layernorm.weight"),
		Attention: &layer.MQAttention{
			QKV:    product("self_attn.q", hidden, nil, queries, keys, keys),
			Output: product("self_attn.o", queries, v.norm(prefix+".self_attn.attn_sub_norm.weight"), hidden),
			Rope:   v.model.rope,
			Heads:  config.NumHeads, KVHeads: config.NumKVHeads,
		},
		PostNorm: v.norm(prefix + ".post_attention_layernorm.weight"),
		MoE: &layer.MoELayer{Network: &layer.TernaryNetwork{
			GateUp:      product("mlp.gate", hidden, nil, ffn, ffn),
			Down:        product("mlp.down", ffn, v.norm(prefix+".mlp.ffn_sub_norm.weight"), hidden),
			SquaredReLU: config.SquaredReLU,
		}},
	}
}

func (v *viewer) headNorms(prefix string) *layer.HeadNorms {
	made := &layer.HeadNorms{HeadDim: v.model.Config.HeadDim}
	for at, name := range []string{"q", "k", "v"} {
		made.Products[at] = v.linear(prefix + "." + name + "_proj.weight")
	}
	for at, name := range []string{"q", "k"} {
		made.Norms[at] = v.norm(prefix + "." + name + "_norm.weight")
	}
	return made
}

func (v *viewer) dense(prefix string, _ int) *layer.MoELayer {
	hidden, ffn := v.model.Config.HiddenSize, v.model.Config.FFNSize
	w13, w13Grad := v.pair(prefix+".mlp.gate_proj.weight", 1, 2*ffn, hidden)
	w2, w2Grad := v.pair(prefix+".mlp.down_proj.weight", 1, hidden, ffn)
	return &layer.MoELayer{
		AllRows: v.model.allRows, W13: w13, W2: w2, W13Grad: w13Grad, W2Grad: w2Grad, FP8: v.model.Precision == FP8,
	}
}

func (v *viewer) mixture(prefix string, at int) *layer.MoELayer {
	config, moe := v.model.Config, prefix+".block_sparse_moe"
	hidden, ffn, experts := config.HiddenSize, config.FFNSize, config.NumExperts
	first, parallel := 0, v.model.Experts
	if parallel != nil {
		first, experts = parallel.Position*parallel.Own, parallel.Own
	}
	expert := fmt.Sprintf("%s.experts.%d", moe, first)
	w13, w13Grad := v.pair(expert+".w1.weight", experts, 2*ffn, hidden)
	w2, w2Grad := v.pair(expert+".w2.weight", experts, hidden, ffn)
	return &layer.MoELayer{
		Router: &layer.Router{
			Gate: v.linear(moe + ".gate.weight"), K: config.ExpertsPerToken,
			Norm: config.NormTopKProb, Alpha: config.AuxAlpha,
		},
		W13: w13, W2: w2, W13Grad: w13Grad, W2Grad: w2Grad,
		Parallel: parallel, Index: at,
		FP8: v.model.Precision == FP8,
	}
}

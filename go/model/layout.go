package model

import (
	"fmt"
	"slices"
)

// Spec is one parameter tensor and its place in the arena, in elements.
type Spec struct {
	Name   string
	Shape  []int
	Offset int
}

// Size is the number of elements.
func (s Spec) Size() int {
	size := 1
	for _, extent := range s.Shape {
		size *= extent
	}
	return size
}

// Layout says where each parameter of a configuration lies in an arena. The order is part of the promise that every
// language trains the same bits: sums over the whole arena (the gradient norm) run in it, and the initial values of
// tensor number i come from random stream i. Matrices come first, since weight decay takes a prefix of the arena, then
// vectors, the gains of the norms and biases:
//
//	model.embed_tokens.weight                            [vocab, hidden]
//	for each layer L:
//	  model.layers.L.self_attn.{q,k,v,o}_proj.weight     q, k, v side by side: one product serves all three
//	  model.layers.L.block_sparse_moe.gate.weight        [experts, hidden]
//	  for each expert E: ...experts.E.w1.weight, w3      gate and up, so that all experts are [experts, 2*ffn, hidden]
//	  for each expert E: ...experts.E.w2.weight          so that all are [experts, hidden, ffn]
//	lm_head.weight                                       [vocab, hidden]
//	for each layer L: model.layers.L.{input,post_attention}_layernorm.weight
//	model.norm.weight
//
// With TieEmbeddings there is no lm_head.weight. With QKVBias, model.layers.L.self_attn.{q,k,v}_proj.bias, side by side,
// follow the gains of layer L, with QKNorm model.layers.L.self_attn.{q,k}_norm.weight, [head_dim], with Ternary
// model.layers.L.self_attn.attn_sub_norm.weight, [heads * head_dim], and model.layers.L.mlp.ffn_sub_norm.weight, [ffn]; the
// matrices of such a layer are the master weights.
//
// A dense model has, in place of gate and experts, model.layers.L.mlp.gate_proj.weight and up_proj, [ffn, hidden], and
// down_proj, [hidden, ffn], where one expert would have w1, w3 and w2.
//
// Names are those of Mixtral, Llama, Qwen2, Qwen3 or BitNet in Hugging Face transformers, so a checkpoint needs no translation.
type Layout struct {
	Specs      []Spec
	Size       int // elements in all
	NumDecayed int // of which so many, from the start, decay
	byName     map[string]int
	layers     int
	tied       bool      // the head is the table of embeddings
	experts    [][2]Span // of each layer, W13 and W2 of all experts, side by side; none of a dense model
}

// NewLayout lays out the parameters of a valid configuration.
func NewLayout(config Config) *Layout {
	layout := &Layout{byName: make(map[string]int), layers: config.NumLayers, tied: config.TieEmbeddings}
	hidden, ffn := config.HiddenSize, config.FFNSize
	qRows, kvRows := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim
	layout.add("model.embed_tokens.weight", config.VocabSize, hidden)
	for layer := range config.NumLayers {
		prefix := fmt.Sprintf("model.layers.%d", layer)
		layout.add(prefix+".self_attn.q_proj.weight", qRows, hidden)
		layout.add(prefix+".self_attn.k_proj.weight", kvRows, hidden)
		layout.add(prefix+".self_attn.v_proj.weight", kvRows, hidden)
		layout.add(prefix+".self_attn.o_proj.weight", hidden, qRows)
		if config.NumExperts == 0 {
			layout.add(prefix+".mlp.gate_proj.weight", ffn, hidden)
			layout.add(prefix+".mlp.up_proj.weight", ffn, hidden)
			layout.add(prefix+".mlp.down_proj.weight", hidden, ffn)
			continue
		}
		layout.add(prefix+".block_sparse_moe.gate.weight", config.NumExperts, hidden)
		w13 := layout.Size
		for expert := range config.NumExperts {
			layout.add(fmt.Sprintf("%s.block_sparse_moe.experts.%d.w1.weight", prefix, expert), ffn, hidden)
			layout.add(fmt.Sprintf("%s.block_sparse_moe.experts.%d.w3.weight", prefix, expert), ffn, hidden)
		}
		w2 := layout.Size
		for expert := range config.NumExperts {
			layout.add(fmt.Sprintf("%s.block_sparse_moe.experts.%d.w2.weight", prefix, expert), hidden, ffn)
		}
		layout.experts = append(layout.experts, [2]Span{{w13, w2}, {w2, layout.Size}})
	}
	if !layout.tied {
		layout.add("lm_head.weight", config.VocabSize, hidden)
	}
	layout.NumDecayed = layout.Size
	for layer := range config.NumLayers {
		prefix := fmt.Sprintf("model.layers.%d", layer)
		layout.add(prefix+".input_layernorm.weight", hidden)
		layout.add(prefix+".post_attention_layernorm.weight", hidden)
		if config.QKVBias {
			layout.add(prefix+".self_attn.q_proj.bias", qRows)
			layout.add(prefix+".self_attn.k_proj.bias", kvRows)
			layout.add(prefix+".self_attn.v_proj.bias", kvRows)
		}
		if config.QKNorm {
			layout.add(prefix+".self_attn.q_norm.weight", config.HeadDim)
			layout.add(prefix+".self_attn.k_norm.weight", config.HeadDim)
		}
		if config.Ternary {
			layout.add(prefix+".self_attn.attn_sub_norm.weight", qRows)
			layout.add(prefix+".mlp.ffn_sub_norm.weight", ffn)
		}
	}
	layout.add("model.norm.weight", hidden)
	return layout
}

func (l *Layout) add(name string, shape ...int) {
	spec := Spec{Name: name, Shape: slices.Clone(shape), Offset: l.Size}
	l.byName[name] = len(l.Specs)
	l.Specs = append(l.Specs, spec)
	l.Size += spec.Size()
}

// BackwardPieces gives the elements whose gradients a backward pass completes at a time, in its order: the head's, unless
// it is the embedding, those of each layer's matrices from the last layer on, the embedding's, and all vectors. Together they
// are all elements, once.
func (l *Layout) BackwardPieces() []Span {
	offset := func(name string) int { return l.Specs[l.byName[name]].Offset }
	end, pieces := l.NumDecayed, []Span(nil)
	if !l.tied {
		end = offset("lm_head.weight")
		pieces = append(pieces, Span{end, l.NumDecayed})
	}
	for layer := l.layers - 1; layer >= 0; layer-- {
		begin := offset(fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", layer))
		pieces = append(pieces, Span{begin, end})
		end = begin
	}
	return append(pieces, Span{0, end}, Span{l.NumDecayed, l.Size})
}

// Find gives a parameter by its name.
func (l *Layout) Find(name string) (Spec, bool) {
	at, found := l.byName[name]
	if !found {
		return Spec{}, false
	}
	return l.Specs[at], true
}

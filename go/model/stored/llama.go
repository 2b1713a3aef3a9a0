// Package stored describes models as their files have them: one of Families in a GGUF file or in a Hugging Face folder,
// checkpoints of this library among them.
//
// A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
// experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
// ReLU as the gate (BitNet b1.58), or with bounded scores, windows and norms behind its parts (Gemma 2 and 3), or with sinks
// and biased experts (gpt-oss). Tensors are named as in Hugging Face transformers' Llama and Mixtral, in every family:
//
//	model.embed_tokens.weight                                  [vocab, hidden]
//	for each layer L, with the prefix model.layers.L:
//	  input_layernorm.weight, post_attention_layernorm.weight  [hidden]
//	  self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
//	  self_attn.o_proj.weight                                  [hidden, heads * head_dim]
//	  self_attn.{q,k,v}_proj.bias, self_attn.o_proj.bias       with QKVBias, with OBias
//	  self_attn.{q,k}_norm.weight                              with QKNorm: [head_dim], or [heads * head_dim]
//	  self_attn.sinks.weight                                   with Sinks: [heads]
//	  mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
//	or, with experts, all of them in one tensor a matrix:
//	  block_sparse_moe.gate.weight                             [experts, hidden]
//	  block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
//	  block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
//	  block_sparse_moe.gate.bias, .{w1,w3}.bias, .w2.bias      with BiasedExperts: [experts], [experts, ffn] twice and
//	                                                           [experts, hidden]
//	with SharedFFNSize, the expert that every token goes to, and with SharedGate what weighs it:
//	  block_sparse_moe.shared.{gate,up,down}_proj.weight       as those of mlp
//	  block_sparse_moe.shared_gate.weight                      [hidden]
//	with SubNorms, before the projections of the attention and of the feed-forward network:
//	  self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
//	with PostNorms, of what attention and the feed-forward network add to the residual stream:
//	  self_attn.post_norm.weight, mlp.post_norm.weight         [hidden]
//	model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]
//
// (Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
// Report"; Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card")
package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
)

// How elements of a head make pairs, how positions are scaled, norms of queries and keys, and the gate's activation.
const (
	RopeHalf        = "half"        // pairs (i, i + head_dim/2)
	RopeInterleaved = "interleaved" // pairs (2i, 2i + 1)

	ScalingNone     = "none"
	ScalingLinear   = "linear"
	ScalingDynamic  = "dynamic"
	ScalingNTK      = "ntk"
	ScalingLlama3   = "llama3"
	ScalingYaRN     = "yarn"
	ScalingLongRoPE = "longrope"

	NoNorm     = "none"
	NormOfHead = "head"  // each head by itself
	NormOfAll  = "whole" // all heads together

	SiLU  = "silu"
	ReLU2 = "relu2"             // max(x, 0)^2
	GELU  = "gelu_pytorch_tanh" // GELU by its approximation
)

// stretch is what positions, or a frequency, may be divided by. The bounds of other numbers are those of model.Config.
var stretch = options.Bounds{"stretch": {1e-6, 1e6}, "attention": {0, 1e6}}

// Rope is the rotary embedding.
type Rope struct {
	Base   float64 // of the angles
	Layout string  // which elements make a pair, as the rows of the stored query and key weights ask for
	// Rotated are the elements at the head's beginning that are rotated, 0 for all. Where they make half-split pairs, rows of
	// queries and keys are read in an order in which they are the pairs of a whole head.
	Rotated int
	// Scaling is "none"; "linear": positions are divided by Factor (Chen et al. 2023, "Extending Context Window"); "dynamic":
	// beyond Context alone, where a model with it does not go here; "ntk": the base grows with Factor as alpha, beyond Context
	// alone (bloc97 2023); "llama3", "yarn" and "longrope": each frequency is divided by its entry of Divisors (Dubey et al.
	// 2024, "The Llama 3 Herd of Models"; Peng et al. 2023, "YaRN"; Ding et al. 2024, "LongRoPE").
	Scaling  string
	Factor   float64
	Divisors []float32
	// LongDivisors of "longrope" take the place of Divisors for sequences longer than OriginalContext.
	LongDivisors    []float32
	OriginalContext int
	Magnitude       float64 // what cosines and sines are multiplied with
}

func (r Rope) validate() error {
	if _, err := model.Bounds.Number("rope_base", "rope.base", r.Base); err != nil {
		return err
	}
	of, factor := stretch, "stretch"
	if r.Scaling == ScalingNTK {
		of, factor = model.Bounds, "ntk_alpha"
	}
	if _, err := of.Number(factor, "rope.factor", r.Factor); err != nil {
		return err
	}
	if _, err := stretch.Number("stretch", "rope.magnitude", r.Magnitude); err != nil {
		return err
	}
	for _, divisor := range slices.Concat(r.Divisors, r.LongDivisors) {
		if _, err := stretch.Number("stretch", "a divisor of rope", float64(divisor)); err != nil {
			return err
		}
	}
	if r.Scaling == ScalingLongRoPE && (len(r.LongDivisors) != len(r.Divisors) || r.OriginalContext < 1) {
		return fmt.Errorf("rope.long_divisors has %d numbers; it must have as many as rope.divisors (%d), with an original context",
			len(r.LongDivisors), len(r.Divisors))
	}
	return nil
}

// LlamaConfig has sizes and options of a Llama.
type LlamaConfig struct {
	VocabSize       int
	HiddenSize      int
	NumLayers       int
	NumHeads        int
	NumKVHeads      int
	HeadDim         int // a multiple of 8, at most 256
	FFNSize         int // inner width of the SwiGLU, or of one expert
	Context         int // longest sequence without stretching beyond what the model was made for
	ExtendedContext int // longest sequence at all; above Context with the scaling "ntk" alone
	NormEps         float64
	Rope            Rope
	NumExperts      int    // 0 without experts
	ExpertsPerToken int    // 0 without experts
	NormTopKProb    bool   // whether a token's expert weights are divided by their sum
	TieEmbeddings   bool   // whether the LM head is the table of embeddings
	QKVBias         bool   // whether the products for queries, keys and values have biases
	OBias           bool   // whether the product behind attention has
	QKNorm          string // of queries and keys before they are rotated: "none", "head" or "whole"
	Activation      string // of the gate: "silu", "relu2" or "gelu_pytorch_tanh"
	SubNorms        bool   // whether there are norms before the projections of attention and feed-forward network
	// Ternary says whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are rounded
	// to 8 bits before them.
	Ternary       bool
	SharedFFNSize int  // inner width of the expert that every token goes to; 0 without one
	SharedGate    bool // whether that one is weighed by a sigmoid of the token
	// EmbeddingScale and ResidualScale are factors of the embeddings, and of what is added to the residual stream.
	EmbeddingScale, ResidualScale float64
	AttentionScale                float64 // factor of the products of queries and keys; 0 for 1 / sqrt(HeadDim)
	LogitsScaling                 float64 // what logits are divided by
	// ScoresCap and LogitsCap are soft bounds c * tanh(x / c) of attention's scores and of the logits; 0 for none.
	ScoresCap, LogitsCap float64
	Window               int     // most tokens that a token sees in layers with a window, itself the last of them; 0 for all
	WindowPeriod         int     // n where each n-th layer has no window, 0 where all have
	LocalRopeBase        float64 // of the rotary embedding in layers with a window, where it is not scaled; 0 for that of all
	// PostNorms says whether there are norms of what attention and the feed-forward network add to the residual stream,
	// NormsLessOne whether the stored gains of norms are less by 1 than what is multiplied with.
	PostNorms, NormsLessOne bool
	Sinks                   bool // whether each head has a score without a key, of which its softmax has the sum alone
	// BiasedExperts says whether the router and the experts have biases, and the gates of these are clipped: of
	// min(g, 7) sigmoid(1.702 g) (u + 1) with u held between -7 and 7.
	BiasedExperts bool
	Family        string // which of Families it is
}

// Validate says which option is outside its range.
func (c LlamaConfig) Validate() error {
	if err := c.Rope.validate(); err != nil {
		return err
	}
	for _, count := range []struct {
		name         string
		value, least int
	}{
		{"vocab_size", c.VocabSize, 1}, {"hidden_size", c.HiddenSize, 1}, {"num_layers", c.NumLayers, 1},
		{"num_heads", c.NumHeads, 1}, {"num_kv_heads", c.NumKVHeads, 1}, {"head_dim", c.HeadDim, 1},
		{"ffn_size", c.FFNSize, 1}, {"context", c.Context, 1}, {"extended_context", c.ExtendedContext, 1},
		{"num_experts", c.NumExperts, 0}, {"experts_per_token", c.ExpertsPerToken, 0},
		{"shared_ffn_size", c.SharedFFNSize, 0}, {"window", c.Window, 0}, {"window_period", c.WindowPeriod, 0},
	} {
		if count.value < count.least || count.value > formats.MaxCount {
			return wrongCount(count.name, fmt.Sprint(count.value), count.least)
		}
	}
	if _, err := model.Bounds.Number("norm_eps", "norm_eps", c.NormEps); err != nil {
		return err
	}
	least, most, ntk := min(c.NumExperts, 1), min(c.NumExperts, 64), c.Rope.Scaling == ScalingNTK
	reach := fmt.Sprintf("context (%d) without the scaling ntk", c.Context)
	if ntk {
		reach = fmt.Sprintf("at least context (%d)", c.Context)
	}
	for _, scale := range []struct {
		name  string
		value float64
	}{{"embedding_scale", c.EmbeddingScale}, {"residual_scale", c.ResidualScale}, {"logits_scaling", c.LogitsScaling}} {
		if _, err := stretch.Number("stretch", scale.name, scale.value); err != nil {
			return err
		}
	}
	for _, factor := range []struct {
		name  string
		value float64
	}{{"attention_scale", c.AttentionScale}, {"scores_cap", c.ScoresCap}, {"logits_cap", c.LogitsCap}} {
		if _, err := stretch.Number("attention", factor.name, factor.value); err != nil {
			return err
		}
	}
	if c.LocalRopeBase != 0 {
		if _, err := model.Bounds.Number("rope_base", "local_rope_base", c.LocalRopeBase); err != nil {
			return err
		}
	}
	rotated := c.rotated()
	whole := rotated == c.HeadDim
	dense := c.SubNorms || c.Ternary || c.PostNorms || c.Activation != SiLU
	for _, rule := range []struct {
		holds bool
		name  string
		value any
		rule  string
	}{
		{c.NumLayers <= 10000, "num_layers", c.NumLayers, "at most 10000"},
		{c.NumHeads%c.NumKVHeads == 0, "num_kv_heads", c.NumKVHeads, fmt.Sprintf("a divisor of num_heads (%d)", c.NumHeads)},
		{c.HeadDim%8 == 0 && c.HeadDim <= 256, "head_dim", c.HeadDim, "a multiple of 8, at most 256"},
		{least <= c.ExpertsPerToken && c.ExpertsPerToken <= most, "experts_per_token", c.ExpertsPerToken,
			fmt.Sprintf("%d to %d", least, most)},
		{c.ExtendedContext == c.Context || ntk && c.ExtendedContext > c.Context, "extended_context", c.ExtendedContext, reach},
		{!dense || c.NumExperts == 0, "num_experts", c.NumExperts, "0 in a model of the kind of BitNet or Gemma"},
		{c.Window > 0 || c.WindowPeriod == 0, "window_period", c.WindowPeriod, "0 in a model without windows"},
		{c.LocalRopeBase == 0 || c.Window > 0 && c.Rope.Rotated == 0, "local_rope_base", c.LocalRopeBase,
			"0 without windows, and where a part is rotated"},
		{!(c.Ternary && (c.PostNorms || c.NormsLessOne)), "post_norms", true, "absent with ternary weights"},
		{!(c.Ternary && (c.QKVBias || c.OBias)), "a bias", true, "absent with ternary weights"},
		{!(c.Ternary && c.QKNorm != NoNorm), "qk_norm", c.QKNorm, "absent with ternary weights"},
		{!(c.Ternary && !whole), "rope.rotated", rotated, "absent with ternary weights"},
		{!(c.Ternary && (c.AttentionScale != 0 || c.EmbeddingScale != 1 || c.ResidualScale != 1)), "a scale", true,
			"absent with ternary weights"},
		{!(c.OBias && c.ResidualScale != 1), "o_bias", true, "false with a residual_scale"},
		{c.NumExperts > 0 || c.SharedFFNSize == 0, "shared_ffn_size", c.SharedFFNSize, "0 in a model without experts"},
		{!c.BiasedExperts || c.NumExperts > 0 && c.SharedFFNSize == 0 && c.ResidualScale == 1, "biased_experts", true,
			"false without experts, with a shared one, and with a residual_scale"},
		{c.SharedFFNSize > 0 || !c.SharedGate, "shared_gate", true, "false in a model without a shared expert"},
		{rotated%2 == 0 && rotated <= c.HeadDim, "rope.rotated", rotated,
			fmt.Sprintf("an even number below head_dim (%d), or 0", c.HeadDim)},
		{whole || !c.QKVBias && c.QKNorm == NoNorm, "rope.rotated", rotated, "0 with biases or norms of queries and keys"},
		{len(c.Rope.Divisors) == 0 || len(c.Rope.Divisors) == rotated/2, "the number of divisors of rope",
			len(c.Rope.Divisors), fmt.Sprintf("half of the rotated elements (%d)", rotated/2)},
	} {
		if !rule.holds {
			return fmt.Errorf("%s is %s; it must be %s", rule.name, formats.Shown(rule.value), rule.rule)
		}
	}
	return nil
}

func wrongCount(name, value string, least int) error {
	return fmt.Errorf("%s is %s; it must be a whole number, from %d to %d", name, value, least, formats.MaxCount)
}

// rotated are the elements of a head that are rotated.
func (c LlamaConfig) rotated() int { return cmp.Or(c.Rope.Rotated, c.HeadDim) }

// WindowOf is the most tokens that a token sees in a layer, counted from 0; 0 for all.
func (c LlamaConfig) WindowOf(layer int) int {
	if c.WindowPeriod > 0 && (layer+1)%c.WindowPeriod == 0 {
		return 0
	}
	return c.Window
}

// RopeDivisors are what the frequencies of each pair of a head are divided by, for sequences of up to that many positions;
// nil for ones.
func (c LlamaConfig) RopeDivisors(positions int) []float32 {
	divisors := c.Rope.Divisors
	if c.Rope.Scaling == ScalingLongRoPE && positions > c.Rope.OriginalContext {
		divisors = c.Rope.LongDivisors
	}
	if c.rotated() == c.HeadDim {
		return divisors
	}
	every := make([]float32, c.HeadDim/2)
	for pair := range every {
		switch {
		case pair >= c.rotated()/2:
			every[pair] = unrotated
		case len(divisors) > 0:
			every[pair] = divisors[pair]
		default:
			every[pair] = 1
		}
	}
	return every
}

// RopeOptions are options of kernel rope_freqs_scaled for sequences of up to that many positions; its factors are
// RopeDivisors. An error beyond ExtendedContext.
func (c LlamaConfig) RopeOptions(positions int) (base, ntkAlpha, scale float64, err error) {
	if positions > c.ExtendedContext {
		return 0, 0, 0, fmt.Errorf("%d positions; this model has at most %d", positions, c.ExtendedContext)
	}
	ntkAlpha, scale = 1, 1
	if c.Rope.Scaling == ScalingNTK && positions > c.Context {
		ntkAlpha = c.Rope.Factor
	}
	if c.Rope.Scaling == ScalingLinear {
		scale = 1 / c.Rope.Factor
	}
	return baseOfPart(c.Rope.Base, c.HeadDim, c.rotated()), ntkAlpha, scale, nil
}

// Shape is the shape of a tensor.
type Shape struct {
	Name  string
	Sizes []int
}

// Shapes gives the shape of every tensor, in the order of the layers; lm_head.weight in tied models too.
func (c LlamaConfig) Shapes() []Shape {
	hidden, ffn := c.HiddenSize, c.FFNSize
	queries, keys := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	shapes := []Shape{{"model.embed_tokens.weight", []int{c.VocabSize, hidden}}}
	for layer := range c.NumLayers {
		prefix := fmt.Sprintf("model.layers.%d.", layer)
		add := func(name string, sizes ...int) { shapes = append(shapes, Shape{prefix + name, sizes}) }
		add("input_layernorm.weight", hidden)
		for _, part := range []struct {
			name          string
			rows, columns int
		}{{"q", queries, hidden}, {"k", keys, hidden}, {"v", keys, hidden}, {"o", hidden, queries}} {
			add("self_attn."+part.name+"_proj.weight", part.rows, part.columns)
			if part.name == "o" && c.OBias || part.name != "o" && c.QKVBias {
				add("self_attn."+part.name+"_proj.bias", part.rows)
			}
		}
		switch c.QKNorm {
		case NormOfHead:
			add("self_attn.q_norm.weight", c.HeadDim)
			add("self_attn.k_norm.weight", c.HeadDim)
		case NormOfAll:
			add("self_attn.q_norm.weight", queries)
			add("self_attn.k_norm.weight", keys)
		}
		if c.Sinks {
			add("self_attn.sinks.weight", c.NumHeads)
		}
		if c.SubNorms {
			add("self_attn.attn_sub_norm.weight", queries)
		}
		if c.PostNorms {
			add("self_attn.post_norm.weight", hidden)
		}
		add("post_attention_layernorm.weight", hidden)
		if c.NumExperts > 0 {
			add("block_sparse_moe.gate.weight", c.NumExperts, hidden)
			add("block_sparse_moe.w1.weight", c.NumExperts, ffn, hidden)
			add("block_sparse_moe.w3.weight", c.NumExperts, ffn, hidden)
			add("block_sparse_moe.w2.weight", c.NumExperts, hidden, ffn)
			if c.BiasedExperts {
				add("block_sparse_moe.gate.bias", c.NumExperts)
				add("block_sparse_moe.w1.bias", c.NumExperts, ffn)
				add("block_sparse_moe.w3.bias", c.NumExperts, ffn)
				add("block_sparse_moe.w2.bias", c.NumExperts, hidden)
			}
			if shared := c.SharedFFNSize; shared > 0 {
				add("block_sparse_moe.shared.gate_proj.weight", shared, hidden)
				add("block_sparse_moe.shared.up_proj.weight", shared, hidden)
				add("block_sparse_moe.shared.down_proj.weight", hidden, shared)
			}
			if c.SharedGate {
				add("block_sparse_moe.shared_gate.weight", hidden)
			}
		} else {
			add("mlp.gate_proj.weight", ffn, hidden)
			add("mlp.up_proj.weight", ffn, hidden)
			add("mlp.down_proj.weight", hidden, ffn)
		}
		if c.SubNorms {
			add("mlp.ffn_sub_norm.weight", ffn)
		}
		if c.PostNorms {
			add("mlp.post_norm.weight", hidden)
		}
	}
	return append(shapes, Shape{"model.norm.weight", []int{hidden}}, Shape{headName, []int{c.VocabSize, hidden}})
}

// NumParameters counts all parameters; a head that is the table of embeddings does not count.
func (c LlamaConfig) NumParameters() int {
	total := 0
	for _, shape := range c.Shapes() {
		if !c.TieEmbeddings || shape.Name != headName {
			total += elements(shape.Sizes)
		}
	}
	return total
}

func elements(sizes []int) int {
	product := 1
	for _, size := range sizes {
		product *= size
	}
	return product
}

const (
	embeddingName = "model.embed_tokens.weight"
	headName      = "lm_head.weight"
)

// isPlain says whether a tensor must be in f32, f16 or bf16: norms, biases, routers, sinks, which are small and are
// multiplied element by element in f32.
func isPlain(name string) bool {
	for _, end := range []string{
		"norm.weight", ".bias", "self_attn.sinks.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.shared_gate.weight",
	} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// IsNorm says whether a tensor has the gains of a norm.
func IsNorm(name string) bool { return strings.HasSuffix(name, "norm.weight") }

// isProjection says whether a tensor is one of the matrices that are ternary in a model with ternary weights.
func isProjection(name string) bool { return strings.HasSuffix(name, "_proj.weight") }

// Object gives all options by name.
func (c LlamaConfig) Object() *formats.Object {
	numbers := func(values []float32) []any {
		list := make([]any, len(values))
		for at, value := range values {
			list[at] = float64(value)
		}
		return list
	}
	rope := formats.NewObject(
		"base", c.Rope.Base, "layout", c.Rope.Layout, "rotated", c.Rope.Rotated, "scaling", c.Rope.Scaling,
		"factor", c.Rope.Factor, "divisors", numbers(c.Rope.Divisors), "long_divisors", numbers(c.Rope.LongDivisors),
		"original_context", c.Rope.OriginalContext, "magnitude", c.Rope.Magnitude)
	return formats.NewObject(
		"vocab_size", c.VocabSize, "hidden_size", c.HiddenSize, "num_layers", c.NumLayers, "num_heads", c.NumHeads,
		"num_kv_heads", c.NumKVHeads, "head_dim", c.HeadDim, "ffn_size", c.FFNSize, "context", c.Context,
		"extended_context", c.ExtendedContext, "norm_eps", c.NormEps, "rope", rope, "num_experts", c.NumExperts,
		"experts_per_token", c.ExpertsPerToken, "norm_topk_prob", c.NormTopKProb, "tie_embeddings", c.TieEmbeddings,
		"qkv_bias", c.QKVBias, "o_bias", c.OBias, "qk_norm", c.QKNorm, "activation", c.Activation, "sub_norms", c.SubNorms,
		"ternary", c.Ternary, "shared_ffn_size", c.SharedFFNSize, "shared_gate", c.SharedGate,
		"embedding_scale", c.EmbeddingScale, "residual_scale", c.ResidualScale, "attention_scale", c.AttentionScale,
		"logits_scaling", c.LogitsScaling, "scores_cap", c.ScoresCap, "logits_cap", c.LogitsCap, "window", c.Window,
		"window_period", c.WindowPeriod, "local_rope_base", c.LocalRopeBase, "post_norms", c.PostNorms, "norms_less_one", c.NormsLessOne,
		"sinks", c.Sinks, "biased_experts", c.BiasedExperts, "family", c.Family)
}

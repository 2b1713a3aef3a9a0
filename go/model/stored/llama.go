// Package stored describes models as their files have them: a Llama, a Mixtral or a BitNet in a GGUF file or in a Hugging
// Face folder, checkpoints of this library among them.
//
// A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
// experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
// ReLU as the gate (BitNet b1.58). Tensors are named as in Hugging Face transformers:
//
//	model.embed_tokens.weight                                  [vocab, hidden]
//	for each layer L, with the prefix model.layers.L:
//	  input_layernorm.weight, post_attention_layernorm.weight  [hidden]
//	  self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
//	  self_attn.o_proj.weight                                  [hidden, heads * head_dim]
//	  self_attn.{q,k,v,o}_proj.bias                            with AttentionBias
//	  mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
//	or, with experts, all of them in one tensor a matrix:
//	  block_sparse_moe.gate.weight                             [experts, hidden]
//	  block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
//	  block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
//	with SubNorms, before the projections of the attention and of the feed-forward network:
//	  self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
//	model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]
//
// (Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
// Report")
package stored

import (
	"fmt"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
)

// How elements of a head make pairs, how positions are scaled, and the gate's activation.
const (
	RopeHalf        = "half"        // pairs (i, i + head_dim/2)
	RopeInterleaved = "interleaved" // pairs (2i, 2i + 1)

	ScalingNone   = "none"
	ScalingLinear = "linear"
	ScalingNTK    = "ntk"
	ScalingLlama3 = "llama3"

	SiLU  = "silu"
	ReLU2 = "relu2" // max(x, 0)^2
)

// stretch is what positions, or a frequency, may be divided by. The bounds of other numbers are those of model.Config.
var stretch = options.Bounds{"stretch": {1e-6, 1e6}}

// Rope is the rotary embedding.
type Rope struct {
	Base   float64 // of the angles
	Layout string  // which elements make a pair, as the rows of the stored query and key weights ask for
	// Scaling is "none"; "linear": positions are divided by Factor (Chen et al. 2023, "Extending Context Window"); "ntk":
	// the base grows with Factor as alpha, beyond Context alone (bloc97 2023); "llama3": each frequency is divided by its
	// entry of Divisors (Dubey et al. 2024, "The Llama 3 Herd of Models").
	Scaling  string
	Factor   float64
	Divisors []float32
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
	for _, divisor := range r.Divisors {
		if _, err := stretch.Number("stretch", "a divisor of rope", float64(divisor)); err != nil {
			return err
		}
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
	AttentionBias   bool   // whether the four products of attention have biases
	Activation      string // of the gate: "silu", or "relu2"
	SubNorms        bool   // whether there are norms before the projections of attention and feed-forward network
	// Ternary says whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are rounded
	// to 8 bits before them.
	Ternary bool
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
	bitnet := c.SubNorms || c.Ternary || c.Activation != SiLU
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
		{!bitnet || c.NumExperts == 0, "num_experts", c.NumExperts, "0 in a model of the kind of BitNet"},
		{!(c.Ternary && c.AttentionBias), "attention_bias", true, "false with ternary weights"},
		{len(c.Rope.Divisors) == 0 || len(c.Rope.Divisors) == c.HeadDim/2, "the number of divisors of rope",
			len(c.Rope.Divisors), fmt.Sprintf("head_dim / 2 (%d)", c.HeadDim/2)},
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

// RopeOptions are options of kernel rope_freqs_scaled for sequences of up to that many positions; its factors are
// Rope.Divisors. An error beyond ExtendedContext.
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
	return c.Rope.Base, ntkAlpha, scale, nil
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
			if c.AttentionBias {
				add("self_attn."+part.name+"_proj.bias", part.rows)
			}
		}
		if c.SubNorms {
			add("self_attn.attn_sub_norm.weight", queries)
		}
		add("post_attention_layernorm.weight", hidden)
		if c.NumExperts > 0 {
			add("block_sparse_moe.gate.weight", c.NumExperts, hidden)
			add("block_sparse_moe.w1.weight", c.NumExperts, ffn, hidden)
			add("block_sparse_moe.w3.weight", c.NumExperts, ffn, hidden)
			add("block_sparse_moe.w2.weight", c.NumExperts, hidden, ffn)
		} else {
			add("mlp.gate_proj.weight", ffn, hidden)
			add("mlp.up_proj.weight", ffn, hidden)
			add("mlp.down_proj.weight", hidden, ffn)
		}
		if c.SubNorms {
			add("mlp.ffn_sub_norm.weight", ffn)
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

// isPlain says whether a tensor must be in f32, f16 or bf16: norms, biases, routers, which are small and are multiplied
// element by element in f32.
func isPlain(name string) bool {
	for _, end := range []string{"layernorm.weight", "sub_norm.weight", ".bias", "model.norm.weight", "block_sparse_moe.gate.weight"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// isProjection says whether a tensor is one of the matrices that are ternary in a model with ternary weights.
func isProjection(name string) bool { return strings.HasSuffix(name, "_proj.weight") }

// Object gives all options by name.
func (c LlamaConfig) Object() *formats.Object {
	divisors := make([]any, len(c.Rope.Divisors))
	for at, divisor := range c.Rope.Divisors {
		divisors[at] = float64(divisor)
	}
	rope := formats.NewObject(
		"base", c.Rope.Base, "layout", c.Rope.Layout, "scaling", c.Rope.Scaling, "factor", c.Rope.Factor,
		"divisors", divisors)
	return formats.NewObject(
		"vocab_size", c.VocabSize, "hidden_size", c.HiddenSize, "num_layers", c.NumLayers, "num_heads", c.NumHeads,
		"num_kv_heads", c.NumKVHeads, "head_dim", c.HeadDim, "ffn_size", c.FFNSize, "context", c.Context,
		"extended_context", c.ExtendedContext, "norm_eps", c.NormEps, "rope", rope, "num_experts", c.NumExperts,
		"experts_per_token", c.ExpertsPerToken, "norm_topk_prob", c.NormTopKProb, "tie_embeddings", c.TieEmbeddings,
		"attention_bias", c.AttentionBias, "activation", c.Activation, "sub_norms", c.SubNorms, "ternary", c.Ternary)
}

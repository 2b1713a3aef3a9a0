package stored

import (
	"slices"
	"strings"
)

// Switch says whether a part is there: Usual, unless config.json says otherwise under Key; "" where it cannot.
type Switch struct {
	Usual bool
	Key   string
}

// Experts is what config.json calls the sizes of a mixture of experts.
type Experts struct {
	Count       string // how many there are, and how many transformers takes
	Usual       int
	UsualChosen int    // of num_experts_per_tok
	FFN         string // their inner width
	Norm        Switch // whether a token's weights are divided by their sum
	// Shared is the inner width of the expert that every token goes to; "" without one.
	Shared      string
	UsualShared int
	SharedGate  bool // whether a sigmoid of its own weighs that one
	Biased      bool // whether they and their router have biases, and their gates are clipped
	// Also is another name of the count, which newer releases of transformers write.
	Also string
}

// Gemma is what Gemma's families have in common, and what transformers takes where config.json does not say. Folders have the
// gains of norms less 1, embeddings are multiplied by sqrt(hidden_size), and what attention and the feed-forward network give
// has a norm before it is added to the residual stream.
type Gemma struct {
	QueryScalar          float64 // query_pre_attn_scalar
	ScoresCap, LogitsCap float64 // attn_logit_softcapping and final_logit_softcapping; 0 for none
	// Largest are the layers of the model whose GGUF files have hidden_size / heads for QueryScalar; in those of all others it
	// is head_dim (llama.cpp's rule: files have no key for it).
	Largest int
	// LocalBase of the rotary embedding is that in layers with a window, where rope_local_base_freq does not say; 0 where all
	// layers have the same.
	LocalBase float64
}

// caps are the options of Gemma's families with soft bounds: in config.json and GGUF files alike.
var caps = []struct {
	name  string
	usual func(*Gemma) float64
	of    func(*LlamaConfig) *float64
}{
	{"attn_logit_softcapping", func(g *Gemma) float64 { return g.ScoresCap },
		func(c *LlamaConfig) *float64 { return &c.ScoresCap }},
	{"final_logit_softcapping", func(g *Gemma) float64 { return g.LogitsCap },
		func(c *LlamaConfig) *float64 { return &c.LogitsCap }},
}

// fixed is an option of config.json that may have one value alone, which is what the engine computes; nil is null.
type fixed struct {
	name  string
	value any
}

// Family is a family of models: a description over the same layers, how its files name and default what LlamaConfig holds
// and which parts its blocks have. To add one is to add an entry here and in its twins in Python and Rust;
// docs/adding-a-model.md has the steps.
type Family struct {
	Name string // model_type in config.json
	// Architectures are general.architecture in GGUF files.
	Architectures []string
	Interleaved   bool // whether GGUF files order the rows of queries and keys for interleaved pairs
	// RopeBase, NormEps, Context, KVHeads, HeadDim and Window are what transformers takes where config.json does not say:
	// 0 heads are as many as query heads, a head dim of 0 is hidden_size / num_heads, a window of 0 is none, and a context
	// of 0 must be there.
	RopeBase, NormEps                 float64
	Context, KVHeads, HeadDim, Window int
	WindowFlag                        string // the option without which sliding_window means nothing
	// WindowPeriod says which layers have a window that is narrower than the context: 0 for a family of which none may,
	// AllWindows for all of them, n for all but each n-th.
	WindowPeriod   int
	Tied           bool // whether the head is the table of embeddings where config.json does not say
	QKVBias, OBias Switch
	QKNorm         string   // "none", "head" or "whole"
	Activations    []string // hidden_act may be one of these; the first is the usual one
	ActivationKey  string   // another option with the same values, which stands above that one; or ""
	Ternary        bool     // weights and norms of a BitNet
	Experts        *Experts
	Scaled         bool   // whether config.json has Granite's four factors
	Gemma          *Gemma // what Gemma's families have, or nil
	PartialRotary  bool   // whether a part of each head may stay unrotated
	// OriginalContext is the usual original_max_position_embeddings of families that have it beside the rotary embedding's own
	// options; 0 of others.
	OriginalContext int
	Sinks           bool // whether each head has a score without a key
	// Rope are options of the rotary embedding, name and value in turns, where config.json has neither rope_parameters nor
	// rope_scaling.
	Rope []any
	// BrokenTurns says whether YaRN's stretched part has whatever numbers for its ends in GGUF files, which have no key for it,
	// in place of whole ones.
	BrokenTurns bool
	fixed       []fixed
}

// AllWindows is the period of windows in all layers.
const AllWindows = -1

var (
	biased = Switch{Key: "attention_bias"}
	unless = Switch{Usual: true, Key: "attention_bias"}
	yes    = Switch{Usual: true}
	normed = Switch{Key: "norm_topk_prob"}

	onlySiLU = []string{SiLU}
	noMLP    = []fixed{{"mlp_bias", false}}
	// sparse is a mixture in each layer.
	sparse = []fixed{{"decoder_sparse_step", int64(1)}, {"mlp_only_layers", []any{}}}
)

// Families are the families that the engine runs.
var Families = []Family{
	{
		Name: "llama", Architectures: []string{"llama"}, Interleaved: true, RopeBase: 1e4, NormEps: 1e-6, Context: 2048,
		QKVBias: biased, OBias: biased, QKNorm: NoNorm, Activations: onlySiLU, fixed: noMLP,
	},
	{
		Name: "mixtral", Architectures: []string{"llama"}, Interleaved: true, RopeBase: 1e6, NormEps: 1e-5, KVHeads: 8,
		QKNorm: NoNorm, Activations: onlySiLU,
		Experts: &Experts{Count: "num_local_experts", Usual: 8, UsualChosen: 2, FFN: "intermediate_size", Norm: yes},
	},
	{
		Name: "bitnet", Architectures: []string{"bitnet-b1.58", "bitnet-25", "bitnet"}, RopeBase: 5e5, NormEps: 1e-5,
		Context: 2048, KVHeads: 5, QKNorm: NoNorm, Activations: []string{ReLU2, SiLU}, Ternary: true,
	},
	{
		Name: "mistral", Architectures: []string{"llama"}, Interleaved: true, RopeBase: 1e4, NormEps: 1e-6, Context: 131072,
		KVHeads: 8, Window: 4096, WindowPeriod: AllWindows, QKNorm: NoNorm, Activations: onlySiLU,
	},
	{
		Name: "qwen2", Architectures: []string{"qwen2"}, RopeBase: 1e4, NormEps: 1e-6, Context: 32768, KVHeads: 32,
		WindowFlag: "use_sliding_window", QKVBias: yes, QKNorm: NoNorm, Activations: onlySiLU,
	},
	{
		Name: "qwen3", Architectures: []string{"qwen3"}, RopeBase: 1e4, NormEps: 1e-6, Context: 32768, KVHeads: 32,
		HeadDim: 128, WindowFlag: "use_sliding_window", QKVBias: biased, OBias: biased, QKNorm: NormOfHead,
		Activations: onlySiLU,
	},
	{
		Name: "qwen3_moe", Architectures: []string{"qwen3moe"}, RopeBase: 1e4, NormEps: 1e-6, Context: 32768, KVHeads: 4,
		WindowFlag: "use_sliding_window", QKVBias: biased, OBias: biased, QKNorm: NormOfHead, Activations: onlySiLU,
		Experts: &Experts{Count: "num_experts", Usual: 128, UsualChosen: 8, FFN: "moe_intermediate_size", Norm: normed,
			Also: "num_local_experts"},
		fixed: sparse,
	},
	{
		Name: "olmoe", Architectures: []string{"olmoe"}, RopeBase: 1e4, NormEps: 1e-5, Context: 4096, QKVBias: biased,
		OBias: biased, QKNorm: NormOfAll, Activations: onlySiLU,
		Experts: &Experts{Count: "num_experts", Usual: 64, UsualChosen: 8, FFN: "intermediate_size", Norm: normed},
		fixed:   []fixed{{"clip_qkv", nil}},
	},
	{
		Name: "granite", Architectures: []string{"granite"}, Interleaved: true, RopeBase: 1e4, NormEps: 1e-6, Context: 2048,
		QKVBias: biased, OBias: biased, QKNorm: NoNorm, Activations: onlySiLU, Scaled: true, fixed: noMLP,
	},
	{
		Name: "granitemoe", Architectures: []string{"granitemoe"}, Interleaved: true, RopeBase: 1e4, NormEps: 1e-6,
		Context: 2048, QKVBias: biased, OBias: biased, QKNorm: NoNorm, Activations: onlySiLU, Scaled: true,
		Experts: &Experts{Count: "num_local_experts", Usual: 8, UsualChosen: 2, FFN: "intermediate_size", Norm: yes},
	},
	{
		Name: "granitemoeshared", Architectures: []string{"granitemoe"}, Interleaved: true, RopeBase: 1e4, NormEps: 1e-6,
		Context: 2048, QKVBias: biased, OBias: biased, QKNorm: NoNorm, Activations: onlySiLU, Scaled: true,
		Experts: &Experts{Count: "num_local_experts", Usual: 8, UsualChosen: 2, FFN: "intermediate_size", Norm: yes,
			Shared: "shared_intermediate_size"},
	},
	{
		Name: "qwen2_moe", Architectures: []string{"qwen2moe"}, RopeBase: 1e4, NormEps: 1e-6, Context: 32768, KVHeads: 16,
		WindowFlag: "use_sliding_window", QKVBias: Switch{Usual: true, Key: "qkv_bias"}, QKNorm: NoNorm,
		Activations: onlySiLU,
		Experts: &Experts{Count: "num_experts", Usual: 60, UsualChosen: 4, FFN: "moe_intermediate_size", Norm: normed,
			Shared: "shared_expert_intermediate_size", UsualShared: 5632, SharedGate: true},
		fixed: sparse,
	},
	{
		Name: "phi3", Architectures: []string{"phi3"}, RopeBase: 1e4, NormEps: 1e-5, Context: 4096, QKNorm: NoNorm,
		Activations: onlySiLU, WindowPeriod: AllWindows, PartialRotary: true, OriginalContext: 4096,
	},
	{
		Name: "gemma2", Architectures: []string{"gemma2"}, RopeBase: 1e4, NormEps: 1e-6, Context: 8192, KVHeads: 4,
		HeadDim: 256, Window: 4096, WindowPeriod: 2, Tied: true, QKVBias: biased, OBias: biased, QKNorm: NoNorm,
		Activations: []string{GELU}, ActivationKey: "hidden_activation",
		Gemma: &Gemma{QueryScalar: 256, ScoresCap: 50, LogitsCap: 30, Largest: 46},
	},
	{
		Name: "gemma3_text", Architectures: []string{"gemma3"}, RopeBase: 1e6, NormEps: 1e-6, Context: 131072, KVHeads: 4,
		HeadDim: 256, Window: 4096, WindowPeriod: 6, Tied: true, QKVBias: biased, OBias: biased, QKNorm: NormOfHead,
		Activations: []string{GELU}, ActivationKey: "hidden_activation",
		Gemma: &Gemma{QueryScalar: 256, Largest: 62, LocalBase: 1e4},
	},
	{
		Name: "gpt_oss", Architectures: []string{"gpt-oss"}, RopeBase: 150000, NormEps: 1e-5, Context: 131072, KVHeads: 8,
		HeadDim: 64, Window: 128, WindowPeriod: 2, QKVBias: unless, OBias: unless, QKNorm: NoNorm, Activations: onlySiLU,
		Experts: &Experts{Count: "num_local_experts", Usual: 128, UsualChosen: 4, FFN: "intermediate_size", Norm: yes,
			Biased: true},
		Sinks: true,
		Rope: []any{
			"rope_type", "yarn", "factor", 32.0, "truncate", false, "original_max_position_embeddings", int64(4096),
		},
		BrokenTurns: true, fixed: []fixed{{"swiglu_alpha", 1.702}, {"swiglu_limit", 7.0}},
	},
}

// commonOptions of config.json all families have.
var commonOptions = words(`model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
	num_key_value_heads head_dim max_position_embeddings rms_norm_eps hidden_act tie_word_embeddings rope_theta
	rope_parameters rope_scaling sliding_window layer_types partial_rotary_factor nncuda`)

// neutralOptions change nothing of what a model computes: what made it, how it is trained, how it writes.
var neutralOptions = words(`architectures torch_dtype dtype transformers_version name_or_path auto_map unsloth_version
	unsloth_fixed bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id
	decoder_start_token_id forced_bos_token_id forced_eos_token_id tokenizer_class model_max_length initializer_range
	use_cache pretraining_tp attention_dropout hidden_dropout resid_pdrop embd_pdrop router_aux_loss_coef
	router_jitter_noise output_router_logits output_attentions output_hidden_states return_dict use_return_dict
	gradient_checkpointing id2label label2id problem_type task_specific_params finetuning_task chunk_size_feed_forward
	max_window_layers max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
	temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
	encoder_no_repeat_ngram_size bad_words_ids num_return_sequences suppress_tokens begin_suppress_tokens
	remove_invalid_values exponential_decay_length_penalty prefix tf_legacy_loss use_bfloat16 torchscript
	cross_attention_hidden_size cache_implementation`)

// ggufOptions are keys of a GGUF file behind its architecture's name that all families have, or that change nothing.
var ggufOptions = words(`vocab_size context_length embedding_length block_count feed_forward_length attention.head_count
	attention.head_count_kv attention.key_length attention.value_length attention.layer_norm_rms_epsilon
	attention.layer_norm_epsilon attention.sliding_window rope.dimension_count rope.freq_base rope.scale_linear
	rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.finetuned
	rope.scaling.attn_factor rope.scaling.yarn_ext_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast
	rope.scaling.yarn_beta_slow rope.scaling.yarn_log_multiplier expert_count expert_used_count
	expert_feed_forward_length expert_shared_feed_forward_length expert_shared_count expert_weights_norm
	nncuda.extended_context nncuda.ntk_alpha`)

func words(text string) map[string]bool {
	found := make(map[string]bool)
	for _, word := range strings.Fields(text) {
		found[word] = true
	}
	return found
}

// scales are the options of families with Granite's factors: in config.json, in a GGUF file, and where they go.
var scales = []struct {
	option, key string
	of          func(*LlamaConfig) *float64
}{
	{"embedding_multiplier", "embedding_scale", func(c *LlamaConfig) *float64 { return &c.EmbeddingScale }},
	{"residual_multiplier", "residual_scale", func(c *LlamaConfig) *float64 { return &c.ResidualScale }},
	{"attention_multiplier", "attention.scale", func(c *LlamaConfig) *float64 { return &c.AttentionScale }},
	{"logits_scaling", "logit_scale", func(c *LlamaConfig) *float64 { return &c.LogitsScaling }},
}

func familyNamed(name string) *Family {
	at := slices.IndexFunc(Families, func(f Family) bool { return f.Name == name })
	if at < 0 {
		return nil
	}
	return &Families[at]
}

// familyOfArchitecture is the family of a GGUF file; nil where it is of none. Where several have one architecture's name,
// what the file has in its blocks decides.
func familyOfArchitecture(architecture string, experts, shared bool) *Family {
	switch {
	case architecture == "llama" && experts:
		return familyNamed("mixtral")
	case architecture == "granitemoe" && shared:
		return familyNamed("granitemoeshared")
	}
	at := slices.IndexFunc(Families, func(f Family) bool { return slices.Contains(f.Architectures, architecture) })
	if at < 0 {
		return nil
	}
	return &Families[at]
}

// Options are the options of config.json that decide what a model of the family computes.
func (f *Family) Options() map[string]bool {
	own := make(map[string]bool)
	for name := range commonOptions {
		own[name] = true
	}
	for _, name := range []string{f.QKVBias.Key, f.OBias.Key, f.WindowFlag, f.ActivationKey} {
		own[name] = true
	}
	if experts := f.Experts; experts != nil {
		for _, name := range []string{
			experts.Count, experts.Also, experts.FFN, "num_experts_per_tok", experts.Norm.Key, experts.Shared,
		} {
			own[name] = true
		}
		if experts.Biased {
			own["experts_per_token"], own["initial_context_length"], own["quantization_config"] = true, true, true
		}
	}
	if f.Scaled {
		for _, scale := range scales {
			own[scale.option] = true
		}
	}
	if f.Gemma != nil {
		own["query_pre_attn_scalar"] = true
		for _, limit := range caps {
			own[limit.name] = true
		}
		if f.Gemma.LocalBase > 0 {
			own["rope_local_base_freq"], own["sliding_window_pattern"] = true, true
		}
	}
	for _, option := range f.fixed {
		own[option.name] = true
	}
	if f.Ternary {
		own["quantization_config"] = true
	}
	if f.OriginalContext > 0 {
		own["original_max_position_embeddings"] = true
	}
	delete(own, "")
	return own
}

package stored

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats/gguf"
)

// bitnetArchitectures has the gate's activation by the architecture of a GGUF file with ternary weights: llama.cpp
// computes all of "bitnet" with SiLU, as the first such models had it; bitnet.cpp gave those with a squared ReLU other
// names.
var bitnetArchitectures = map[string]string{"bitnet": SiLU, "bitnet-25": ReLU2, "bitnet-b1.58": ReLU2}

// seen is what a GGUF file's tensors say of its configuration.
type seen struct {
	tied           bool // there is no output.weight
	qkvBias, oBias bool // attention has biases
	shared         bool // there is an expert for all tokens
	// divisors are the values of rope_freqs.weight, or nil; short and long those of rope_factors_short.weight and
	// rope_factors_long.weight.
	divisors, short, long []float32
}

// configFromGGUF reads the metadata of a GGUF file of an architecture of Families. It is an error when it is of another
// model, lacks something, or asks for what this engine does not do; a key of the architecture that is unknown here is refused
// by its name, unless it says no.
func configFromGGUF(metadata *gguf.Metadata, found seen) (LlamaConfig, error) {
	value, _ := metadata.Get(gguf.ArchitectureKey)
	architecture, _ := value.Text()
	given := &reading{values: ofMetadata(metadata, architecture+".")}
	count, _ := given.get("expert_count")
	family := familyOfArchitecture(architecture, count != nil && count != any(int64(0)), found.shared)
	if family == nil {
		var names []string
		for _, family := range Families {
			for _, name := range family.Architectures {
				if name = "'" + name + "'"; !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return LlamaConfig{}, fmt.Errorf("%s is %s; this program runs %s", gguf.ArchitectureKey, value, strings.Join(names, ", "))
	}
	if err := checkKeys(metadata, given, architecture+".", family); err != nil {
		return LlamaConfig{}, err
	}
	heads, hidden := given.wholeOf("attention.head_count", required), given.wholeOf("embedding_length", required)
	headDim := given.wholeOf("attention.key_length", hidden/max(heads, 1))
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	part := given.wholeOf("rope.dimension_count", headDim)
	for _, size := range []struct {
		name  string
		value int
		right bool
	}{
		{"attention.value_length", given.wholeOf("attention.value_length", headDim), false},
		{"rope.dimension_count", part, family.PartialRotary && part < headDim},
	} {
		if given.err == nil && size.value != headDim && !size.right {
			return LlamaConfig{}, fmt.Errorf("%s.%s is %d; it must be the size of a head (%d)", architecture, size.name,
				size.value, headDim)
		}
	}
	context := given.wholeOf("context_length", required)
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	asked, shown := given.get("attention.sliding_window")
	if family.WindowPeriod > 0 {
		given.wholeOf("attention.sliding_window", required)
	}
	window, period, err := windowOfFiles(asked, shown, architecture+".attention.sliding_window", family, context)
	if given.keep(err); given.err != nil {
		return LlamaConfig{}, given.err
	}
	if period > 0 {
		period = given.wholeOf("attention.sliding_window_pattern", period)
	}
	longest := given.wholeOf("nncuda.extended_context", context)
	rope, err := ropeFromGGUF(given, architecture, found, part, headDim, context, longest > context, !family.BrokenTurns)
	if err != nil {
		return LlamaConfig{}, err
	}
	if family.Interleaved {
		rope.Layout = RopeInterleaved
	}
	vocabulary := required
	if tokens, _ := metadata.Get("tokenizer.ggml.tokens"); tokens.Type == "string[]" {
		vocabulary = tokens.Len()
	}
	activation := family.Activations[0]
	if family.Ternary {
		activation = bitnetArchitectures[architecture]
	}
	config := LlamaConfig{
		VocabSize: given.wholeOf("vocab_size", vocabulary), HiddenSize: hidden,
		NumLayers: given.wholeOf("block_count", required), NumHeads: heads,
		NumKVHeads: given.wholeOf("attention.head_count_kv", heads), HeadDim: headDim,
		FFNSize: given.wholeOf("feed_forward_length", required), Context: context, ExtendedContext: longest,
		NormEps: given.numberOf("attention.layer_norm_rms_epsilon", requiredNumber), Rope: rope, NormTopKProb: true,
		TieEmbeddings: found.tied, QKVBias: found.qkvBias, OBias: found.oBias, QKNorm: family.QKNorm,
		Activation: activation, SubNorms: family.Ternary, Ternary: family.Ternary,
		EmbeddingScale: 1, ResidualScale: 1, LogitsScaling: 1, Window: window, WindowPeriod: period, Family: family.Name,
	}
	if experts := family.Experts; experts != nil {
		ffn := config.FFNSize
		config.FFNSize = given.wholeOf("expert_feed_forward_length", ffn)
		config.NumExperts = given.wholeOf("expert_count", required)
		config.ExpertsPerToken = given.wholeOf("expert_used_count", required)
		// llama.cpp divides the weights of Qwen3's experts by their sum, though its folders say it with an option.
		config.NormTopKProb = given.flagOf("expert_weights_norm", experts.Norm.Usual || family.Name == "qwen3_moe")
		if experts.Shared != "" {
			config.SharedFFNSize = given.wholeOf("expert_shared_feed_forward_length", ffn)
			config.SharedGate = experts.SharedGate
		}
		config.Sinks, config.BiasedExperts = family.Sinks, experts.Biased
	}
	if family.Scaled {
		for _, scale := range scales {
			usual := 1.0
			if scale.key == "attention.scale" {
				usual = 0
			}
			*scale.of(&config) = given.numberOf(scale.key, usual)
		}
	}
	if gemma := family.Gemma; gemma != nil {
		scalar := float64(headDim)
		if config.NumLayers == gemma.Largest {
			scalar = float64(hidden) / float64(heads)
		}
		config.PostNorms = true
		if gemma.LocalBase > 0 {
			config.LocalRopeBase = given.numberOf("rope.freq_base_swa", gemma.LocalBase)
		}
		config.EmbeddingScale = math.Sqrt(float64(hidden))
		config.AttentionScale = given.numberOf("attention.scale", 1/math.Sqrt(scalar))
		for _, limit := range caps {
			*limit.of(&config) = given.numberOf(limit.name, limit.usual(gemma))
		}
	}
	given.keep(config.Validate())
	return config, given.err
}

// checkKeys refuses keys of the architecture that are unknown here.
func checkKeys(metadata *gguf.Metadata, given *reading, prefix string, family *Family) error {
	known := func(name string) bool {
		for _, scale := range scales {
			if family.Scaled && name == scale.key {
				return true
			}
		}
		for _, limit := range caps {
			if family.Gemma != nil && (name == limit.name || name == "attention.scale") {
				return true
			}
		}
		if name == "rope.freq_base_swa" && family.Gemma != nil && family.Gemma.LocalBase > 0 {
			return true
		}
		return ggufOptions[name] || family.WindowPeriod > 0 && name == "attention.sliding_window_pattern"
	}
	for _, key := range metadata.Keys() {
		name, ours := strings.CutPrefix(key, prefix)
		if !ours || known(name) {
			continue
		}
		value, shown := given.get(name)
		switch value {
		case nil, any(false), any(int64(0)), any(0.0):
			continue
		}
		return fmt.Errorf("%s is %s; this engine does not know that key of '%s'", key, shown, strings.TrimSuffix(prefix, "."))
	}
	if value, _ := given.get("rope.scaling.finetuned"); family.Scaled && value == any(false) {
		return fmt.Errorf("%srope.scaling.finetuned is False; this engine rotates queries and keys in all layers", prefix)
	}
	return nil
}

func ropeFromGGUF(
	given *reading, architecture string, found seen, part, headDim, context int, extended, whole bool,
) (Rope, error) {
	rope := Rope{
		Base: given.numberOf("rope.freq_base", 10000), Layout: RopeHalf, Scaling: ScalingNone, Factor: 1, Magnitude: 1,
	}
	if part != headDim {
		rope.Rotated = part
	}
	var kind any = "none"
	shown := "'none'"
	if linear, _ := given.get("rope.scale_linear"); linear != nil {
		kind = "linear"
	}
	if value, text := given.get("rope.scaling.type"); value != nil {
		kind, shown = value, text
	}
	factor := given.numberOf("rope.scaling.factor", given.numberOf("rope.scale_linear", 1))
	original := given.wholeOf("rope.scaling.original_context_length", context)
	if given.err != nil {
		return rope, given.err
	}
	if name, _ := kind.(string); !slices.Contains([]string{"none", "linear", "yarn", "longrope"}, name) {
		return rope, fmt.Errorf("%s.rope.scaling.type is %s; this engine has 'none', 'linear', 'yarn', 'longrope'", architecture, shown)
	}
	linear, isYaRN, long, ways := kind == any("linear") && factor != 1, kind == any("yarn"), found.short != nil || found.long != nil, 0
	for _, scaled := range []bool{linear, isYaRN, found.divisors != nil, long, extended} {
		if scaled {
			ways++
		}
	}
	switch {
	case ways > 1:
		return rope, fmt.Errorf("the rotary embedding is scaled in more than one way (linear, yarn, rope_freqs.weight, ntk)")
	case kind == any("longrope") && !long:
		return rope, fmt.Errorf("%s.rope.scaling.type is 'longrope'; the file lacks rope_factors_long.weight", architecture)
	case linear:
		rope.Scaling, rope.Factor = ScalingLinear, factor
	case isYaRN:
		return yarnFromGGUF(rope, given, part, original, factor, whole)
	case found.divisors != nil:
		rope.Scaling, rope.Divisors = ScalingLlama3, found.divisors
	case long:
		rope.Scaling, rope.Divisors, rope.LongDivisors, rope.OriginalContext = ScalingLongRoPE, found.short, found.long, original
		usual := longropeMagnitude(float64(context)/float64(original), float64(original))
		rope.Magnitude = given.numberOf("rope.scaling.attn_factor", usual)
	case extended:
		rope.Scaling, rope.Factor = ScalingNTK, given.numberOf("nncuda.ntk_alpha", 1)
	}
	return rope, given.err
}

// yarnFromGGUF is llama.cpp's YaRN: both ends of the stretched part are whole numbers, or in a family whose folders say
// otherwise not: files have no key for it.
func yarnFromGGUF(rope Rope, given *reading, part, original int, factor float64, whole bool) (Rope, error) {
	fast, slow := given.numberOf("rope.scaling.yarn_beta_fast", 32), given.numberOf("rope.scaling.yarn_beta_slow", 1)
	if given.err == nil && !(rope.Base > 1 && original > 1 && 1 <= factor && factor <= 1e6 && 1e-3 <= slow && slow <= fast && fast <= 1e6) {
		return rope, fmt.Errorf("rotary embedding of yarn with base %v, original_context_length %d, factor %v, yarn_beta_fast %v "+
			"and yarn_beta_slow %v: the first two must be above 1, the factor 1 to 1e6, the betas 0.001 to 1e6 and not below each "+
			"other", rope.Base, original, factor, fast, slow)
	}
	for _, option := range []struct {
		name  string
		right float64
	}{{"ext_factor", 1}, {"attn_factor", 1}, {"log_multiplier", 0}} {
		if found := given.numberOf("rope.scaling.yarn_"+option.name, option.right); given.err == nil && found != option.right {
			return rope, fmt.Errorf("rope.scaling.yarn_%s is not %v, as this engine has it", option.name, option.right)
		}
	}
	if given.err != nil {
		return rope, given.err
	}
	rope.Scaling, rope.Factor, rope.OriginalContext = ScalingYaRN, factor, original
	rope.Divisors = yarnDivisors(rope.Base, part, factor, fast, slow, float64(original), whole)
	rope.Magnitude = rounded(yarnMagnitude(factor, 1))
	return rope, nil
}

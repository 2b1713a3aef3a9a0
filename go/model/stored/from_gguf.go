package stored

import (
	"fmt"
	"maps"
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
	tied     bool      // there is no output.weight
	biased   bool      // attention has biases
	divisors []float32 // the values of rope_freqs.weight, or nil
}

// configFromGGUF reads the metadata of a GGUF file of the architecture llama (which Mixtral's have too) or of a BitNet. It
// is an error when it is of another model, lacks something, or asks for what this engine does not do.
func configFromGGUF(metadata *gguf.Metadata, found seen) (LlamaConfig, error) {
	value, _ := metadata.Get("general.architecture")
	architecture, _ := value.Text()
	activation, bitnet := bitnetArchitectures[architecture]
	if !bitnet && architecture != "llama" {
		names := strings.Join(slices.Sorted(maps.Keys(bitnetArchitectures)), "', '")
		return LlamaConfig{}, fmt.Errorf("general.architecture is %s; this program runs 'llama', '%s'", value, names)
	}
	if !bitnet {
		activation = SiLU
	}
	given := &reading{values: ofMetadata(metadata, architecture+".")}
	heads, hidden := given.wholeOf("attention.head_count", required), given.wholeOf("embedding_length", required)
	headDim := given.wholeOf("attention.key_length", hidden/max(heads, 1))
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	for _, name := range []string{"attention.value_length", "rope.dimension_count"} {
		if size := given.wholeOf(name, headDim); given.err == nil && size != headDim {
			return LlamaConfig{}, fmt.Errorf("%s.%s is %d; it must be the size of a head (%d)", architecture, name, size, headDim)
		}
	}
	context := given.wholeOf("context_length", required)
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	window, shown := given.get("attention.sliding_window")
	if err := checkWindow(window, shown, architecture+".attention.sliding_window", context); err != nil {
		return LlamaConfig{}, err
	}
	experts := given.wholeOf("expert_count", 0)
	longest := given.wholeOf("nncuda.extended_context", context)
	rope, err := ropeFromGGUF(given, architecture, found.divisors, longest > context)
	if err != nil {
		return LlamaConfig{}, err
	}
	if bitnet {
		rope.Layout = RopeHalf
	}
	vocabulary := required
	if tokens, _ := metadata.Get("tokenizer.ggml.tokens"); tokens.Type == "string[]" {
		vocabulary = tokens.Len()
	}
	used := required
	if experts == 0 {
		used = 0
	}
	config := LlamaConfig{
		VocabSize: given.wholeOf("vocab_size", vocabulary), HiddenSize: hidden,
		NumLayers: given.wholeOf("block_count", required), NumHeads: heads,
		NumKVHeads: given.wholeOf("attention.head_count_kv", heads), HeadDim: headDim,
		FFNSize: given.wholeOf("feed_forward_length", required), Context: context, ExtendedContext: longest,
		NormEps: given.numberOf("attention.layer_norm_rms_epsilon", requiredNumber), Rope: rope,
		NumExperts: experts, ExpertsPerToken: given.wholeOf("expert_used_count", used),
		NormTopKProb:  given.flagOf("expert_weights_norm", true),
		TieEmbeddings: found.tied, AttentionBias: found.biased,
		Activation: activation, SubNorms: bitnet, Ternary: bitnet,
	}
	given.keep(config.Validate())
	return config, given.err
}

func ropeFromGGUF(given *reading, architecture string, divisors []float32, extended bool) (Rope, error) {
	rope := Rope{
		Base: given.numberOf("rope.freq_base", 10000), Layout: RopeInterleaved, Scaling: ScalingNone, Factor: 1,
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
	if given.err != nil {
		return rope, given.err
	}
	if kind != any("none") && kind != any("linear") {
		return rope, fmt.Errorf("%s.rope.scaling.type is %s; this engine has 'none' and 'linear'", architecture, shown)
	}
	linear, ways := kind == any("linear") && factor != 1, 0
	for _, scaled := range []bool{linear, divisors != nil, extended} {
		if scaled {
			ways++
		}
	}
	switch {
	case ways > 1:
		return rope, fmt.Errorf("the rotary embedding is scaled in more than one way (linear, rope_freqs.weight, ntk)")
	case linear:
		rope.Scaling, rope.Factor = ScalingLinear, factor
	case divisors != nil:
		rope.Scaling, rope.Divisors = ScalingLlama3, divisors
	case extended:
		rope.Scaling, rope.Factor = ScalingNTK, given.numberOf("nncuda.ntk_alpha", 1)
	}
	return rope, given.err
}

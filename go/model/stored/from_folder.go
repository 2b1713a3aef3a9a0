package stored

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// ownOptions are the options of this library that stand under "nncuda" in a config.json.
var ownOptions = []string{"extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"}

// usual are transformers' own defaults of a kind of model.
type usual struct {
	ropeBase, normEps float64
	context, kvHeads  int // -1 for what must be there, 0 heads for as many as there are query heads
}

var usualOf = map[string]usual{
	"llama":   {1e4, 1e-6, 2048, 0},
	"mixtral": {1e6, 1e-5, required, 8},
	"bitnet":  {5e5, 1e-5, 2048, 5},
}

// ConfigFromFolder reads the content of a config.json of Hugging Face transformers, model_type llama, mixtral or bitnet.
// It is an error when it is of another model, lacks something, or asks for what this engine does not do.
func ConfigFromFolder(object *formats.Object) (LlamaConfig, error) {
	given := &reading{values: ofObject(object)}
	kind, _ := object.Get("model_type").(string)
	defaults, known := usualOf[kind]
	if !known {
		return LlamaConfig{}, fmt.Errorf("the model_type is %s; this program runs 'llama', 'mixtral' and 'bitnet'",
			formats.Shown(object.Get("model_type")))
	}
	if err := checkOthers(object); err != nil {
		return LlamaConfig{}, err
	}
	activation, err := activationOf(object, kind)
	if err != nil {
		return LlamaConfig{}, err
	}
	heads, hidden := given.wholeOf("num_attention_heads", required), given.wholeOf("hidden_size", required)
	headDim := given.wholeOf("head_dim", hidden/max(heads, 1))
	context := given.wholeOf("max_position_embeddings", defaults.context)
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	window, shown := given.get("sliding_window")
	if err := checkWindow(window, shown, "sliding_window", context); err != nil {
		return LlamaConfig{}, err
	}
	extra, err := ownValues(object)
	if err != nil {
		return LlamaConfig{}, err
	}
	rope, err := ropeFromFolder(object, headDim, defaults.ropeBase)
	if err != nil {
		return LlamaConfig{}, err
	}
	longest := extra.wholeOf("extended_context", context)
	if extra.err == nil && longest > context {
		if rope.Scaling != ScalingNone {
			return LlamaConfig{}, fmt.Errorf(
				"extended_context of a model whose rotary embedding is scaled already (%s)", rope.Scaling)
		}
		rope.Scaling, rope.Factor = ScalingNTK, extra.numberOf("ntk_alpha", 1)
	}
	kvHeads := defaults.kvHeads
	if kvHeads == 0 {
		kvHeads = heads
	}
	given.keep(extra.err)
	config := LlamaConfig{
		VocabSize: given.wholeOf("vocab_size", required), HiddenSize: hidden,
		NumLayers: given.wholeOf("num_hidden_layers", required), NumHeads: heads,
		NumKVHeads: given.wholeOf("num_key_value_heads", kvHeads), HeadDim: headDim,
		FFNSize: given.wholeOf("intermediate_size", required), Context: context, ExtendedContext: longest,
		NormEps: given.numberOf("rms_norm_eps", defaults.normEps), Rope: rope,
		NormTopKProb:  extra.flagOf("norm_topk_prob", true),
		TieEmbeddings: given.flagOf("tie_word_embeddings", false), AttentionBias: given.flagOf("attention_bias", false),
		Activation: activation, SubNorms: kind == "bitnet", Ternary: kind == "bitnet",
	}
	if kind == "mixtral" {
		config.NumExperts = given.wholeOf("num_local_experts", 8)
		config.ExpertsPerToken = given.wholeOf("num_experts_per_tok", 2)
	}
	given.keep(extra.err)
	given.keep(config.Validate())
	return config, given.err
}

// checkOthers refuses options that this engine has one value of.
func checkOthers(object *formats.Object) error {
	if value := object.Get("mlp_bias"); value != nil && value != any(false) {
		return fmt.Errorf("mlp_bias is %s; this engine has False", formats.Shown(value))
	}
	if value := object.Get("partial_rotary_factor"); !isOne(value) {
		return fmt.Errorf("partial_rotary_factor is %s; this engine has 1.0", formats.Shown(value))
	}
	return nil
}

// isOne says whether a value is 1, or there is none.
func isOne(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case int64:
		return value == 1
	case float64:
		return value == 1
	}
	return false
}

func activationOf(object *formats.Object, kind string) (string, error) {
	value := object.Get("hidden_act")
	if value == nil && kind == "bitnet" {
		return ReLU2, nil
	}
	if value == nil {
		return SiLU, nil
	}
	name, _ := value.(string)
	if name == SiLU || name == ReLU2 && kind == "bitnet" {
		return name, nil
	}
	has := "'silu'"
	if kind == "bitnet" {
		has = "'silu' and 'relu2'"
	}
	return "", fmt.Errorf("hidden_act is %s; this engine has %s for model_type '%s'", formats.Shown(value), has, kind)
}

// ownValues are the options under "nncuda".
func ownValues(object *formats.Object) (*reading, error) {
	own := formats.NewObject()
	if object.Has("nncuda") {
		var ok bool
		if own, ok = object.Get("nncuda").(*formats.Object); !ok || slices.ContainsFunc(own.Names(), func(name string) bool {
			return !slices.Contains(ownOptions, name)
		}) {
			return nil, fmt.Errorf("the options under 'nncuda' must be among %s", strings.Join(ownOptions, ", "))
		}
	}
	return &reading{values: ofObject(own)}, nil
}

// ropeFromFolder reads the rotary embedding: transformers 5 writes rope_parameters; earlier ones rope_theta and, for
// stretched models, rope_scaling.
func ropeFromFolder(object *formats.Object, headDim int, usualBase float64) (Rope, error) {
	rope := Rope{Layout: RopeHalf, Scaling: ScalingNone, Factor: 1}
	parameters := formats.NewObject()
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		switch value := object.Get(name).(type) {
		case nil:
		case *formats.Object:
			if value.Len() > 0 {
				parameters = value
			}
		default:
			if !isEmpty(value) {
				return rope, fmt.Errorf("rope_parameters is %s; it must be an object", formats.Shown(value))
			}
		}
	}
	given := &reading{values: ofObject(parameters)}
	var kind any = "default"
	for _, name := range []string{"type", "rope_type"} {
		if parameters.Has(name) {
			kind = parameters.Get(name)
		}
	}
	whole := &reading{values: ofObject(object)}
	rope.Base = given.numberOf("rope_theta", whole.numberOf("rope_theta", usualBase))
	whole.keep(given.err)
	if whole.err != nil {
		return rope, whole.err
	}
	if value := parameters.Get("partial_rotary_factor"); !isOne(value) {
		return rope, fmt.Errorf("partial_rotary_factor is %s; this engine rotates whole heads", formats.Shown(value))
	}
	switch kind {
	case "default":
	case "linear":
		rope.Scaling, rope.Factor = ScalingLinear, given.numberOf("factor", requiredNumber)
	case "llama3":
		return llama3(rope, given, headDim)
	default:
		return rope, fmt.Errorf("rotary embedding of type %s; this engine has 'default', 'linear' and 'llama3'",
			formats.Shown(kind))
	}
	return rope, given.err
}

// isEmpty says whether Python takes a JSON value for none: an empty list or text, 0 and false.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case []any:
		return len(value) == 0
	case string:
		return value == ""
	case bool:
		return !value
	case int64:
		return value == 0
	case float64:
		return value == 0
	}
	return false
}

func llama3(rope Rope, given *reading, headDim int) (Rope, error) {
	low, high := given.numberOf("low_freq_factor", requiredNumber), given.numberOf("high_freq_factor", requiredNumber)
	factor, original := given.numberOf("factor", requiredNumber), given.numberOf("original_max_position_embeddings", requiredNumber)
	if given.err != nil {
		return rope, given.err
	}
	if rope.Base < 1 || factor < 1 || !(0 < low && low < high) || original < 1 {
		return rope, fmt.Errorf("rotary embedding of llama3 with base %v, factor %v, low_freq_factor %v, high_freq_factor %v "+
			"and original_max_position_embeddings %v: they must be above 0, the base, the factor and the context at least 1, "+
			"low below high", rope.Base, factor, low, high, original)
	}
	if headDim > 256 { // the most that a head may have: see LlamaConfig; there is a divisor for every pair of it
		return rope, fmt.Errorf("head_dim is %d; it must be a multiple of 8, at most 256", headDim)
	}
	rope.Scaling, rope.Factor = ScalingLlama3, factor
	rope.Divisors = llama3Divisors(rope.Base, headDim, factor, low, high, original)
	return rope, nil
}

// llama3Divisors are what the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.
//
// Waves shorter than original/high stay, those longer than original/low are stretched by the factor, between them the
// frequency goes over linearly in original/wavelength. (Dubey et al. 2024, and its reference code;
// https://github.com/meta-llama/llama-models)
func llama3Divisors(base float64, headDim int, factor, low, high, original float64) []float32 {
	divisors := make([]float32, headDim/2)
	for pair := range divisors {
		power := math.Pow(base, float64(-2*pair)/float64(headDim))
		turns := float64(original*power) / float64(2*math.Pi)
		share := min(max((turns-low)/(high-low), 0), 1)
		// The conversions keep the compiler from fusing a product with a sum.
		divisors[pair] = float32(1 / (float64((1-share)/factor) + share))
	}
	return divisors
}

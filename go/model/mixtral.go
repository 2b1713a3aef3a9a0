package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/ternary"
)

// Our options and their names in the config.json of Mixtral in Hugging Face transformers. Those that Mixtral lacks
// stand under the key "nncuda", which transformers ignores: a model with norm_topk_prob false runs there as if it were
// true, and nothing else differs.
var (
	mixtralNames = []struct{ ours, theirs string }{
		{"vocab_size", "vocab_size"},
		{"hidden_size", "hidden_size"},
		{"num_layers", "num_hidden_layers"},
		{"num_heads", "num_attention_heads"},
		{"num_kv_heads", "num_key_value_heads"},
		{"head_dim", "head_dim"},
		{"num_experts", "num_local_experts"},
		{"experts_per_token", "num_experts_per_tok"},
		{"ffn_size", "intermediate_size"},
		{"context", "max_position_embeddings"},
		{"norm_eps", "rms_norm_eps"},
		{"aux_alpha", "router_aux_loss_coef"},
		{"init_std", "initializer_range"},
	}
	ownNames = []string{"extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"}
	// Not needed to run the model, or with one default everywhere: ours stands.
	defaultedNames = map[string]bool{"aux_alpha": true, "init_std": true, "norm_eps": true}
	// Those of llama3's scaling, as rope_scaling calls them.
	llama3Names = []struct{ ours, theirs string }{
		{"rope_factor", "factor"},
		{"rope_low", "low_freq_factor"},
		{"rope_high", "high_freq_factor"},
		{"rope_original", "original_max_position_embeddings"},
	}
	// Those that a dense model, which is a Llama, Qwen2, Qwen3 or BitNet there, has one value of.
	expertNames = slices.Concat(countsOfExperts, optionsOfRouter)
)

// denseKind is a kind of dense model: its model_type and class in transformers, the options that have one value here, and
// what transformers takes where config.json does not say; 0 key heads are as many as query heads.
type denseKind struct {
	name, class      string
	fixed            []fixedOption
	context, kvHeads int64
	headDim          int64 // 0 is hidden_size / num_attention_heads
	qkvBias, qkNorm  bool
	ternary          bool
	normEps          float64
	ropeBase         float64  // of a config.json that names none
	activations      []string // what hidden_act may be, first the usual one, where there are several
}

// fixedOption is an option of config.json that has one value here.
type fixedOption struct {
	name  string
	value any
}

var denseKinds = []denseKind{
	{name: "llama", class: "LlamaForCausalLM", context: 2048, normEps: 1e-6, ropeBase: 1e4,
		fixed: []fixedOption{{"attention_bias", false}, {"mlp_bias", false}}},
	{name: "qwen2", class: "Qwen2ForCausalLM", context: 32768, kvHeads: 32, normEps: 1e-6, ropeBase: 1e4,
		qkvBias: true, fixed: []fixedOption{{"use_sliding_window", false}}},
	{name: "qwen3", class: "Qwen3ForCausalLM", context: 32768, kvHeads: 32, headDim: 128, normEps: 1e-6, ropeBase: 1e4,
		qkNorm: true, fixed: []fixedOption{{"attention_bias", false}, {"use_sliding_window", false}}},
	{name: "bitnet", class: "BitNetForCausalLM", context: 2048, kvHeads: 5, normEps: 1e-5, ropeBase: 5e5,
		activations: []string{"relu2", "silu"}, ternary: true, fixed: []fixedOption{{"attention_bias", false}}},
	{name: mistralKind, class: "MistralForCausalLM", context: 131072, kvHeads: 8, normEps: 1e-6, ropeBase: 1e4},
}

// A Mistral within its window is a Llama, the first kind with the same parts, and written as one.
const (
	mistralKind   = "mistral"
	mistralWindow = 4096 // of a config.json that names none
)

// IsDenseKind says whether a model_type is that of a dense model whose folders are read here.
func IsDenseKind(name any) bool { return kindNamed(name) != nil }

// kindNamed gives the kind of dense model of a model_type; nil when there is none.
func kindNamed(name any) *denseKind {
	at := slices.IndexFunc(denseKinds, func(kind denseKind) bool { return sameScalar(name, kind.name) })
	if at < 0 {
		return nil
	}
	return &denseKinds[at]
}

// kind is that of a dense model.
func (c Config) kind() denseKind {
	at := slices.IndexFunc(denseKinds, func(kind denseKind) bool {
		return kind.qkvBias == c.QKVBias && kind.qkNorm == c.QKNorm && kind.ternary == c.Ternary
	})
	return denseKinds[at]
}

// Rotary base of a Mixtral's config.json that names none.
const mixtralRopeBase = 1e6

// namesOf lists the options that a config.json has by names of its own, and those that it has under "nncuda".
func namesOf(dense bool) (theirs []struct{ ours, theirs string }, own []string) {
	if !dense {
		return mixtralNames, ownNames
	}
	theirs = slices.DeleteFunc(slices.Clone(mixtralNames), func(name struct{ ours, theirs string }) bool {
		return slices.Contains(expertNames, name.ours)
	})
	own = slices.DeleteFunc(slices.Clone(ownNames), func(name string) bool { return slices.Contains(expertNames, name) })
	return theirs, own
}

// Mixtral gives the content of config.json: of a Mixtral, or, of a dense model, of a Qwen2, Qwen3, BitNet or Llama.
func (c Config) Mixtral() *formats.Object {
	class, kind := "MixtralForCausalLM", "mixtral"
	ofKind := formats.NewObject("attention_dropout", 0.0, "router_jitter_noise", 0.0, "output_router_logits", false,
		"sliding_window", nil)
	dense := c.NumExperts == 0
	if dense {
		own := c.kind()
		class, kind = own.class, own.name
		ofKind = formats.NewObject()
		for _, option := range own.fixed {
			ofKind.Set(option.name, option.value)
		}
		if own.ternary { // with which transformers rounds master weights while it runs
			ofKind.Set("quantization_config", formats.NewObject("quant_method", "bitnet", "linear_class", "autobitlinear",
				"quantization_mode", "online"))
		}
		ofKind.Set("attention_dropout", 0.0)
	}
	values, extra := c.Object(), formats.NewObject()
	object := formats.NewObject("architectures", []any{class}, "model_type", kind)
	theirs, own := namesOf(dense)
	for _, name := range theirs {
		object.Set(name.theirs, values.Get(name.ours))
	}
	object.Update(c.ropeOfFolder())
	activation := "silu"
	if c.SquaredReLU {
		activation = "relu2"
	}
	object.Set("hidden_act", activation)
	object.Update(ofKind)
	object.Update(formats.NewObject("tie_word_embeddings", c.TieEmbeddings, "torch_dtype", "float32", "pad_token_id", 0,
		"bos_token_id", 2, "eos_token_id", 3))
	for _, name := range own {
		extra.Set(name, values.Get(name))
	}
	object.Set("nncuda", extra)
	return object
}

// ConfigFromMixtral reads the content of a config.json of a Mixtral, Llama, Qwen2, Qwen3, BitNet or Mistral, of this program
// or another. The context of a Mistral is no longer than its window. It is an error when it is of another model, lacks something, or asks for what this model does not do.
func ConfigFromMixtral(values *formats.Object) (Config, error) {
	config := Default()
	kind := kindNamed(values.Get("model_type"))
	dense := kind != nil
	needed := []fixedOption{{"hidden_act", "silu"}}
	switch {
	case dense && kind.ternary:
		needed = kind.fixed
		if err := checkMasters(values); err != nil {
			return config, err
		}
	case dense:
		needed = append(needed, kind.fixed...)
	case sameScalar(values.Get("model_type"), "mixtral"):
		needed = append(needed, fixedOption{"tie_word_embeddings", false})
	default:
		names := "'mixtral'"
		for _, kind := range denseKinds {
			names += ", '" + kind.name + "'"
		}
		return config, fmt.Errorf("the model_type is %s; this program trains %s", formats.Shown(values.Get("model_type")), names)
	}
	for _, needed := range needed {
		if values.Has(needed.name) && !sameScalar(values.Get(needed.name), needed.value) {
			found := formats.Shown(values.Get(needed.name))
			return config, fmt.Errorf("%s is %s; this model has %s", needed.name, found, formats.Shown(needed.value))
		}
	}
	options, base := formats.NewObject(), mixtralRopeBase
	if dense {
		var err error
		if options, err = kind.usual(values); err != nil {
			return config, err
		}
		base = kind.ropeBase
	}
	theirs, _ := namesOf(dense)
	for _, name := range theirs {
		switch value := values.Get(name.theirs); {
		case value != nil:
			options.Set(name.ours, value)
		case name.ours == "head_dim" && !options.Has(name.ours):
			dim, err := headDim(values)
			if err != nil {
				return config, err
			}
			options.Set(name.ours, dim)
		case name.ours == "num_kv_heads" && dense && !options.Has(name.ours):
			options.Set(name.ours, options.Get("num_heads"))
		case !defaultedNames[name.ours] && !options.Has(name.ours):
			return config, fmt.Errorf("%s is missing", name.theirs)
		}
	}
	if !dense && options.Get("num_experts") == any(int64(0)) {
		return config, errors.New("num_local_experts is 0; a model of type 'mixtral' has experts")
	}
	rope, err := ropeFromFolder(values, base)
	if err != nil {
		return config, err
	}
	options.Update(rope)
	if window := WindowFromMixtral(values); window > 0 {
		options.Set("context", int64(window))
	}
	options.Set("extended_context", options.Get("context"))
	options.Set("ntk_alpha", 1.0)
	own, err := ownOptions(values, dense)
	if err != nil {
		return config, err
	}
	if own.Has("extended_context") && !own.Has("ntk_alpha") {
		options.Set("ntk_alpha", Default().NTKAlpha)
	}
	options.Update(own)
	if err := config.Assign(options); err != nil {
		return config, err
	}
	if err := config.Validate(); err != nil {
		return config, err
	}
	if dense && slices.Contains(kind.fixed, fixedOption{"use_sliding_window", false}) {
		return config, nil // its sliding_window means nothing
	}
	if dense && kind.name == mistralKind {
		if values.Get("sliding_window") == nil {
			return config, nil
		}
		_, err := whole(values, "sliding_window")
		return config, err
	}
	return config, checkWindow(values.Get("sliding_window"), config.Context)
}

// usual gives options of a dense model: those that its kind decides, and what transformers takes for others where config.json
// does not say.
func (k denseKind) usual(values *formats.Object) (*formats.Object, error) {
	if kinds := values.Get("layer_types"); kinds != nil {
		list, isList := kinds.([]any)
		if !isList || slices.ContainsFunc(list, func(one any) bool { return !sameScalar(one, "full_attention") }) {
			return nil, fmt.Errorf("layer_types is %s; this model has 'full_attention' in all layers", formats.Shown(kinds))
		}
	}
	options := formats.NewObject("num_experts", int64(0), "experts_per_token", int64(0), "norm_eps", k.normEps, "context", k.context)
	if k.kvHeads > 0 {
		options.Set("num_kv_heads", k.kvHeads)
	}
	if k.headDim > 0 {
		options.Set("head_dim", k.headDim)
	}
	options.Set("qkv_bias", k.qkvBias)
	options.Set("qk_norm", k.qkNorm)
	if tied := values.Get("tie_word_embeddings"); tied != nil {
		options.Set("tie_embeddings", tied)
	}
	if k.ternary {
		gate := any(k.activations[0])
		if values.Has("hidden_act") {
			gate = values.Get("hidden_act")
		}
		named := func(one string) bool { return sameScalar(gate, one) }
		if !slices.ContainsFunc(k.activations, named) {
			return nil, fmt.Errorf("hidden_act is %s; this model has '%s'", formats.Shown(gate), strings.Join(k.activations, "' or '"))
		}
		options.Set("ternary", true)
		options.Set("squared_relu", named("relu2"))
	}
	return options, nil
}

// checkMasters refuses a BitNet whose weights are rounded already. Whatever numbers would be rounded to them again, what they
// were rounded from is lost, and with it how near each is to its neighbour.
func checkMasters(values *formats.Object) error {
	quantization, err := ternary.QuantizationFromFolder(values)
	if err == nil && !quantization.Online {
		err = errors.New("quantization_config says that the weights are ternary already; training needs the master weights that " +
			"they were rounded from: take the folder with these, in bf16 or f32")
	}
	return err
}

// sameScalar compares without the panic that == has for values that cannot be compared.
func sameScalar(value, wanted any) bool {
	switch value.(type) {
	case string, bool:
		return value == wanted
	}
	return false
}

func headDim(values *formats.Object) (int64, error) {
	hidden, err := whole(values, "hidden_size")
	if err != nil {
		return 0, err
	}
	heads, err := whole(values, "num_attention_heads")
	if err != nil {
		return 0, err
	}
	return hidden / heads, nil
}

func whole(values *formats.Object, name string) (int64, error) {
	value, ok := values.Get(name).(int64)
	if !ok || value < 1 {
		found := formats.Shown(values.Get(name))
		return 0, fmt.Errorf("%s is %s; it must be a whole number, at least 1", name, found)
	}
	return value, nil
}

// ropeOfFolder gives the entries of config.json for the rotary embedding.
func (c Config) ropeOfFolder() *formats.Object {
	usual := Default().Object()
	values, found := c.Object(), formats.NewObject("rope_theta", c.RopeBase)
	scaling, scaled := formats.NewObject("rope_type", "llama3"), false
	for _, name := range llama3Names {
		scaling.Set(name.theirs, values.Get(name.ours))
		scaled = scaled || values.Get(name.ours) != usual.Get(name.ours)
	}
	if scaled {
		found.Set("rope_scaling", scaling)
	}
	return found
}

// ropeFromFolder reads the options of the rotary embedding.
func ropeFromFolder(values *formats.Object, usual float64) (*formats.Object, error) {
	rope, err := RopeOptions(values)
	if err != nil {
		return nil, err
	}
	llama3 := false
	for _, name := range []string{"rope_type", "type"} {
		if rope.Has(name) {
			kind := rope.Get(name)
			if llama3 = sameScalar(kind, "llama3"); !llama3 && !sameScalar(kind, "default") {
				shown := formats.Shown(kind)
				return nil, fmt.Errorf("rotary embedding of type %s; this model has 'default' and 'llama3'", shown)
			}
			break
		}
	}
	var base any = usual
	for _, place := range []*formats.Object{values, rope} {
		if place.Has("rope_theta") {
			base = place.Get("rope_theta")
		}
	}
	number, err := Bounds.Number("rope_base", "rope_theta", base)
	if err != nil {
		return nil, err
	}
	found := formats.NewObject("rope_base", number)
	for _, name := range llama3Names {
		switch value := rope.Get(name.theirs); {
		case !llama3:
		case value == nil:
			return nil, fmt.Errorf("%s of the rotary embedding is missing", name.theirs)
		default:
			found.Set(name.ours, value)
		}
	}
	return found, nil
}

func ownOptions(values *formats.Object, dense bool) (*formats.Object, error) {
	_, known := namesOf(dense)
	wrong := fmt.Errorf("the options under 'nncuda' must be among %s", strings.Join(known, ", "))
	if !values.Has("nncuda") {
		return formats.NewObject(), nil
	}
	own, ok := values.Get("nncuda").(*formats.Object)
	if !ok {
		return nil, wrong
	}
	for _, name := range own.Names() {
		if !slices.Contains(known, name) {
			return nil, wrong
		}
	}
	return own, nil
}

// WindowFromMixtral gives the most tokens that one sees of those before it and itself, by the content of a config.json, where
// that is fewer than the context; 0 where a token sees all.
func WindowFromMixtral(values *formats.Object) int {
	if !sameScalar(values.Get("model_type"), mistralKind) {
		return 0
	}
	context := kindNamed(mistralKind).context
	if given, ok := values.Get("max_position_embeddings").(int64); ok {
		context = given
	}
	window, ok := values.Get("sliding_window").(int64)
	if !values.Has("sliding_window") {
		window, ok = mistralWindow, true
	}
	if !ok || window < 1 || window >= context {
		return 0
	}
	return int(window)
}

// checkWindow refuses a model that attends to less than its context.
func checkWindow(window any, context int) error {
	var size float64
	switch window := window.(type) {
	case nil:
		return nil
	case int64:
		size = float64(window)
	case float64:
		size = window
	default:
		return fmt.Errorf("sliding_window is %s; it must be a number or null", formats.Shown(window))
	}
	if !(size >= float64(context)) {
		found := formats.Shown(window)
		return fmt.Errorf("sliding_window is %s; this model attends to all of its context (%d)", found, context)
	}
	return nil
}

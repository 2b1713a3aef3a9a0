package stored

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
)

// ownOptions are the options of this library that stand under "nncuda" in a config.json.
var ownOptions = []string{"extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"}

// scalingOptions are the options of each kind of rotary embedding; all have those of ropeOptions.
var (
	scalingOptions = map[string]map[string]bool{
		"default":  words(""),
		"linear":   words("factor"),
		"dynamic":  words("factor"),
		"llama3":   words("factor low_freq_factor high_freq_factor"),
		"yarn":     words("factor beta_fast beta_slow attention_factor mscale mscale_all_dim truncate"),
		"longrope": words("factor short_factor long_factor attention_factor"),
	}
	ropeOptions = words("rope_type type rope_theta partial_rotary_factor original_max_position_embeddings")
)

// ConfigFromFolder reads the content of a config.json of Hugging Face transformers, of a model_type among Families. It is an
// error when it is of another model, lacks something, or asks for what this engine does not do. An option that is neither
// read here nor known to change nothing is refused by its name, unless it says no: so a model runs as transformers runs it,
// or not at all.
func ConfigFromFolder(object *formats.Object) (LlamaConfig, error) {
	given := &reading{values: ofObject(object)}
	kind, _ := object.Get("model_type").(string)
	family := familyNamed(kind)
	if family == nil {
		names := make([]string, len(Families))
		for at, family := range Families {
			names[at] = "'" + family.Name + "'"
		}
		return LlamaConfig{}, fmt.Errorf("the model_type is %s; this program runs %s",
			formats.Shown(object.Get("model_type")), strings.Join(names, ", "))
	}
	if err := checkOptions(object, family); err != nil {
		return LlamaConfig{}, err
	}
	activation, err := activationOf(object, family)
	if err != nil {
		return LlamaConfig{}, err
	}
	heads, hidden := given.wholeOf("num_attention_heads", required), given.wholeOf("hidden_size", required)
	headDim := given.wholeOf("head_dim", cmp.Or(family.HeadDim, hidden/max(heads, 1)))
	context := given.wholeOf("max_position_embeddings", cmp.Or(family.Context, required))
	if given.err != nil {
		return LlamaConfig{}, given.err
	}
	layers := given.wholeOf("num_hidden_layers", required)
	window, period, err := windows(object, given, family, context, layers)
	if err != nil {
		return LlamaConfig{}, err
	}
	extra, err := ownValues(object)
	if err != nil {
		return LlamaConfig{}, err
	}
	ropeOf, localBase, err := localRope(object, family)
	if err != nil {
		return LlamaConfig{}, err
	}
	rope, err := ropeFromFolder(ropeOf, family, headDim, context)
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
	given.keep(extra.err)
	config := LlamaConfig{
		VocabSize: given.wholeOf("vocab_size", required), HiddenSize: hidden,
		NumLayers: layers, NumHeads: heads,
		NumKVHeads: given.wholeOf("num_key_value_heads", cmp.Or(family.KVHeads, heads)), HeadDim: headDim,
		FFNSize: given.wholeOf("intermediate_size", required), Context: context, ExtendedContext: longest,
		NormEps: given.numberOf("rms_norm_eps", family.NormEps), Rope: rope, NormTopKProb: true,
		TieEmbeddings: given.flagOf("tie_word_embeddings", family.Tied),
		QKVBias:       given.switchOf(family.QKVBias), OBias: given.switchOf(family.OBias), QKNorm: family.QKNorm,
		Activation: activation, SubNorms: family.Ternary, Ternary: family.Ternary,
		EmbeddingScale: 1, ResidualScale: 1, LogitsScaling: 1, Window: window, WindowPeriod: period, LocalRopeBase: localBase,
		Family: family.Name,
	}
	if experts := family.Experts; experts != nil {
		config.FFNSize = given.wholeOf(experts.FFN, required)
		config.NumExperts = given.numberOfExperts(object, experts)
		config.ExpertsPerToken = given.wholeOf("num_experts_per_tok", experts.UsualChosen)
		config.NormTopKProb = extra.flagOf("norm_topk_prob", given.switchOf(experts.Norm))
		if experts.Shared != "" {
			config.SharedFFNSize = given.wholeOf(experts.Shared, experts.UsualShared)
			config.SharedGate = experts.SharedGate
		}
		config.Sinks, config.BiasedExperts = family.Sinks, experts.Biased
		if experts.Biased {
			given.keep(checkGPTOSS(object, config.ExpertsPerToken))
		}
	}
	if family.Scaled {
		for _, scale := range scales {
			*scale.of(&config) = given.numberOf(scale.option, 1)
		}
		if given.err == nil && config.AttentionScale == 0 {
			given.keep(errors.New("attention_multiplier is 0; it must be another number"))
		}
	}
	if family.Gemma != nil {
		given.gemma(object, family.Gemma, &config)
	}
	given.keep(extra.err)
	given.keep(config.Validate())
	return config, given.err
}

func (r *reading) numberOfExperts(object *formats.Object, experts *Experts) int {
	if experts.Also == "" || object.Get(experts.Also) == nil {
		return r.wholeOf(experts.Count, experts.Usual)
	}
	found := r.wholeOf(experts.Also, required)
	r.keep(checkAgain(object, experts.Count, experts.Also, found))
	return found
}

// checkAgain refuses an option that says otherwise what another one has said.
func checkAgain(object *formats.Object, name, option string, found int) error {
	value := object.Get(name)
	if value == nil || value == any(int64(found)) || value == any(float64(found)) {
		return nil
	}
	return fmt.Errorf("%s is %s; %s makes it %d", name, formats.Shown(value), option, found)
}

// checkGPTOSS refuses what gpt-oss' files say a second time and otherwise, and a form of experts that is not read.
func checkGPTOSS(object *formats.Object, chosen int) error {
	if err := checkAgain(object, "experts_per_token", "num_experts_per_tok", chosen); err != nil {
		return err
	}
	found := object.Get("quantization_config")
	if formats.IsEmpty(found) { // the tensors say which form they have
		return nil
	}
	quantized, ok := found.(*formats.Object)
	if !ok || quantized.Get("quant_method") != any("mxfp4") {
		return fmt.Errorf("quantization_config is %s; this engine has the quant_method 'mxfp4'", formats.Shown(found))
	}
	for _, name := range quantized.Names() {
		if name != "quant_method" && name != "modules_to_not_convert" {
			return fmt.Errorf("quantization_config has the option %s, which is unknown here", formats.Shown(name))
		}
	}
	return nil
}

// gemma reads what Gemma's families have.
func (r *reading) gemma(object *formats.Object, of *Gemma, config *LlamaConfig) {
	above := func(name string, usual float64) float64 {
		value := r.numberOf(name, usual)
		if r.err == nil && value <= 0 {
			r.keep(fmt.Errorf("%s is %v; it must be above 0", name, value))
		}
		return value
	}
	config.PostNorms, config.NormsLessOne = true, true
	config.EmbeddingScale = math.Sqrt(float64(config.HiddenSize))
	config.AttentionScale = 1 / math.Sqrt(above("query_pre_attn_scalar", of.QueryScalar))
	for _, limit := range caps { // null is none
		if usual := limit.usual(of); object.Get(limit.name) != nil || !object.Has(limit.name) && usual > 0 {
			*limit.of(config) = above(limit.name, usual)
		}
	}
}

func (r *reading) switchOf(part Switch) bool {
	if part.Key == "" {
		return part.Usual
	}
	return r.flagOf(part.Key, part.Usual)
}

// checkOptions refuses options that this engine has one value of, and those that it does not know.
func checkOptions(object *formats.Object, family *Family) error {
	for _, option := range family.fixed {
		value := object.Get(option.name)
		if value == nil {
			continue
		}
		_, wantsEmpty := option.value.([]any)
		list, isList := value.([]any)
		if whole, ok := value.(int64); ok && option.value == any(float64(whole)) {
			continue
		}
		if wantsEmpty && isList && len(list) == 0 || !wantsEmpty && !isList && value == option.value {
			continue
		}
		return fmt.Errorf("%s is %s; this engine has %s", option.name, formats.Shown(value), formats.Shown(option.value))
	}
	known := family.Options()
	for _, name := range object.Names() {
		if value := object.Get(name); !known[name] && !neutralOptions[name] && !strings.HasPrefix(name, "_") && !formats.SaysNo(value) {
			return fmt.Errorf("%s is %s; this engine does not know that option of model_type '%s'", formats.Shown(name),
				formats.Shown(value), family.Name)
		}
	}
	return nil
}

func activationOf(object *formats.Object, family *Family) (string, error) {
	found := family.Activations[0]
	for _, key := range []string{"hidden_act", cmp.Or(family.ActivationKey, "hidden_act")} {
		value := object.Get(key)
		if value == nil {
			continue
		}
		name, _ := value.(string)
		if !slices.Contains(family.Activations, name) {
			names := slices.Sorted(slices.Values(family.Activations))
			slices.Reverse(names)
			has := "'" + strings.Join(names, "' and '") + "'"
			return "", fmt.Errorf("%s is %s; this engine has %s for model_type '%s'", key, formats.Shown(value), has, family.Name)
		}
		found = name
	}
	return found, nil
}

// windows gives Window and WindowPeriod of LlamaConfig.
func windows(object *formats.Object, given *reading, family *Family, context, layers int) (window, period int, err error) {
	asked, shown := given.get("sliding_window")
	if family.Window > 0 && !object.Has("sliding_window") {
		asked, shown = int64(family.Window), fmt.Sprint(family.Window)
	}
	if family.WindowFlag != "" && !given.flagOf(family.WindowFlag, false) {
		asked = nil
	}
	if given.err != nil {
		return 0, 0, given.err
	}
	window, period, err = windowOfFiles(asked, shown, "sliding_window", family, context)
	if err == nil && family.Gemma != nil && family.Gemma.LocalBase > 0 {
		period, err = given.whole("sliding_window_pattern", period)
	}
	value := object.Get("layer_types")
	kinds, isList := value.([]any)
	if err != nil || value == nil {
		return window, period, err
	}
	const full, sliding = "full_attention", "sliding_attention"
	if period == 0 {
		if !isList || slices.ContainsFunc(kinds, func(kind any) bool { return kind != any(full) }) {
			return 0, 0, fmt.Errorf("layer_types is %s; this engine has 'full_attention' in all layers", formats.Shown(value))
		}
		return window, period, nil
	}
	first := slices.IndexFunc(kinds, func(kind any) bool { return kind == any(full) })
	if first < 0 {
		first = layers
	}
	for _, number := range []int{period, first + 1} {
		right := len(kinds) == layers
		for at, kind := range kinds {
			right = right && ((at+1)%number == 0 && kind == any(full) || (at+1)%number != 0 && kind == any(sliding))
		}
		if right {
			return window, number, nil
		}
	}
	return 0, 0, fmt.Errorf("layer_types is %s; this engine has 'sliding_attention' in all of %d layers, or 'full_attention' in "+
		"each so-manyth", formats.Shown(value), layers)
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

// localRope gives the options of the rotary embedding in layers without a window, and the base in those with one; 0 where they
// have the same. Of the latter, transformers 5 writes an entry for each kind of layer into rope_parameters; earlier ones wrote
// rope_local_base_freq.
func localRope(object *formats.Object, family *Family) (*formats.Object, float64, error) {
	if family.Gemma == nil || family.Gemma.LocalBase == 0 {
		return object, 0, nil
	}
	base, err := ofObject(object).number("rope_local_base_freq", family.Gemma.LocalBase)
	found := object.Get("rope_parameters")
	if err != nil || formats.IsEmpty(found) {
		return object, base, err
	}
	const full, sliding = "full_attention", "sliding_attention"
	whole, isObject := found.(*formats.Object)
	parts := [2]*formats.Object{formats.NewObject(), formats.NewObject()}
	for at, kind := range []string{full, sliding} {
		if isObject && !formats.IsEmpty(whole.Get(kind)) {
			parts[at], isObject = whole.Get(kind).(*formats.Object)
		}
	}
	if !isObject || slices.ContainsFunc(whole.Names(), func(name string) bool { return name != full && name != sliding }) {
		return nil, 0, fmt.Errorf("rope_parameters is %s; it must be an object with '%s' and '%s'", formats.Shown(found), full,
			sliding)
	}
	for _, name := range parts[1].Names() {
		value := parts[1].Get(name)
		plain := name == "rope_theta" || (name == "rope_type" || name == "type") && value == any("default")
		if !plain && value != nil {
			return nil, 0, fmt.Errorf("%s of '%s' is %s; this engine has plain angles there", name, sliding, formats.Shown(value))
		}
	}
	both, changed := formats.NewObject(), formats.NewObject()
	scaled, err := model.RopeOptions(formats.NewObject("rope_scaling", object.Get("rope_scaling")))
	if err != nil {
		return nil, 0, err
	}
	both.Update(parts[0])
	both.Update(scaled)
	changed.Update(object)
	changed.Set("rope_parameters", both)
	changed.Set("rope_scaling", nil)
	base, err = ofObject(parts[1]).number("rope_theta", base)
	return changed, base, err
}

// ropeFromFolder reads the rotary embedding.
func ropeFromFolder(object *formats.Object, family *Family, headDim, context int) (Rope, error) {
	rope := Rope{Layout: RopeHalf, Scaling: ScalingNone, Factor: 1, Magnitude: 1}
	parameters, err := model.RopeOptions(object)
	if err != nil {
		return rope, err
	}
	if parameters.Len() == 0 {
		parameters = formats.NewObject(family.Rope...)
	}
	given, whole := &reading{values: ofObject(parameters)}, &reading{values: ofObject(object)}
	var found any = "default"
	for _, name := range []string{"type", "rope_type"} {
		if parameters.Has(name) {
			found = parameters.Get(name)
		}
	}
	if family.OriginalContext > 0 && (found == any("su") || found == any("yarn")) { // Phi-3's first releases called it so
		found = "longrope"
	}
	rope.Base = given.numberOf("rope_theta", whole.numberOf("rope_theta", family.RopeBase))
	whole.keep(given.err)
	if whole.err != nil {
		return rope, whole.err
	}
	kind, _ := found.(string)
	known := scalingOptions[kind]
	if known == nil {
		return rope, fmt.Errorf("rotary embedding of type %s; this engine has '%s'", formats.Shown(found),
			strings.Join(slices.Sorted(maps.Keys(scalingOptions)), "', '"))
	}
	for _, name := range parameters.Names() {
		if !ropeOptions[name] && !known[name] && parameters.Get(name) != nil {
			return rope, fmt.Errorf("the rotary embedding of type '%s' has the option %s, which is unknown here", kind,
				formats.Shown(name))
		}
	}
	if headDim > 256 { // the most that a head may have: see LlamaConfig; there is a divisor for every pair of it
		return rope, fmt.Errorf("head_dim is %d; it must be a multiple of 8, at most 256", headDim)
	}
	part, err := rotatedPart(object, parameters, family, headDim)
	if err != nil {
		return rope, err
	}
	if part != headDim {
		rope.Rotated = part
	}
	original := given.numberOf("original_max_position_embeddings", float64(context))
	if family.OriginalContext > 0 {
		original = whole.numberOf("original_max_position_embeddings", float64(family.OriginalContext))
	}
	switch kind {
	case "default":
		return rope, nil
	case "linear", "dynamic":
		rope.Scaling, rope.Factor = kind, given.numberOf("factor", requiredNumber)
		return rope, given.err
	}
	if given.keep(whole.err); given.err != nil {
		return rope, given.err
	}
	if kind == "llama3" {
		return llama3(rope, given, headDim, original)
	}
	if rope.Base <= 1 || original <= 1 || original > 1e9 {
		return rope, fmt.Errorf("rotary embedding of %s with base %v and original_max_position_embeddings %v: they must be above "+
			"1, the latter at most 1e9", kind, rope.Base, original)
	}
	if kind == "yarn" {
		return yarn(rope, given, part, original)
	}
	rope.Scaling, rope.OriginalContext = ScalingLongRoPE, int(original)
	rope.Factor = given.numberOf("factor", float64(context)/original)
	rope.Magnitude = given.numberOf("attention_factor", longropeMagnitude(rope.Factor, original))
	rope.Divisors, rope.LongDivisors = given.numbersOf("short_factor", 128), given.numbersOf("long_factor", 128)
	return rope, given.err
}

// rotatedPart is how many elements of a head are rotated.
func rotatedPart(object, parameters *formats.Object, family *Family, headDim int) (int, error) {
	of := parameters
	if of.Get("partial_rotary_factor") == nil {
		of = object
	}
	value := of.Get("partial_rotary_factor")
	if isOne(value) {
		return headDim, nil
	}
	if !family.PartialRotary {
		return 0, fmt.Errorf("partial_rotary_factor is %s; this engine rotates whole heads", formats.Shown(value))
	}
	share, err := ofObject(of).number("partial_rotary_factor", requiredNumber)
	if err != nil {
		return 0, err
	}
	part := 0
	if 0 < share && share < 1 {
		part = int(float64(headDim) * share)
	}
	if part < 2 || part%2 != 0 {
		return 0, fmt.Errorf("partial_rotary_factor is %s; of %d elements it must leave an even number", formats.Shown(value),
			headDim)
	}
	return part, nil
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

func llama3(rope Rope, given *reading, headDim int, original float64) (Rope, error) {
	low, high := given.numberOf("low_freq_factor", requiredNumber), given.numberOf("high_freq_factor", requiredNumber)
	factor := given.numberOf("factor", requiredNumber)
	if given.err != nil {
		return rope, given.err
	}
	if rope.Base < 1 || factor < 1 || !(0 < low && low < high) || original < 1 {
		return rope, fmt.Errorf("rotary embedding of llama3 with base %v, factor %v, low_freq_factor %v, high_freq_factor %v "+
			"and original_max_position_embeddings %v: they must be above 0, the base, the factor and the context at least 1, "+
			"low below high", rope.Base, factor, low, high, original)
	}
	rope.Scaling, rope.Factor = ScalingLlama3, factor
	rope.Divisors = model.Llama3Divisors(rope.Base, headDim, factor, low, high, original)
	return rope, nil
}

func yarn(rope Rope, given *reading, part int, original float64) (Rope, error) {
	factor := given.numberOf("factor", requiredNumber)
	fast, slow := cmp.Or(given.numberOf("beta_fast", 32), 32), cmp.Or(given.numberOf("beta_slow", 1), 1)
	weight, allDims := given.numberOf("mscale", 0), given.numberOf("mscale_all_dim", 0)
	truncate := given.flagOf("truncate", true)
	if given.err != nil {
		return rope, given.err
	}
	within := func(value, least, most float64) bool { return least <= value && value <= most }
	if !(within(factor, 1, 1e6) && within(slow, 1e-3, fast) && fast <= 1e6 && within(weight, 0, 100) && within(allDims, 0, 100)) {
		return rope, fmt.Errorf("rotary embedding of yarn with factor %v, beta_fast %v, beta_slow %v, mscale %v and "+
			"mscale_all_dim %v: the factor must be 1 to 1e6, the betas 0.001 to 1e6 and not below each other, the mscales 0 to "+
			"100", factor, fast, slow, weight, allDims)
	}
	usual := rounded(yarnMagnitude(factor, 1))
	if weight != 0 && allDims != 0 {
		usual = rounded(yarnMagnitude(factor, weight) / yarnMagnitude(factor, allDims))
	}
	rope.Scaling, rope.Factor, rope.OriginalContext = ScalingYaRN, factor, int(original)
	rope.Divisors = yarnDivisors(rope.Base, part, factor, fast, slow, original, truncate)
	rope.Magnitude = given.numberOf("attention_factor", usual)
	return rope, given.err
}

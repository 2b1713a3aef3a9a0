package ternary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// tables are the tensors of a BitNet that may be in blocks.
var tables = []string{"model.embed_tokens.weight", "lm_head.weight"}

// OurMethod is the quant_method in the config.json of a folder whose matrices are in tern2.
const OurMethod = "nncuda-tern2"

// Quantization is what `quantization_config` says.
type Quantization struct {
	Packed  bool              // ours: tern2, and weight_scale f32 [1] is the factor
	Online  bool              // master weights: scale and codes come from them
	Divides bool              // weights are to be divided by weight_scale, and not multiplied
	Blocks  map[string]string // ours: the formats of the tables that are in blocks, by name
}

// QuantizationFromFolder reads `quantization_config` of a config.json; without it, weights are master weights.
//
// linear_class "bitlinear", the default, divides by weight_scale, "autobitlinear" multiplies; quantization_mode "online"
// has master weights. (transformers, integrations/bitnet.py) An error for what this engine does not do.
func QuantizationFromFolder(values *formats.Object) (Quantization, error) {
	value := values.Get("quantization_config")
	if value == nil {
		return Quantization{Online: true}, nil
	}
	given, ok := value.(*formats.Object)
	if !ok {
		return Quantization{}, fmt.Errorf("quantization_config is %s; it must be an object", formats.Shown(value))
	}
	switch method := given.Get("quant_method"); method {
	case OurMethod:
		return ourQuantization(given)
	case "bitnet":
	default:
		return Quantization{}, fmt.Errorf("quant_method is %s; this program reads 'bitnet' and '%s'", formats.Shown(method), OurMethod)
	}
	linear, err := choice(given, "linear_class", "bitlinear", "autobitlinear")
	if err != nil {
		return Quantization{}, err
	}
	mode, err := choice(given, "quantization_mode", "offline", "online")
	if err != nil {
		return Quantization{}, err
	}
	if normed := given.Get("use_rms_norm"); given.Has("use_rms_norm") && normed != any(false) {
		return Quantization{}, fmt.Errorf("use_rms_norm is %s; it may be False", formats.Shown(normed))
	}
	kept := given.Get("modules_to_not_convert")
	list, isList := kept.([]any)
	if !formats.IsEmpty(kept) && kept != nil && (!isList || slices.ContainsFunc(list, isOfLayers)) {
		return Quantization{}, fmt.Errorf("modules_to_not_convert is %s; this engine has ternary weights in all layers",
			formats.Shown(kept))
	}
	return Quantization{Online: mode == "online" && linear == "autobitlinear", Divides: linear == "bitlinear"}, nil
}

// choice is one of two texts, the first where none is given.
func choice(given *formats.Object, name, usual, other string) (string, error) {
	if !given.Has(name) {
		return usual, nil
	}
	value, _ := given.Get(name).(string)
	if value != usual && value != other {
		return "", fmt.Errorf("%s is %s; it may be '%s' or '%s'", name, formats.Shown(given.Get(name)), usual, other)
	}
	return value, nil
}

// isOfLayers says whether an entry of modules_to_not_convert is none, or names a matrix of a layer.
func isOfLayers(module any) bool {
	name, ok := module.(string)
	return !ok || strings.Contains(name, "_proj") || strings.Contains(name, "layers")
}

func ourQuantization(given *formats.Object) (Quantization, error) {
	made := Quantization{Packed: true, Blocks: make(map[string]string)}
	var known []string
	for _, format := range formats.BlockFormats {
		if !format.IsPlain() {
			known = append(known, format.Name)
		}
	}
	if !given.Has("blocks") {
		return made, nil
	}
	blocks, ok := given.Get("blocks").(*formats.Object)
	if ok {
		for _, name := range blocks.Names() {
			made.Blocks[name], _ = blocks.Get(name).(string)
			ok = ok && slices.Contains(tables, name) && slices.Contains(known, made.Blocks[name])
		}
	}
	if !ok {
		return made, fmt.Errorf("blocks is %s; it may give %s one of %s", formats.Shown(given.Get("blocks")),
			strings.Join(tables, " and "), strings.Join(known, ", "))
	}
	return made, nil
}

package model_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
)

func TestPresets(t *testing.T) {
	if found := model.Presets(); !slices.Equal(found, []string{"6.9b", "demo", "small"}) {
		t.Error(found)
	}
	for name, wanted := range map[string][2]int{
		"6.9b": {6_882_678_528, 1_786_599_168}, "small": {15_345_920, 5_908_736}, "demo": {9_002_688, 3_694_272},
	} {
		config, err := model.Preset(name)
		if err == nil {
			err = config.Validate()
		}
		if found := [2]int{config.NumParameters(), config.NumActiveParameters()}; err != nil || found != wanted {
			t.Errorf("%s has %v parameters, not %v (%v)", name, found, wanted, err)
		}
		if layout := model.NewLayout(config); layout.Size != wanted[0] {
			t.Errorf("%s: the layout has %d parameters", name, layout.Size)
		}
	}
	if _, err := model.Preset("huge"); err == nil ||
		err.Error() != "there is no preset \"huge\"; there are 6.9b, demo, small" {
		t.Error(err)
	}
}

func parse(t testing.TB, text string) *formats.Object {
	t.Helper()
	value, err := formats.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return value.(*formats.Object)
}

func TestOptionsThatAreRefused(t *testing.T) {
	for text, words := range map[string]string{
		`{"layers": 3}`:                                       "there is no model option \"layers\"; did you mean num_layers?",
		`{"num_layers": 0}`:                                   "num_layers is 0; it must be a whole number, from 1 to 2147483647",
		`{"num_layers": "2"}`:                                 "num_layers is \"2\"; it must be a whole number",
		`{"num_layers": 2.0}`:                                 "num_layers is 2.0; it must be a whole number",
		`{"num_layers": true}`:                                "num_layers is true; it must be a whole number",
		`{"num_layers": null}`:                                "num_layers is null; it must be a whole number",
		`{"num_layers": [1]}`:                                 "num_layers is [1]; it must be a whole number",
		`{"vocab_size": 1e3}`:                                 "vocab_size is 1000.0; it must be a whole number",
		`{"vocab_size": 99999999999999999999}`:                "vocab_size is 99999999999999999999; it must be",
		`{"vocab_size": 2147483648}`:                          "vocab_size is 2147483648; it must be a whole number, from 1",
		`{"num_experts": 2147483647}`:                         "tensors; a model may have at most 65536",
		`{"ffn_size": 2147483647, "hidden_size": 2147483647}`: "more parameters than any machine holds",
		`{"num_kv_heads": 5}`:                                 "num_kv_heads is 5; it must be a divisor of num_heads (12)",
		`{"head_dim": 12}`:                                    "head_dim is 12; it must be a multiple of 8, at most 256",
		`{"head_dim": 264}`:                                   "head_dim is 264; it must be",
		`{"experts_per_token": 17}`:                           "experts_per_token is 17; it must be at most 16",
		`{"extended_context": 100}`:                           "it must be at least context (32768)",
		`{"rope_base": 0}`:                                    "rope_base is 0.0; it must be a number, from 1 to 1e+12",
		`{"rope_base": NaN}`:                                  "rope_base is not finite; it must be a number, from 1 to 1e+12",
		`{"ntk_alpha": 0.5}`:                                  "ntk_alpha is 0.5; it must be a number, from 1 to 1e+06",
		`{"norm_eps": -1}`:                                    "norm_eps is -1.0; it must be a number, from 0 to 1",
		`{"norm_topk_prob": 1}`:                               "norm_topk_prob is 1; it must be true or false",
		`{"capacity_factor": 0}`:                              "capacity_factor is 0; it must be a number, from 1e-06 to 65536, or none",
		`{"capacity_factor": -1}`:                             "capacity_factor is -1.0; it must be a number, from 1e-06",
		`{"init_std": Infinity}`:                              "init_std is not finite; it must be a number, from 0 to 100",
	} {
		config := model.Default()
		err := config.Assign(parse(t, text))
		if err == nil {
			err = config.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, not %q", text, err, words)
		}
	}
}

func TestOptionsThatAreTaken(t *testing.T) {
	config := model.Default()
	err := config.Assign(
		parse(t, `{"num_layers": 3, "rope_base": 500, "capacity_factor": 1.25, "norm_topk_prob": false}`),
	)
	if err != nil || config.NumLayers != 3 || config.RopeBase != 500 || config.CapacityFactor != 1.25 ||
		config.NormTopKProb {
		t.Error(config, err)
	}
	if err := config.Assign(parse(t, `{"capacity_factor": null}`)); err != nil || config.CapacityFactor != 0 {
		t.Error(config.CapacityFactor, err)
	}
	again := model.Default()
	if err := again.Assign(config.Object()); err != nil || again != config {
		t.Error(again, err)
	}
}

func TestCapacity(t *testing.T) {
	config := model.Default()
	for factor, wanted := range map[float64]int{0: 0, 1: 25, 1.25: 32, 0.001: 1} {
		config.CapacityFactor = factor
		if found := config.Capacity(100); found != wanted {
			t.Errorf("%v: %d, not %d", factor, found, wanted)
		}
	}
}

func TestMixtralAndBack(t *testing.T) {
	config := model.Default()
	config.CapacityFactor, config.NormTopKProb, config.AuxAlpha = 1.5, false, 0.125
	read, err := model.ConfigFromMixtral(parse(t, string(written(t, config.Mixtral()))))
	if err != nil || read != config {
		t.Errorf("%+v (%v), not %+v", read, err, config)
	}
}

func written(t testing.TB, object *formats.Object) []byte {
	t.Helper()
	text, err := formats.JSONDocument(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const foreign = `{"model_type": "mixtral", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
"intermediate_size": 20, "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": false}`

func TestMixtralFromElsewhere(t *testing.T) {
	read, err := model.ConfigFromMixtral(parse(t, foreign))
	if err != nil {
		t.Fatal(err)
	}
	// Its own defaults where the file is silent, and no stretching of the rotary embedding.
	if read.HeadDim != 16 || read.RopeBase != 1e6 || read.ExtendedContext != 128 || read.NTKAlpha != 1 ||
		read.NormEps != 1e-5 {
		t.Errorf("%+v", read)
	}
	for change, base := range map[string]float64{
		`"rope_theta": 500`: 500, `"rope_parameters": {"rope_type": "default", "rope_theta": 700}`: 700,
		`"rope_theta": 500, "rope_scaling": null`: 500, `"rope_theta": 5, "rope_parameters": {"rope_theta": 9.5}`: 9.5,
	} {
		if read, err := model.ConfigFromMixtral(with(t, change)); err != nil || read.RopeBase != base {
			t.Errorf("%s: %v (%v), not %v", change, read.RopeBase, err, base)
		}
	}
}

// with is the foreign configuration with entries over its own.
func with(t testing.TB, entries string) *formats.Object {
	whole, change := parse(t, foreign), parse(t, "{"+entries+"}")
	for _, name := range change.Names() {
		whole.Set(name, change.Get(name))
	}
	return whole
}

func TestMixtralThatIsRefused(t *testing.T) {
	for change, words := range map[string]string{
		`"model_type": "llama"`:                                      "is \"llama\"; this program reads \"mixtral\"",
		`"model_type": null`:                                         "the model_type is null",
		`"hidden_act": "gelu"`:                                       "hidden_act is \"gelu\"; this model has \"silu\"",
		`"tie_word_embeddings": true`:                                "tie_word_embeddings is true; this model has false",
		`"tie_word_embeddings": {}`:                                  "tie_word_embeddings is {}; this model has false",
		`"vocab_size": null`:                                         "vocab_size is missing",
		`"hidden_size": "x"`:                                         "hidden_size is \"x\"; it must be a whole number",
		`"num_attention_heads": 0`:                                   "num_attention_heads is 0; it must be",
		`"num_hidden_layers": -1`:                                    "num_layers is -1; it must be",
		`"sliding_window": 64`:                                       "attends to all of its context (128)",
		`"sliding_window": NaN`:                                      "sliding_window is not finite",
		`"sliding_window": "all"`:                                    "it must be a number or null",
		`"rope_theta": "big"`:                                        "rope_theta is \"big\"; it must be a number, from 1",
		`"rope_theta": -1`:                                           "rope_theta is -1; it must be a number, from 1 to 1e+12",
		`"rope_scaling": {"type": "yarn"}`:                           "type \"yarn\"; this model has \"default\"",
		`"rope_parameters": {"rope_type": ["x"]}`:                    "rotary embedding of type [\"x\"]",
		`"rope_parameters": 3`:                                       "rope_parameters is 3; it must be an object",
		`"nncuda": 3`:                                                "under \"nncuda\" must be among extended_context",
		`"nncuda": {"depth": 3}`:                                     "the options under \"nncuda\" must be among",
		`"nncuda": {"extended_context": 64}`:                         "extended_context is 64; it must be",
		`"nncuda": {"norm_topk_prob": null}`:                         "norm_topk_prob is null; it must be true or false",
		`"num_local_experts": 1000000, "num_hidden_layers": 1000000`: "make 3000007000003 tensors",
	} {
		if _, err := model.ConfigFromMixtral(with(t, change)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, not %q", change, err, words)
		}
	}
	window := with(t, `"sliding_window": 128`)
	if _, err := model.ConfigFromMixtral(window); err != nil {
		t.Error("a window of all the context was refused:", err)
	}
}

func TestLayout(t *testing.T) {
	config, err := model.Preset("demo")
	if err != nil {
		t.Fatal(err)
	}
	layout := model.NewLayout(config)
	end := 0
	for _, spec := range layout.Specs {
		if found, ok := layout.Find(spec.Name); !ok || found.Offset != end || spec.Offset != end {
			t.Fatalf("%s lies at %d, not at %d", spec.Name, spec.Offset, end)
		}
		if isMatrix := len(spec.Shape) == 2; isMatrix != (end < layout.NumDecayed) {
			t.Errorf("%s decays: %v", spec.Name, !isMatrix)
		}
		end += spec.Size()
	}
	if end != layout.Size || layout.Specs[0].Name != "model.embed_tokens.weight" {
		t.Error(end, layout.Size)
	}
	// What is used as one tensor lies side by side.
	q, _ := layout.Find("model.layers.1.self_attn.q_proj.weight")
	v, _ := layout.Find("model.layers.1.self_attn.v_proj.weight")
	if distance := v.Offset + v.Size() - q.Offset; distance != (6+2)*32*192 {
		t.Error("q, k and v take", distance)
	}
	if _, found := layout.Find("model.layers.4.self_attn.q_proj.weight"); found {
		t.Error("there is a fifth layer")
	}
}

// FuzzConfigFromMixtral: whatever a config.json says, it is a valid configuration or an error.
func FuzzConfigFromMixtral(f *testing.F) {
	config := model.Default()
	f.Add(written(f, config.Mixtral()))
	f.Add([]byte(foreign))
	for _, change := range []string{
		`"rope_parameters": {"rope_theta": 9.5}, "sliding_window": 1e400`, `"rope_theta": 5e-324`,
		`"vocab_size": 1` + strings.Repeat("0", 400), `"rms_norm_eps": 1e308`, `"num_local_experts": 2147483647`,
	} {
		f.Add(written(f, with(f, change)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := formats.ParseJSON(data)
		object, ok := value.(*formats.Object)
		if err != nil || !ok {
			return
		}
		config, err := model.ConfigFromMixtral(object)
		if err != nil {
			return
		}
		if err := config.Validate(); err != nil {
			t.Fatalf("%s was taken, though %v", data, err)
		}
		if config.NumParameters() <= 0 || config.NumParameters() < config.NumActiveParameters() {
			t.Fatalf("%d parameters, %d active", config.NumParameters(), config.NumActiveParameters())
		}
		if math.IsNaN(config.RopeBase) {
			t.Fatal(config)
		}
	})
}

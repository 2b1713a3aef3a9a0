package model_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
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
		err.Error() != "there is no preset 'huge'; there are 6.9b, demo, small" {
		t.Error(err)
	}
}

// A dense model has one network a layer, and is a Llama in a config.json.
func TestDense(t *testing.T) {
	config := must.Get(model.Preset("small"))(t)
	config.NumExperts, config.ExpertsPerToken = 0, 0
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	layout := model.NewLayout(config)
	if layout.Size != config.NumParameters() || layout.Size != config.NumActiveParameters() {
		t.Errorf("%d parameters, of which %d active; the layout has %d", config.NumParameters(),
			config.NumActiveParameters(), layout.Size)
	}
	if found := len(layout.Specs); found != 9*config.NumLayers+3 {
		t.Errorf("%d tensors", found)
	}
	if found := len(layout.BackwardPieces()); found != config.NumLayers+3 {
		t.Errorf("%d pieces of a backward pass", found)
	}
	if again := must.Get(model.ConfigFromMixtral(config.Mixtral()))(t); again != config {
		t.Errorf("%v became %v", config, again)
	}
	for words, change := range map[string]func(*model.Config){
		"experts_per_token is 1; it must be 0 in a dense model": func(c *model.Config) { c.ExpertsPerToken = 1 },
		"experts_per_token is 0; it must be 1 to 2":             func(c *model.Config) { c.NumExperts = 2 },
		"aux_alpha is 0.5; it must be 0.01 in a dense model":    func(c *model.Config) { c.AuxAlpha = 0.5 },
		"capacity_factor is 2.0; it must be ":                   func(c *model.Config) { c.CapacityFactor = 2 },
	} {
		wrong := config
		change(&wrong)
		if err := wrong.Validate(); err == nil || !strings.HasPrefix(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
}

func parse(t testing.TB, text string) *formats.Object {
	t.Helper()
	value := must.Get(formats.ParseJSON([]byte(text)))(t)
	return value.(*formats.Object)
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
	text := must.Get(formats.JSONDocument(object))(t)
	return text
}

const foreign = `{"model_type": "mixtral", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
"intermediate_size": 20, "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": false}`

func TestMixtralFromElsewhere(t *testing.T) {
	read := must.Get(model.ConfigFromMixtral(parse(t, foreign)))(t)
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
	if _, err := model.ConfigFromMixtral(with(t, `"sliding_window": 128`)); err != nil {
		t.Error("a window of all the context was refused:", err)
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

func TestLayout(t *testing.T) {
	config := must.Get(model.Preset("demo"))(t)
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

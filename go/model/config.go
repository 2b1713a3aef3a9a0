package model

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
)

// Config holds the sizes and options of a Transformer. Default gives the configuration "6.9b", Preset smaller ones.
//
// What each option is stands in the list below, which files, flags and messages share. Where none is a value, 0 is it.
type Config struct {
	VocabSize       int     `name:"vocab_size"`
	HiddenSize      int     `name:"hidden_size"`
	NumLayers       int     `name:"num_layers"`
	NumHeads        int     `name:"num_heads"`
	NumKVHeads      int     `name:"num_kv_heads"`
	HeadDim         int     `name:"head_dim"`
	NumExperts      int     `name:"num_experts"`
	ExpertsPerToken int     `name:"experts_per_token"`
	FFNSize         int     `name:"ffn_size"`
	Context         int     `name:"context"`
	ExtendedContext int     `name:"extended_context"`
	RopeBase        float64 `name:"rope_base"`
	NTKAlpha        float64 `name:"ntk_alpha"`
	NormEps         float64 `name:"norm_eps"`
	NormTopKProb    bool    `name:"norm_topk_prob"`
	CapacityFactor  float64 `name:"capacity_factor" none:""`
	AuxAlpha        float64 `name:"aux_alpha"`
	InitStd         float64 `name:"init_std"`
}

// fields are the options of a Config, with what each must be and what it does.
var fields = options.Fields[Config]([]options.Words{
	{"vocab_size", "a whole number, at least 1", "tokens of the vocabulary"},
	{"hidden_size", "a whole number, at least 1", "width of the residual stream"},
	{"num_layers", "a whole number, at least 1", "blocks"},
	{"num_heads", "a whole number, at least 1", "query heads of attention"},
	{"num_kv_heads", "a whole number, at least 1",
		"key and value heads: 1 is multi-query attention, num_heads multi-head"},
	{"head_dim", "a whole number, at least 1", "elements a head; a multiple of 8, at most 256"},
	{"num_experts", "a whole number, at least 1", "experts a layer"},
	{"experts_per_token", "a whole number, at least 1", "how many of them each token goes to"},
	{"ffn_size", "a whole number, at least 1", "inner width of an expert"},
	{"context", "a whole number, at least 1",
		"longest sequence in training, and at inference without stretching the rotary embedding"},
	{"extended_context", "a whole number, at least 1", "longest sequence at inference with ntk_alpha"},
	{"rope_base", "a finite number", "base of the rotary embedding's angles"},
	{"ntk_alpha", "a finite number", "NTK-aware factor of that base, used beyond context only"},
	{"norm_eps", "a finite number", "added to the mean square in RMSNorm"},
	{"norm_topk_prob", "true or false", "whether a token's expert weights are divided by their sum"},
	{"capacity_factor", "a finite number above 0, or none",
		"in training an expert takes at most ceil(factor * tokens * experts_per_token / num_experts) slots " +
			"of a micro-batch, in token order, and drops the rest; None drops nothing"},
	{"aux_alpha", "a finite number", "weight of the load-balancing loss"},
	{"init_std", "a finite number", "standard deviation of the initial weights"},
})

// Options lists the options, for flags and help.
func Options() []options.Field { return fields }

// Default is the configuration "6.9b": 6.9 billion parameters, 1.8 billion of them active a token.
func Default() Config {
	return Config{
		VocabSize: 32000, HiddenSize: 768, NumLayers: 30, NumHeads: 12, NumKVHeads: 1, HeadDim: 64,
		NumExperts: 16, ExpertsPerToken: 4, FFNSize: 6144, Context: 32768, ExtendedContext: 262144,
		RopeBase: 10000, NTKAlpha: 8, NormEps: 1e-5, NormTopKProb: true, AuxAlpha: 0.01, InitStd: 0.02,
	}
}

var presets = map[string]func(*Config){
	"6.9b": func(*Config) {},
	"small": func(c *Config) {
		c.VocabSize, c.HiddenSize, c.NumLayers, c.NumHeads = 4096, 256, 4, 4
		c.NumExperts, c.ExpertsPerToken, c.FFNSize = 8, 2, 512
		c.Context, c.ExtendedContext = 256, 2048
	},
	"demo": func(c *Config) {
		c.VocabSize, c.HiddenSize, c.NumLayers, c.NumHeads, c.HeadDim = 4096, 192, 4, 6, 32
		c.NumExperts, c.ExpertsPerToken, c.FFNSize = 8, 2, 384
		c.Context, c.ExtendedContext = 256, 2048
	},
}

// Presets lists the names that Preset takes.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset is a named configuration: "6.9b", "small" (the benchmark's) or "demo".
func Preset(name string) (Config, error) {
	change, found := presets[name]
	if !found {
		known := strings.Join(Presets(), ", ")
		return Config{}, fmt.Errorf("there is no preset %s; there are %s", formats.Repr(name), known)
	}
	config := Default()
	change(&config)
	return config, nil
}

// Assign sets options by name, as files and flags give them. Unknown names and wrong types are errors; ranges are
// checked by Validate.
func (c *Config) Assign(values options.Values) error {
	return options.Assign(c, fields, values, "model", formats.Repr)
}

// Object gives all options by name.
func (c Config) Object() *formats.Object {
	object := formats.NewObject()
	for _, field := range fields {
		object.Set(field.Name, field.Get(&c))
	}
	return object
}

// Largest value of any size, so that products of two of them fit.
const maxSize = 1<<31 - 1

// Validate says which option is outside its range.
func (c Config) Validate() error {
	for _, field := range fields {
		switch value := field.Get(&c).(type) {
		case int64:
			if value < 1 {
				return field.Wrong(formats.Repr(value))
			}
			if value > maxSize {
				return fmt.Errorf("%s is %d; it must be at most %d", field.Name, value, maxSize)
			}
		case float64:
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return field.Wrong(formats.Repr(value))
			}
		}
	}
	most, group := min(c.NumExperts, 64), fmt.Sprintf("a divisor of num_heads (%d)", c.NumHeads)
	reach := fmt.Sprintf("at least context (%d)", c.Context)
	for _, rule := range []struct {
		holds bool
		name  string
		value any
		rule  string
	}{
		{c.NumHeads%c.NumKVHeads == 0, "num_kv_heads", c.NumKVHeads, group},
		{c.HeadDim%8 == 0 && c.HeadDim <= 256, "head_dim", c.HeadDim, "a multiple of 8, at most 256"},
		{c.ExpertsPerToken <= most, "experts_per_token", c.ExpertsPerToken, fmt.Sprintf("at most %d", most)},
		{c.ExtendedContext >= c.Context, "extended_context", c.ExtendedContext, reach},
		{c.RopeBase > 0, "rope_base", c.RopeBase, "above 0"},
		{c.NTKAlpha >= 1, "ntk_alpha", c.NTKAlpha, "at least 1"},
		{c.NormEps >= 0, "norm_eps", c.NormEps, "at least 0"},
		{c.AuxAlpha >= 0, "aux_alpha", c.AuxAlpha, "at least 0"},
		{c.InitStd >= 0, "init_std", c.InitStd, "at least 0"},
		{c.CapacityFactor >= 0, "capacity_factor", c.CapacityFactor, "above 0"},
	} {
		if !rule.holds {
			return fmt.Errorf("%s is %s; it must be %s", rule.name, formats.Repr(rule.value), rule.rule)
		}
	}
	return c.checkTotal()
}

// Bounds on what a file may ask for, far above any model that fits into a machine.
const (
	maxTensors    = 1 << 18
	maxParameters = 1 << 50
)

// checkTotal refuses sizes whose products leave what the arithmetic of sizes can hold.
func (c Config) checkTotal() error {
	tensors := float64(c.NumLayers) * (7 + 3*float64(c.NumExperts))
	experts := 3 * float64(c.NumExperts) * float64(c.FFNSize)
	attention := 2 * float64(c.HeadDim) * (float64(c.NumHeads) + float64(c.NumKVHeads))
	rows := 2*float64(c.VocabSize) + float64(c.NumLayers)*(attention+float64(c.NumExperts)+experts+2)
	if tensors > maxTensors {
		return fmt.Errorf("num_layers and num_experts make %.0f tensors; a model may have %d", tensors, maxTensors)
	}
	if rows*float64(c.HiddenSize) > maxParameters {
		return errors.New("the sizes make a model of more parameters than any machine holds")
	}
	return nil
}

// Capacity is the most slots that an expert takes of `tokens` tokens in training; 0 means no limit.
func (c Config) Capacity(tokens int) int {
	if c.CapacityFactor == 0 {
		return 0
	}
	slots := c.CapacityFactor * float64(tokens) * float64(c.ExpertsPerToken)
	return int(math.Ceil(slots / float64(c.NumExperts)))
}

// NumParameters counts all parameters.
func (c Config) NumParameters() int { return c.parameters(c.NumExperts) }

// NumActiveParameters counts the parameters that one token meets: those of its experts alone.
func (c Config) NumActiveParameters() int { return c.parameters(c.ExpertsPerToken) }

func (c Config) parameters(experts int) int {
	attention := c.HiddenSize * c.HeadDim * (2*c.NumHeads + 2*c.NumKVHeads)
	layer := attention + c.NumExperts*c.HiddenSize + 3*experts*c.HiddenSize*c.FFNSize
	norms := (2*c.NumLayers + 1) * c.HiddenSize
	return 2*c.VocabSize*c.HiddenSize + c.NumLayers*layer + norms
}

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
	QKVBias         bool    `name:"qkv_bias"`
	QKNorm          bool    `name:"qk_norm"`
	TieEmbeddings   bool    `name:"tie_embeddings"`
	Ternary         bool    `name:"ternary"`
	SquaredReLU     bool    `name:"squared_relu"`
	RopeFactor      float64 `name:"rope_factor"`
	RopeLow         float64 `name:"rope_low"`
	RopeHigh        float64 `name:"rope_high"`
	RopeOriginal    int     `name:"rope_original"`
}

// fields are the options of a Config, with what each must be and what it does.
var fields = options.Fields[Config]([]options.Words{
	{"vocab_size", "a whole number, from 1 to 2147483647", "size of the vocabulary"},
	{"hidden_size", "a whole number, from 1 to 2147483647", "width of the residual stream"},
	{"num_layers", "a whole number, from 1 to 2147483647", "number of blocks"},
	{"num_heads", "a whole number, from 1 to 2147483647", "query heads of attention"},
	{"num_kv_heads", "a whole number, from 1 to 2147483647",
		"key and value heads: 1 is multi-query attention, num_heads multi-head"},
	{"head_dim", "a whole number, from 1 to 2147483647", "elements per head; a multiple of 8, at most 256"},
	{"num_experts", "a whole number, from 0 to 2147483647",
		"experts per layer; 0 makes the model dense: one network for all tokens, without a router"},
	{"experts_per_token", "a whole number, from 0 to 2147483647", "experts that each token goes to; 0 in a dense model"},
	{"ffn_size", "a whole number, from 1 to 2147483647", "inner width of an expert, or of the network of a dense model"},
	{"context", "a whole number, from 1 to 2147483647",
		"longest sequence in training, and at inference without stretching the rotary embedding"},
	{"extended_context", "a whole number, from 1 to 2147483647", "longest sequence at inference with ntk_alpha"},
	{"rope_base", "a number, from 1 to 1e+12", "base of the rotary embedding's angles"},
	{"ntk_alpha", "a number, from 1 to 1e+06", "NTK-aware factor of that base, used beyond context only"},
	{"norm_eps", "a number, from 0 to 1", "added to the mean square in RMSNorm"},
	{"norm_topk_prob", "true or false", "whether a token's expert weights are divided by their sum"},
	{"capacity_factor", "a number, from 1e-06 to 65536, or none",
		"in training an expert takes at most ceil(factor * tokens * experts_per_token / num_experts) slots " +
			"of a micro-batch, in token order, and drops the rest; None drops nothing"},
	{"aux_alpha", "a number, from 0 to 1000", "weight of the load-balancing loss"},
	{"init_std", "a number, from 0 to 100", "standard deviation of the initial weights"},
	{"qkv_bias", "true or false", "whether queries, keys and values have biases, as in Qwen2; in a dense model alone"},
	{"qk_norm", "true or false", "whether each head of queries and keys is normed before it is rotated, as in Qwen3; " +
		"in a dense model without those biases alone"},
	{"tie_embeddings", "true or false", "whether the head is the table of embeddings; in a dense model alone"},
	{"ternary", "true or false",
		"whether all blocks' products have weights -1, 0 and 1 times a number, made of the parameters whenever they are used, " +
			"and activations of 8 bits, with norms in front of both projections back to the stream, as in BitNet b1.58; " +
			"in a dense model that trains in f32"},
	{"squared_relu", "true or false", "whether the gate is max(x, 0)^2 in place of SiLU; with ternary weights alone"},
	{"rope_factor", "a number, from 1 to 1e+06",
		"what llama3's scaling of the rotary embedding stretches long waves by; 1 leaves all as they are"},
	{"rope_low", "a number, from 1e-06 to 1",
		"of it: waves that turn less often in the original context are stretched by the whole factor"},
	{"rope_high", "a number, from 1.001 to 1e+06", "of it: waves that turn more often there stay as they are"},
	{"rope_original", "a whole number, from 1 to 2147483647", "of it: the original context"},
})

// Bounds are the least and the largest value of each number; tests/bounds.json has the reasons.
var Bounds = options.Bounds{
	"rope_base":       {1, 1e12},
	"ntk_alpha":       {1, 1e6},
	"norm_eps":        {0, 1},
	"capacity_factor": {1e-6, 65536},
	"aux_alpha":       {0, 1000},
	"init_std":        {0, 100},
	"rope_factor":     {1, 1e6},
	"rope_low":        {1e-6, 1},
	"rope_high":       {1.001, 1e6},
}

// Options lists the options, for flags and help.
func Options() []options.Field { return fields }

// Default is the configuration "6.9b": 6.9 billion parameters, 1.8 billion of them active per token.
func Default() Config {
	return Config{
		VocabSize: 32000, HiddenSize: 768, NumLayers: 30, NumHeads: 12, NumKVHeads: 1, HeadDim: 64,
		NumExperts: 16, ExpertsPerToken: 4, FFNSize: 6144, Context: 32768, ExtendedContext: 262144,
		RopeBase: 10000, NTKAlpha: 8, NormEps: 1e-5, NormTopKProb: true, AuxAlpha: 0.01, InitStd: 0.02,
		RopeFactor: 1, RopeLow: 1, RopeHigh: 4, RopeOriginal: 8192,
	}
}

// UsualPreset is what commands begin with where no preset is named: one that trains on any machine.
const UsualPreset = "small"

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
		return Config{}, fmt.Errorf("there is no preset %s; there are %s", formats.Shown(name), known)
	}
	config := Default()
	change(&config)
	return config, nil
}

// Assign sets options by name, as files and flags give them. Unknown names and wrong types are errors; ranges are
// checked by Validate.
func (c *Config) Assign(values *formats.Object) error {
	return options.Assign(c, fields, values, "model")
}

// Object gives all options by name.
func (c Config) Object() *formats.Object {
	object := formats.NewObject()
	for _, field := range fields {
		object.Set(field.Name, field.Get(&c))
	}
	return object
}

// Validate says which option is outside its range.
func (c Config) Validate() error {
	for _, field := range fields {
		if count, ok := field.Get(&c).(int64); ok && (count < least(field.Name) || count > formats.MaxCount) {
			return field.Wrong(count)
		}
	}
	if err := Bounds.Check(&c, fields); err != nil {
		return err
	}
	chosen := fmt.Sprintf("1 to %d", min(c.NumExperts, 64))
	if c.NumExperts == 0 {
		chosen = "0" + inDense
	}
	group := fmt.Sprintf("a divisor of num_heads (%d)", c.NumHeads)
	reach := fmt.Sprintf("at least context (%d)", c.Context)
	for _, rule := range []struct {
		holds bool
		name  string
		value any
		rule  string
	}{
		{c.NumHeads%c.NumKVHeads == 0, "num_kv_heads", c.NumKVHeads, group},
		{c.HeadDim%8 == 0 && c.HeadDim <= 256, "head_dim", c.HeadDim, "a multiple of 8, at most 256"},
		{c.fewExperts(), "experts_per_token", c.ExpertsPerToken, chosen},
		{c.ExtendedContext >= c.Context, "extended_context", c.ExtendedContext, reach},
	} {
		if !rule.holds {
			return fmt.Errorf("%s is %s; it must be %s", rule.name, formats.Shown(rule.value), rule.rule)
		}
	}
	if err := c.checkParts(); err != nil {
		return err
	}
	if err := c.checkTernary(); err != nil {
		return err
	}
	if c.QKNorm && c.QKVBias {
		return fmt.Errorf("qkv_bias is %s; it must be %s with qk_norm", formats.Shown(true), formats.Shown(false))
	}
	return c.checkTotal()
}

// What ends the rule of an option that a dense model, or one with experts, has one value of.
const (
	inDense     = " in a dense model, whose num_experts is 0"
	withExperts = " in a model with experts"
)

// Options that are 0 in a dense model, those of the router, which it has at their defaults, and those of its own parts,
// which a model with experts has at theirs.
var (
	countsOfExperts = []string{"num_experts", "experts_per_token"}
	optionsOfRouter = []string{"norm_topk_prob", "capacity_factor", "aux_alpha"}
	optionsOfDense  = []string{"qkv_bias", "qk_norm", "tie_embeddings", "ternary", "squared_relu"}
)

// least is the least value of an option that is a whole number.
func least(option string) int64 {
	if slices.Contains(countsOfExperts, option) {
		return 0
	}
	return 1
}

func (c Config) fewExperts() bool {
	return min(c.NumExperts, 1) <= c.ExpertsPerToken && c.ExpertsPerToken <= min(c.NumExperts, 64)
}

// checkParts refuses options of a router where there is none, and of a dense model where there are experts.
func (c Config) checkParts() error {
	others, where := optionsOfRouter, inDense
	if c.NumExperts > 0 {
		others, where = optionsOfDense, withExperts
	}
	usual := Default()
	for _, field := range fields {
		if !slices.Contains(others, field.Name) {
			continue
		}
		if value, wanted := field.Get(&c), field.Get(&usual); value != wanted {
			return fmt.Errorf("%s is %s; it must be %s%s", field.Name, formats.Shown(value), formats.Shown(wanted), where)
		}
	}
	return nil
}

// checkTernary refuses parts that a model with ternary weights has not, and a part that it has alone.
func (c Config) checkTernary() error {
	parts, where := []string{"squared_relu"}, "without"
	if c.Ternary {
		parts, where = []string{"qkv_bias", "qk_norm"}, "with"
	}
	for _, field := range fields {
		if slices.Contains(parts, field.Name) && field.Get(&c) == any(true) {
			return fmt.Errorf("%s is %s; it must be %s %s ternary weights", field.Name, formats.Shown(true), formats.Shown(false), where)
		}
	}
	return nil
}

// checkTotal refuses sizes whose products leave what the arithmetic of sizes can hold.
func (c Config) checkTotal() error {
	of, networks := 7+3*float64(c.NumExperts), float64(c.NumExperts)
	if c.NumExperts == 0 {
		of, networks = 9+3*count(c.QKVBias)+2*count(c.QKNorm)+2*count(c.Ternary), 1
	}
	tensors := float64(c.NumLayers)*of + 3 - count(c.TieEmbeddings)
	experts := 3 * networks * float64(c.FFNSize)
	attention := 2 * float64(c.HeadDim) * (float64(c.NumHeads) + float64(c.NumKVHeads))
	vectors := count(c.QKVBias)*float64(c.HeadDim)*(float64(c.NumHeads)+2*float64(c.NumKVHeads)) +
		count(c.QKNorm)*2*float64(c.HeadDim) +
		count(c.Ternary)*(float64(c.NumHeads)*float64(c.HeadDim)+float64(c.FFNSize))
	rows := (2-count(c.TieEmbeddings))*float64(c.VocabSize) + float64(c.NumLayers)*(attention+float64(c.NumExperts)+experts+2)
	if tensors > formats.ModelTensors {
		return fmt.Errorf("num_layers and num_experts make %.0f tensors; a model may have at most %d", tensors,
			formats.ModelTensors)
	}
	if (rows+1)*float64(c.HiddenSize)+float64(c.NumLayers)*vectors > formats.ModelParameters {
		return errors.New("the sizes make a model of more parameters than any machine holds")
	}
	return nil
}

// count is 1 for a part that is there.
func count(there bool) float64 {
	if there {
		return 1
	}
	return 0
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
func (c Config) NumParameters() int { return c.parameters(max(c.NumExperts, 1)) }

// NumActiveParameters counts the parameters that one token meets: those of its experts alone.
func (c Config) NumActiveParameters() int { return c.parameters(max(c.ExpertsPerToken, 1)) }

func (c Config) parameters(experts int) int {
	layer := c.AttentionParameters() + c.NumExperts*c.HiddenSize + 3*experts*c.HiddenSize*c.FFNSize
	return c.VocabSize*c.HiddenSize + c.HeadParameters() + c.NumLayers*layer + c.NormParameters()
}

// NormParameters counts the gains of all norms.
func (c Config) NormParameters() int {
	norms := (2*c.NumLayers + 1) * c.HiddenSize
	if c.QKNorm {
		norms += 2 * c.NumLayers * c.HeadDim
	}
	if c.Ternary {
		norms += c.NumLayers * (c.NumHeads*c.HeadDim + c.FFNSize)
	}
	return norms
}

// AttentionParameters counts those of a layer's products around attention, with their biases.
func (c Config) AttentionParameters() int {
	parameters := c.HiddenSize * c.HeadDim * (2*c.NumHeads + 2*c.NumKVHeads)
	if c.QKVBias {
		parameters += c.HeadDim * (c.NumHeads + 2*c.NumKVHeads)
	}
	return parameters
}

// HeadParameters counts those of the head: none where it is the table of embeddings.
func (c Config) HeadParameters() int {
	if c.TieEmbeddings {
		return 0
	}
	return c.VocabSize * c.HiddenSize
}

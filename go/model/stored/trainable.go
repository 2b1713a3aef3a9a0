package stored

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
)

// A stored model as one that trains. Beside an adapter the weights stay as they are stored, so more will do: configBeside.
// Where all weights are trained the model becomes one of this library, whose checkpoints are folders: configOfAll.

// nearDivisor is how far from ours a divisor of llama3's scaling may be: converters compute in f32, and where the frequency
// begins to be stretched, a few of its roundings (2^-24) are as many times more as it is stretched by.
const nearDivisor = 1e-4

// otherPart is the error of a part that a model has in place of the usual.
type otherPart func(name, found, usual string) error

func otherFor(what string) otherPart {
	return func(name, found, usual string) error {
		return fmt.Errorf("%s is %s; %s models with %s", name, found, what, usual)
	}
}

// configBeside gives the sizes of a model beside which an adapter is trained. Its context is what all of its layers see. An
// error for a model beside which none is, which names what it has.
func configBeside(config LlamaConfig) (model.Config, error) {
	other := otherFor("adapters are trained beside")
	if config.NumExperts > 0 {
		return model.Config{}, other("num_experts", fmt.Sprint(config.NumExperts), "0")
	}
	scalings := []string{ScalingNone, ScalingLinear, ScalingNTK, ScalingLlama3}
	if err := checkLayers(config, config.Ternary, scalings, other); err != nil {
		return model.Config{}, err
	}
	made := sizesOf(config)
	made.QKVBias = config.QKVBias && config.QKNorm == NoNorm
	made.Ternary, made.SquaredReLU = config.Ternary, config.Activation == ReLU2
	return made, made.Validate()
}

// configOfAll gives the options of a model of which all weights are trained, which this library's own then computes. Its
// context is what all of its layers see. An error for one that has something besides, which names it.
func configOfAll(config LlamaConfig) (model.Config, error) {
	other := otherFor("all weights are trained of")
	if err := checkLayers(config, false, []string{ScalingNone, ScalingNTK, ScalingLlama3}, other); err != nil {
		return model.Config{}, err
	}
	if config.OBias {
		return model.Config{}, other("o_bias", formats.Shown(true), formats.Shown(false))
	}
	made := sizesOf(config)
	made.QKVBias = config.QKVBias
	switch config.Rope.Scaling {
	case ScalingNTK:
		made.ExtendedContext, made.NTKAlpha = config.ExtendedContext, config.Rope.Factor
	case ScalingLlama3:
		var err error
		if made.RopeFactor, err = llama3Factor(config, made); err != nil {
			return made, err
		}
	}
	if config.NumExperts > 0 {
		made.NormTopKProb = config.NormTopKProb
	}
	return made, made.Validate()
}

// checkLayers refuses what a layer may have that those which train have not, and other scalings of the rotary embedding.
func checkLayers(config LlamaConfig, ternary bool, scalings []string, other otherPart) error {
	gates := []string{SiLU}
	if ternary {
		gates = append(gates, ReLU2)
	}
	if !slices.Contains(gates, config.Activation) {
		return other("activation", formats.Shown(config.Activation), "'"+strings.Join(gates, "' or '")+"'")
	}
	number := func(value float64) string { return formats.Shown(value) }
	truth := func(value bool) string { return formats.Shown(value) }
	for _, part := range []struct{ name, found, usual string }{
		{"ternary", truth(config.Ternary), truth(ternary)},
		{"post_norms", truth(config.PostNorms), truth(false)},
		{"norms_less_one", truth(config.NormsLessOne), truth(false)},
		{"sinks", truth(config.Sinks), truth(false)},
		{"shared_ffn_size", fmt.Sprint(config.SharedFFNSize), "0"},
		{"biased_experts", truth(config.BiasedExperts), truth(false)},
		{"embedding_scale", number(config.EmbeddingScale), number(1)},
		{"residual_scale", number(config.ResidualScale), number(1)},
		{"attention_scale", number(config.AttentionScale), number(0)},
		{"logits_scaling", number(config.LogitsScaling), number(1)},
		{"scores_cap", number(config.ScoresCap), number(0)},
		{"logits_cap", number(config.LogitsCap), number(0)},
		{"local_rope_base", number(config.LocalRopeBase), number(0)},
		{"sub_norms", truth(config.SubNorms), truth(ternary)},
	} {
		if part.found != part.usual {
			return other(part.name, part.found, part.usual)
		}
	}
	switch {
	case config.QKNorm == NormOfAll:
		return other("qk_norm", formats.Shown(config.QKNorm), "'none' or 'head'")
	case !slices.Contains(scalings, config.Rope.Scaling):
		return other("rope.scaling", formats.Shown(config.Rope.Scaling), "'"+strings.Join(scalings, "' or '")+"'")
	case config.Rope.Rotated != 0 && config.Rope.Rotated != config.HeadDim:
		return other("rope.rotated", fmt.Sprint(config.Rope.Rotated), "0, which is all of a head")
	}
	return nil
}

// sizesOf gives the sizes of a model that trains, without what is not the same beside an adapter.
func sizesOf(config LlamaConfig) model.Config {
	made, context := model.Default(), config.Context
	if config.Window > 0 {
		context = min(context, config.Window)
	}
	made.VocabSize, made.HiddenSize, made.NumLayers = config.VocabSize, config.HiddenSize, config.NumLayers
	made.NumHeads, made.NumKVHeads, made.HeadDim = config.NumHeads, config.NumKVHeads, config.HeadDim
	made.NumExperts, made.ExpertsPerToken, made.FFNSize = config.NumExperts, config.ExpertsPerToken, config.FFNSize
	made.Context, made.ExtendedContext = context, context
	made.RopeBase, made.NTKAlpha, made.NormEps = config.Rope.Base, 1, config.NormEps
	made.QKNorm, made.TieEmbeddings = config.QKNorm == NormOfHead, config.TieEmbeddings
	return made
}

// llama3Factor gives the factor of llama3's scaling with the divisors of a model. GGUF files have these alone, so the other
// numbers must be those of Llama 3.1 to 3.3, which are ours where nothing is said.
func llama3Factor(config LlamaConfig, usual model.Config) (float64, error) {
	divisors, factor := config.Rope.Divisors, max(1, float64(slices.Max(config.Rope.Divisors)))
	low, high, original := usual.RopeLow, usual.RopeHigh, float64(usual.RopeOriginal)
	ours := model.Llama3Divisors(config.Rope.Base, config.HeadDim, factor, low, high, original)
	for at, one := range ours {
		if math.Abs(float64(one)-float64(divisors[at])) > nearDivisor*float64(one) {
			return 0, fmt.Errorf("rope.divisors are not those of Llama 3.1, of %v and %v turns in %v positions; all weights are "+
				"trained of models with these, or without", low, high, original)
		}
	}
	return factor, nil
}

// isReordered says whether a tensor is of queries or keys whose pairs lie side by side.
func (c LlamaConfig) isReordered(name string) bool {
	if c.Rope.Layout == RopeHalf {
		return false
	}
	rotated := []string{".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight"}
	return IsRotated(name) || slices.ContainsFunc(rotated, func(end string) bool { return strings.HasSuffix(name, end) })
}

// inOrder gives a tensor with half-split pairs of queries and keys, the order of folders: as it is, or a copy.
func (c LlamaConfig) inOrder(name string, part formats.StoredTensor) formats.StoredTensor {
	if !c.isReordered(name) {
		return part
	}
	shape := part.Shape
	if len(shape) == 1 {
		part.Shape = []int{shape[0], 1}
	}
	part = part.RowsInOrder(halfSplitOrder(c.HeadDim))
	part.Shape = shape
	return part
}

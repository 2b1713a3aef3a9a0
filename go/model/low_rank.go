package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// LowRankTargets are the projections of a layer that may have an adapter, in its order.
func LowRankTargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

// LowRank is what an adapter is made with: the rank of its factors, alpha, by which their product counts alpha / rank times,
// and the projections that have one, of LowRankTargets.
type LowRank struct {
	Rank    int
	Alpha   float64
	Targets []string
}

// Scale is alpha / rank.
func (l LowRank) Scale() float64 { return l.Alpha / float64(l.Rank) }

// Ends of the names of factors.
const (
	factorA = ".lora_A.weight"
	factorB = ".lora_B.weight"
)

// lastPart is what follows the last dot of a name.
func lastPart(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// NewLowRankLayout lays out the factors beside a dense model of a configuration, layer after layer, of each matrix that is
// adapted first A, then B:
//
//	model.layers.L.self_attn.{q,k,v,o}_proj.lora_A.weight     [rank, in]
//	model.layers.L.self_attn.{q,k,v,o}_proj.lora_B.weight     [out, rank]
//	model.layers.L.mlp.{gate,up,down}_proj.lora_{A,B}.weight
//
// All of them decay.
func NewLowRankLayout(config Config, options LowRank) *Layout {
	layout := &Layout{byName: make(map[string]int), layers: config.NumLayers, tied: config.TieEmbeddings}
	for _, spec := range NewLayout(config).Specs {
		module := strings.TrimSuffix(spec.Name, ".weight")
		if slices.Contains(options.Targets, lastPart(module)) {
			layout.add(module+factorA, options.Rank, spec.Shape[1])
			layout.add(module+factorB, spec.Shape[0], options.Rank)
		}
	}
	layout.NumDecayed = layout.Size
	return layout
}

// FactorsOf gives, of a layout of factors, the names of A and B of each matrix that is adapted, by the matrix's name.
func (l *Layout) FactorsOf() map[string][2]string {
	found := make(map[string][2]string)
	for _, spec := range l.Specs {
		if module, isA := strings.CutSuffix(spec.Name, factorA); isA {
			found[module+".weight"] = [2]string{spec.Name, module + factorB}
		}
	}
	return found
}

// FrozenWeights are the weights of a model that stay as they are stored, by the names of LlamaConfig.Shapes of package stored.
type FrozenWeights interface {
	// Matrix copies a matrix to the device, u8 [rows, row bytes], and gives its format.
	Matrix(ctx *cuda.Context, name string) (*tensor.Tensor, cuda.Format, error)
	// Ternary packs a ternary matrix on the device, u8 [stored, row bytes], and gives the scale of each output, f32 [n].
	Ternary(ctx *cuda.Context, name string) (data, scale *tensor.Tensor, err error)
	// Vector copies the gain of a norm, or a bias, to the device, in f32; nil where there is none of that name.
	Vector(ctx *cuda.Context, name string) (*tensor.Tensor, error)
	// Rope are the tables of the rotary embedding.
	Rope() (*layer.RopeTables, error)
}

// frozenTensors are what a model with an adapter has beside the factors.
type frozenTensors struct {
	unwanted *tensor.Tensor // where norms add gradients that nobody wants
	tensors  []*tensor.Tensor
}

func (f *frozenTensors) close() error {
	var err error
	for _, one := range f.tensors {
		err = errors.Join(err, one.Close())
	}
	f.tensors = nil
	return err
}

// NewLowRank makes a model of a configuration whose weights stay as they are stored, with an adapter beside it, of which the
// adapter alone is trained: Parameters has the factors, and Weights is the same arena. Activations are f32.
//
// A begins with uniform numbers from -1/sqrt(in) to 1/sqrt(in), tensor number i of the layout from stream i of the seed, and B
// with zeros: what PEFT begins with. (Hu et al. 2021, section 4.1; He et al. 2015, eq. 7 with a slope of sqrt(5))
func NewLowRank(ctx *cuda.Context, config Config, weights FrozenWeights, options LowRank, seed int64) (*MoETransformer, error) {
	return newLowRank(ctx, config, weights, options, func(arena *Arena) error { return arena.initializeFactors(seed) })
}

// LoadLowRank is NewLowRank with given factors.
func LoadLowRank(ctx *cuda.Context, config Config, weights FrozenWeights, options LowRank, factors Weights) (*MoETransformer, error) {
	return newLowRank(ctx, config, weights, options, func(arena *Arena) error { return arena.Load(factors) })
}

func newLowRank(
	ctx *cuda.Context, config Config, weights FrozenWeights, options LowRank, values func(*Arena) error,
) (*MoETransformer, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	m := &MoETransformer{
		Config: config, Precision: F32, LowRank: &options, Layout: NewLowRankLayout(config, options), ctx: ctx,
		allRows: &layer.AllRows{},
	}
	err := m.buildLowRank(weights)
	if err == nil {
		err = values(m.Parameters)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *MoETransformer) buildLowRank(weights FrozenWeights) (err error) {
	if m.Parameters, err = NewArena(m.ctx, m.Layout, cuda.F32); err != nil {
		return err
	}
	m.Weights = m.Parameters
	if m.Gradients, err = NewArena(m.ctx, m.Layout, cuda.F32); err != nil {
		return err
	}
	if m.rope, err = weights.Rope(); err != nil {
		return err
	}
	widest := max(m.Config.HiddenSize, m.Config.NumHeads*m.Config.HeadDim, m.Config.FFNSize)
	if m.frozen.unwanted, err = tensor.Zeros(m.ctx, cuda.F32, widest); err != nil {
		return err
	}
	m.frozen.tensors = append(m.frozen.tensors, m.frozen.unwanted)
	views := &frozenViewer{model: m, weights: weights}
	table, format := views.matrix("model.embed_tokens.weight")
	m.embedding = &layer.Embedding{Weight: table, Format: format, Dim: m.Config.HiddenSize}
	if !m.Config.TieEmbeddings {
		table, format = views.matrix("lm_head.weight")
	}
	for at := range m.Config.NumLayers {
		m.blocks = append(m.blocks, views.block(at))
	}
	m.norm = views.norm("model.norm.weight")
	m.head = &layer.FrozenLinear{Weight: table, Format: format}
	return views.err
}

// frozenViewer makes layers over stored weights and factors; it holds the first error.
type frozenViewer struct {
	model   *MoETransformer
	weights FrozenWeights
	err     error
}

// keep makes a tensor the model's to close.
func (v *frozenViewer) keep(made *tensor.Tensor, err error) *tensor.Tensor {
	if v.err == nil {
		v.err = err
	}
	if made != nil {
		v.model.frozen.tensors = append(v.model.frozen.tensors, made)
	}
	return made
}

func (v *frozenViewer) matrix(name string) (*tensor.Tensor, cuda.Format) {
	if v.err != nil {
		return nil, 0
	}
	made, format, err := v.weights.Matrix(v.model.ctx, name)
	return v.keep(made, err), format
}

func (v *frozenViewer) ternary(name string) (data, scale *tensor.Tensor) {
	if v.err != nil {
		return nil, nil
	}
	data, scale, err := v.weights.Ternary(v.model.ctx, name)
	return v.keep(data, err), v.keep(scale, err)
}

func (v *frozenViewer) vector(name string) *tensor.Tensor {
	if v.err != nil {
		return nil
	}
	return v.keep(v.weights.Vector(v.model.ctx, name))
}

func (v *frozenViewer) norm(name string) *layer.RMSNorm {
	made := &layer.RMSNorm{Weight: v.vector(name), Eps: v.model.Config.NormEps}
	if v.err == nil && made.Weight == nil {
		v.err = fmt.Errorf("there is no tensor %s", name)
	}
	if v.err == nil {
		made.Grad, v.err = v.model.frozen.unwanted.Narrow(0, 0, made.Weight.Size())
	}
	return made
}

func (v *frozenViewer) factor(arena *Arena, name string) *tensor.Tensor {
	if v.err != nil {
		return nil
	}
	var made *tensor.Tensor
	made, v.err = arena.Parameter(name)
	return made
}

// linear is a projection, with its bias and its adapter where it has them.
func (v *frozenViewer) linear(module string) *layer.FrozenLinear {
	made, m := &layer.FrozenLinear{}, v.model
	if m.Config.Ternary {
		made.Weight, made.Scale = v.ternary(module + ".weight")
	} else {
		made.Weight, made.Format = v.matrix(module + ".weight")
		made.Bias = v.vector(module + ".bias")
	}
	if slices.Contains(m.LowRank.Targets, lastPart(module)) {
		made.LowRank = &layer.LowRank{
			A: v.factor(m.Parameters, module+factorA), B: v.factor(m.Parameters, module+factorB),
			AGrad: v.factor(m.Gradients, module+factorA), BGrad: v.factor(m.Gradients, module+factorB),
			Scale: float32(m.LowRank.Scale()),
		}
	}
	return made
}

// back is a projection back to the stream, behind a norm where weights are ternary.
func (v *frozenViewer) back(module, norm string) layer.Projection {
	if !v.model.Config.Ternary {
		return v.linear(module)
	}
	return &layer.NormedProjection{Norm: v.norm(norm + ".weight"), Of: v.linear(module)}
}

func (v *frozenViewer) block(at int) *layer.TransformerBlock {
	config, prefix := v.model.Config, fmt.Sprintf("model.layers.%d", at)
	attention, dense := prefix+".self_attn.", prefix+".mlp."
	heads := &layer.HeadNorms{HeadDim: config.HeadDim}
	for at, name := range []string{"q", "k", "v"} {
		heads.Products[at] = v.linear(attention + name + "_proj")
	}
	if config.QKNorm {
		for at, name := range []string{"q", "k"} {
			heads.Norms[at] = v.norm(attention + name + "_norm.weight")
		}
	}
	return &layer.TransformerBlock{
		Name:      prefix,
		InputNorm: v.norm(prefix + ".input_layernorm.weight"),
		Attention: &layer.MQAttention{
			Normed: heads, Output: v.back(attention+"o_proj", attention+"attn_sub_norm"), Rope: v.model.rope,
			Heads: config.NumHeads, KVHeads: config.NumKVHeads,
		},
		PostNorm: v.norm(prefix + ".post_attention_layernorm.weight"),
		MoE: &layer.MoELayer{Network: &layer.Gated{
			Gate: v.linear(dense + "gate_proj"), Up: v.linear(dense + "up_proj"),
			Down: v.back(dense+"down_proj", dense+"ffn_sub_norm"), SquaredReLU: config.SquaredReLU,
		}},
	}
}

// initializeFactors sets what the factors begin with.
func (a *Arena) initializeFactors(seed int64) error {
	for stream, spec := range a.Layout.Specs {
		if !strings.HasSuffix(spec.Name, factorA) {
			continue
		}
		part, err := Span{spec.Offset, spec.Offset + spec.Size()}.Of(a.Data)
		if err != nil {
			return err
		}
		bound := float32(1 / math.Sqrt(float64(spec.Shape[1])))
		if err := tensor.Uniform(part, -bound, bound, seed, int64(stream), 0); err != nil {
			return err
		}
	}
	return nil
}

package stored

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// frozenPiece is the bytes of a tensor that are looked at together.
const frozenPiece = 1 << 24

// FrozenBase is a stored model as the base of an adapter that is trained: its weights stay as they are stored. Any stored
// model will do whose layers are those that train. Heads of queries and keys whose pairs lie side by side are read with
// half-split pairs, the order of folders, in which adapters are saved. It must be closed.
type FrozenBase struct {
	Model *Model
	// Config is the model's sizes as of one that trains.
	Config model.Config

	hash string
}

// OpenFrozenBase opens a model; nothing is loaded yet. An error when no adapter is trained beside it.
func OpenFrozenBase(path string) (*FrozenBase, error) {
	opened, err := Open(path)
	if err != nil {
		return nil, err
	}
	base := &FrozenBase{Model: opened}
	if base.Config, err = trainedConfig(opened.Config); err != nil {
		return nil, errors.Join(formats.Wrap(opened.Path, err), opened.Close())
	}
	return base, nil
}

// Close releases the files. Closing twice is fine.
func (b *FrozenBase) Close() error { return b.Model.Close() }

// trainedConfig gives the sizes of a stored model as those of one that trains. Its context is what all of its layers see. An
// error for a model beside which no adapter is trained, which names what it has.
func trainedConfig(config LlamaConfig) (model.Config, error) {
	number := func(value float64) string { return formats.Shown(value) }
	truth := func(value bool) string { return formats.Shown(value) }
	gates := []string{SiLU}
	if config.Ternary {
		gates = append(gates, ReLU2)
	}
	if !slices.Contains(gates, config.Activation) {
		return model.Config{}, otherPart("activation", formats.Shown(config.Activation), "'"+strings.Join(gates, "' or '")+"'")
	}
	for _, part := range []struct{ name, found, usual string }{
		{"num_experts", fmt.Sprint(config.NumExperts), "0"},
		{"post_norms", truth(config.PostNorms), truth(false)},
		{"norms_less_one", truth(config.NormsLessOne), truth(false)},
		{"sinks", truth(config.Sinks), truth(false)},
		{"embedding_scale", number(config.EmbeddingScale), number(1)},
		{"residual_scale", number(config.ResidualScale), number(1)},
		{"attention_scale", number(config.AttentionScale), number(0)},
		{"logits_scaling", number(config.LogitsScaling), number(1)},
		{"scores_cap", number(config.ScoresCap), number(0)},
		{"logits_cap", number(config.LogitsCap), number(0)},
		{"local_rope_base", number(config.LocalRopeBase), number(0)},
		{"sub_norms", truth(config.SubNorms), truth(config.Ternary)},
	} {
		if part.found != part.usual {
			return model.Config{}, otherPart(part.name, part.found, part.usual)
		}
	}
	scalings := []string{ScalingNone, ScalingLinear, ScalingNTK, ScalingLlama3}
	switch {
	case config.QKNorm == NormOfAll:
		return model.Config{}, otherPart("qk_norm", formats.Shown(config.QKNorm), "'none' or 'head'")
	case !slices.Contains(scalings, config.Rope.Scaling):
		return model.Config{}, otherPart("rope.scaling", formats.Shown(config.Rope.Scaling), "'"+strings.Join(scalings, "' or '")+"'")
	case config.Rope.Rotated != 0 && config.Rope.Rotated != config.HeadDim:
		return model.Config{}, otherPart("rope.rotated", fmt.Sprint(config.Rope.Rotated), "0, which is all of a head")
	}
	made, err := model.Preset("6.9b") // of which only what an adapter's base has not stays
	if err != nil {
		return made, err
	}
	context := config.Context
	if config.Window > 0 {
		context = min(context, config.Window)
	}
	made.VocabSize, made.HiddenSize, made.NumLayers = config.VocabSize, config.HiddenSize, config.NumLayers
	made.NumHeads, made.NumKVHeads, made.HeadDim = config.NumHeads, config.NumKVHeads, config.HeadDim
	made.NumExperts, made.ExpertsPerToken, made.FFNSize = 0, 0, config.FFNSize
	made.Context, made.ExtendedContext = context, context
	made.RopeBase, made.NTKAlpha, made.NormEps = config.Rope.Base, 1, config.NormEps
	made.QKVBias, made.QKNorm = config.QKVBias && config.QKNorm == NoNorm, config.QKNorm == NormOfHead
	made.TieEmbeddings = config.TieEmbeddings
	made.Ternary, made.SquaredReLU = config.Ternary, config.Activation == ReLU2
	return made, made.Validate()
}

func otherPart(name, found, usual string) error {
	return fmt.Errorf("%s is %s; adapters are trained beside models with %s", name, found, usual)
}

// SHA256 is that of the tensors' stored bytes, one after the other in the order of LlamaConfig.Shapes, a tied head once; those
// of a ternary matrix are followed by its scale in f32, which of master weights they say themselves. An error where one in
// f32, f16 or bf16 is not finite, or a ternary matrix is wrong.
func (b *FrozenBase) SHA256() (string, error) {
	if b.hash != "" {
		return b.hash, nil
	}
	digest := sha256.New()
	for _, shape := range b.Model.Config.Shapes() {
		if b.Config.TieEmbeddings && shape.Name == headName {
			continue
		}
		parts := b.Model.Parts(shape.Name)
		if matrix := b.Model.Matrices[shape.Name]; matrix != nil {
			master, isMaster := matrix.Master()
			if !isMaster {
				_, scale, err := matrix.Codes()
				if err != nil {
					return "", err
				}
				digest.Write(matrix.Data)
				digest.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale)))
				matrix.Pages.Release(matrix.Data)
				continue
			}
			parts = []formats.StoredTensor{master}
		}
		for _, part := range parts {
			if err := b.addTo(digest, part); err != nil {
				return "", formats.Wrap(b.Model.Path, err)
			}
		}
	}
	b.hash = hex.EncodeToString(digest.Sum(nil))
	return b.hash, nil
}

// addTo hashes the bytes of a tensor, a piece at a time.
func (b *FrozenBase) addTo(digest hash.Hash, part formats.StoredTensor) error {
	bytes, row := part.Bytes(), part.RowBytes()
	step := max(1, frozenPiece/row) * row
	for first := 0; first < len(bytes); first += step {
		piece := bytes[first:min(first+step, len(bytes))]
		digest.Write(piece)
		if err := requireFinite(part, first/row, piece); err != nil {
			return err
		}
		part.Pages.Release(piece)
	}
	return nil
}

// requireFinite refuses rows, from one on, of a format without blocks that are not finite.
func requireFinite(part formats.StoredTensor, first int, rows []byte) error {
	if !part.Format.IsPlain() {
		return nil
	}
	for at, number := range formats.Widened(part.Format.Name, rows) {
		value := float64(number)
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			continue
		}
		found := "nan"
		if math.IsInf(value, 0) {
			found = strings.TrimPrefix(strings.ToLower(fmt.Sprint(value)), "+")
		}
		index := []int{at % part.Columns()}
		if len(part.Shape) > 1 {
			index = []int{first + at/part.Columns(), index[0]}
		}
		return fmt.Errorf("tensor %s is not finite, first at %s (%s)", part.Name, model.ShapeText(index), found)
	}
	return nil
}

// Record is what is kept of it beside an adapter: where it lies, and the hash of its weights.
func (b *FrozenBase) Record() (folder, hash string, err error) {
	if folder, err = formats.Resolve(b.Model.Path); err == nil {
		hash, err = b.SHA256()
	}
	return folder, hash, err
}

// Rope makes tables of the rotary embedding for sequences of up to its context.
func (b *FrozenBase) Rope() (*layer.RopeTables, error) {
	config := b.Model.Config
	base, ntkAlpha, scale, err := config.RopeOptions(b.Config.Context)
	if err != nil {
		return nil, err
	}
	return &layer.RopeTables{
		HeadDim: config.HeadDim, Base: base, NTKAlpha: ntkAlpha, Scale: scale, Divisors: config.RopeDivisors(b.Config.Context),
	}, nil
}

// Matrix copies a matrix to the device, u8 [rows, row bytes], and gives its format.
func (b *FrozenBase) Matrix(ctx *cuda.Context, name string) (*tensor.Tensor, cuda.Format, error) {
	part := b.inOrder(name, b.Model.Parts(name)[0])
	made, err := tensor.New(ctx, cuda.U8, part.Rows(), part.RowBytes())
	if err == nil {
		err = made.Upload(part.Bytes())
	}
	part.Pages.Release(part.Data)
	return made, cuda.Format(part.Format.Code), err
}

// Ternary packs a ternary matrix on the device, u8 [stored, row bytes], and gives the scale of each output, f32 [n]. Rows of
// queries and keys are as they are stored: a BitNet has half-split pairs in files of every kind.
func (b *FrozenBase) Ternary(ctx *cuda.Context, name string) (data, scale *tensor.Tensor, err error) {
	matrix := b.Model.Matrices[name]
	err = layer.Run(ctx, func(p *layer.Pass) {
		stored, rowBytes := ternary.Tern2Shape(matrix.Rows, matrix.Columns)
		data, scale = p.Empty(cuda.U8, stored, rowBytes), p.Empty(cuda.F32, matrix.Rows)
		p.Check(tensor.Write(scale, PackTernary(p, []CodesToPack{DecodeToPack(matrix)}, data)))
		data, scale = p.Keep(data), p.Keep(scale)
	})
	if err != nil {
		return nil, nil, err
	}
	return data, scale, nil
}

// Vector copies the gain of a norm, or a bias, to the device, in f32; nil where there is none of that name.
func (b *FrozenBase) Vector(ctx *cuda.Context, name string) (*tensor.Tensor, error) {
	parts := b.Model.Parts(name)
	if len(parts) == 0 {
		return nil, nil
	}
	values, err := parts[0].Floats()
	if err != nil {
		return nil, formats.Wrap(b.Model.Path, err)
	}
	if b.isReordered(name) {
		order, made := InterleavedOrder(b.Config.HeadDim), make([]float32, len(values))
		for first := 0; first < len(values); first += len(order) {
			for from, to := range order {
				made[first+to] = values[first+from]
			}
		}
		values = made
	}
	return tensor.From(ctx, values, len(values))
}

// isReordered says whether a tensor is of queries or keys whose pairs lie side by side.
func (b *FrozenBase) isReordered(name string) bool {
	if b.Model.Config.Rope.Layout == RopeHalf {
		return false
	}
	rotated := []string{".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight"}
	return IsRotated(name) || slices.ContainsFunc(rotated, func(end string) bool { return strings.HasSuffix(name, end) })
}

// inOrder gives a matrix of queries or keys with half-split pairs.
func (b *FrozenBase) inOrder(name string, part formats.StoredTensor) formats.StoredTensor {
	if !b.isReordered(name) {
		return part
	}
	return inOrderOfFolders(part, name, b.Config.HeadDim)
}

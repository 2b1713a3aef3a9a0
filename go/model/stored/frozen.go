package stored

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
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
	if base.Config, err = configBeside(opened.Config); err != nil {
		return nil, errors.Join(formats.Wrap(opened.Path, err), opened.Close())
	}
	return base, nil
}

// Close releases the files. Closing twice is fine.
func (b *FrozenBase) Close() error { return b.Model.Close() }

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
	part := b.Model.Config.inOrder(name, b.Model.Parts(name)[0])
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
	values, err := b.Model.Config.inOrder(name, parts[0]).Floats()
	if err != nil {
		return nil, formats.Wrap(b.Model.Path, err)
	}
	return tensor.From(ctx, values, len(values))
}

package train

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tensor"
)

// MomentsKind is what the moments of AdamW are kept in.
type MomentsKind string

// The kinds there are: f8 is 8-bit codes with a scale for every 256 parameters.
const (
	MomentsF32  MomentsKind = "f32"
	MomentsBF16 MomentsKind = "bf16"
	MomentsF8   MomentsKind = "f8"
)

// MomentsKinds lists them, from the widest.
func MomentsKinds() []MomentsKind { return []MomentsKind{MomentsF32, MomentsBF16, MomentsF8} }

// momentBlock is the parameters that share a scale, as in bindings.h.
const momentBlock = 256

func blocksOf(count int) int { return (count + momentBlock - 1) / momentBlock }

// Moments are both moments of all parameters: arenas, or tensors of codes and of scales.
//
// In a checkpoint those of f32 and bf16 are tensors by the parameters' names; codes and scales are four tensors over the
// whole arena, since a block may begin in one parameter and end in the next.
type Moments struct {
	Kind          MomentsKind
	First, Second *model.Arena // nil with codes

	parts []momentPart // of f8: first codes, first scales, second codes, second scales
}

type momentPart struct {
	name string
	data *tensor.Tensor
}

func newMoments(ctx *cuda.Context, layout *model.Layout, kind MomentsKind) (*Moments, error) {
	m := &Moments{Kind: kind}
	var err error
	if kind != MomentsF8 {
		dtype := cuda.F32
		if kind == MomentsBF16 {
			dtype = cuda.BF16
		}
		if m.First, err = model.NewArena(ctx, layout, dtype); err == nil {
			m.Second, err = model.NewArena(ctx, layout, dtype)
		}
	} else {
		for _, spec := range momentSpecs(layout, kind) {
			var data *tensor.Tensor
			if data, err = tensor.Zeros(ctx, spec.dtype, spec.shape...); err != nil {
				break
			}
			m.parts = append(m.parts, momentPart{spec.name, data})
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *Moments) close() error {
	if m == nil {
		return nil
	}
	err := errors.Join(m.First.Close(), m.Second.Close())
	for _, part := range m.parts {
		err = errors.Join(err, part.data.Close())
	}
	return err
}

// Tensors are all of them, first moments before second ones, codes before their scales.
func (m *Moments) Tensors() []*tensor.Tensor {
	if m.Kind != MomentsF8 {
		return []*tensor.Tensor{m.First.Data, m.Second.Data}
	}
	var all []*tensor.Tensor
	for _, part := range m.parts {
		all = append(all, part.data)
	}
	return all
}

// step is the form of AdamW for these moments.
func (m *Moments) step(grad, lr, step, scale, skip, param, copied *tensor.Tensor, config Config, decayed int64) error {
	beta1, beta2 := float32(config.Beta1), float32(config.Beta2)
	eps, decay := float32(config.Eps), float32(config.WeightDecay)
	switch all := m.Tensors(); m.Kind {
	case MomentsF8:
		return tensor.AdamWStepF8(grad, lr, step, scale, skip, param, all[0], all[1], all[2], all[3], copied, decayed,
			beta1, beta2, eps, decay)
	case MomentsBF16:
		return tensor.AdamWStepBF16(grad, lr, step, scale, skip, param, all[0], all[1], copied, decayed, beta1, beta2,
			eps, decay)
	default:
		return tensor.AdamWStep(grad, lr, step, scale, skip, param, all[0], all[1], copied, decayed, beta1, beta2, eps,
			decay)
	}
}

// A momentSpec is a tensor of a checkpoint's moments.
type momentSpec struct {
	name  string
	dtype cuda.DType
	shape []int
}

func momentSpecs(layout *model.Layout, kind MomentsKind) []momentSpec {
	if kind == MomentsF8 {
		codes, scales := []int{layout.Size}, []int{blocksOf(layout.Size)}
		return []momentSpec{
			{"first.codes", cuda.U8, codes}, {"first.scales", cuda.F32, scales},
			{"second.codes", cuda.U8, codes}, {"second.scales", cuda.F32, scales},
		}
	}
	dtype := cuda.F32
	if kind == MomentsBF16 {
		dtype = cuda.BF16
	}
	var specs []momentSpec
	for _, moment := range momentNames {
		for _, spec := range layout.Specs {
			specs = append(specs, momentSpec{moment + spec.Name, dtype, spec.Shape})
		}
	}
	return specs
}

var momentNames = []string{"first_moment.", "second_moment."}

// checkMoments says what keeps a file from being the moments of a layout: names, dtypes, shapes, and scales, each of
// which is the largest magnitude of its block.
func checkMoments(moments *safetensors.File, layout *model.Layout, kind MomentsKind) error {
	specs := momentSpecs(layout, kind)
	var expected []string
	for _, spec := range specs {
		expected = append(expected, spec.name)
	}
	if err := model.CheckNames(moments.Names(), expected); err != nil {
		return err
	}
	for _, spec := range specs {
		found, _ := moments.Tensor(spec.name)
		if string(found.DType) != strings.ToUpper(spec.dtype.String()) || !slices.Equal(found.Shape, spec.shape) {
			return fmt.Errorf("tensor %s is not %s of shape %s", spec.name, spec.dtype, model.ShapeText(spec.shape))
		}
		if !strings.HasSuffix(spec.name, ".scales") || kind != MomentsF8 {
			continue
		}
		for at := range spec.shape[0] {
			scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(found.Bytes[4*at:])))
			if !(scale >= 0 && !math.IsInf(scale, 0)) {
				return fmt.Errorf("element %d of tensor %s is %v; a scale is finite and at least 0", at, spec.name,
					scale)
			}
		}
	}
	return nil
}

// load takes what a checkpoint kept, which was checked.
func (m *Moments) load(moments *safetensors.File) error {
	for _, part := range m.parts {
		stored, _ := moments.Tensor(part.name)
		if err := part.data.Upload(stored.Bytes); err != nil {
			return err
		}
	}
	for at, arena := range m.arenas() {
		for _, spec := range arena.Layout.Specs {
			view, err := arena.Parameter(spec.Name)
			if err != nil {
				return err
			}
			stored, _ := moments.Tensor(momentNames[at] + spec.Name)
			if err := view.Upload(stored.Bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Moments) arenas() []*model.Arena {
	if m.Kind == MomentsF8 {
		return nil
	}
	return []*model.Arena{m.First, m.Second}
}

// stored gives the tensors as they are written.
func (m *Moments) stored() ([]safetensors.Tensor, error) {
	var tensors []safetensors.Tensor
	for _, part := range m.parts {
		dtype := safetensors.DType(strings.ToUpper(part.data.DType().String()))
		tensors = append(tensors, safetensors.Tensor{
			Name: part.name, DType: dtype, Shape: part.data.Shape(), Load: part.data.Download,
		})
	}
	for at, arena := range m.arenas() {
		part, err := stored(arena, momentNames[at])
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, part...)
	}
	return tensors, nil
}

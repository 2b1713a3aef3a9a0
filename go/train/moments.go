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

// Moments are both moments of the parameters that this rank updates.
//
// In a checkpoint those of f32 and bf16 are tensors by the parameters' names; codes and scales are four tensors over the
// whole arena, since a block may begin in one parameter and end in the next.
type Moments struct {
	Kind MomentsKind

	layout *model.Layout
	own    model.Span       // the elements of the arenas that they are of
	parts  []*tensor.Tensor // first and second; of f8 first codes, first scales, second codes, second scales
}

func newMoments(ctx *cuda.Context, layout *model.Layout, kind MomentsKind, own model.Span) (*Moments, error) {
	m := &Moments{Kind: kind, layout: layout, own: own}
	type part struct {
		dtype cuda.DType
		size  int
	}
	each := []part{{cuda.F32, own.Size()}}
	switch kind {
	case MomentsBF16:
		each[0].dtype = cuda.BF16
	case MomentsF8:
		each = []part{{cuda.U8, own.Size()}, {cuda.F32, blocksOf(own.Size())}}
	}
	for _, of := range slices.Repeat(each, 2) {
		data, err := tensor.Zeros(ctx, of.dtype, of.size)
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		m.parts = append(m.parts, data)
	}
	return m, nil
}

func (m *Moments) close() error {
	if m == nil {
		return nil
	}
	var err error
	for _, part := range m.parts {
		err = errors.Join(err, part.Close())
	}
	return err
}

// Tensors are all of them, first moments before second ones, codes before their scales.
func (m *Moments) Tensors() []*tensor.Tensor { return slices.Clone(m.parts) }

// step is the form of AdamW for these moments, on the elements that they are of. grad, param and copied are whole.
func (m *Moments) step(grad, lr, step, scale, skip, param, copied *tensor.Tensor, config Config) error {
	if m.own.Size() == 0 {
		return nil
	}
	for _, arena := range []**tensor.Tensor{&grad, &param, &copied} {
		if *arena == nil {
			continue
		}
		own, err := m.own.Of(*arena)
		if err != nil {
			return err
		}
		*arena = own
	}
	beta1, beta2 := float32(config.Beta1), float32(config.Beta2)
	eps, decay := float32(config.Eps), float32(config.WeightDecay)
	decayed, first := int64(min(max(m.layout.NumDecayed-m.own.Begin, 0), m.own.Size())), int64(m.own.Begin)
	switch all := m.parts; m.Kind {
	case MomentsF8:
		return tensor.AdamWStepF8(grad, lr, step, scale, skip, param, all[0], all[1], all[2], all[3], copied, decayed,
			first, beta1, beta2, eps, decay)
	case MomentsBF16:
		return tensor.AdamWStepBF16(grad, lr, step, scale, skip, param, all[0], all[1], copied, decayed, first, beta1,
			beta2, eps, decay)
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
	return m.each(func(name string, _ []int, first int, own *tensor.Tensor) error {
		stored, _ := moments.Tensor(name)
		begin := first * own.DType().Size()
		return own.Upload(stored.Bytes[begin : begin+int(own.Bytes())])
	})
}

// stored gives the tensors as they are written.
func (m *Moments) stored() (tensors []safetensors.Tensor, err error) {
	err = m.each(func(name string, shape []int, first int, own *tensor.Tensor) error {
		tensors = append(tensors, storedPart(name, shape, first, own))
		return nil
	})
	return tensors, err
}

// each calls `do` with the name and the shape of each tensor of a checkpoint, and with those of its elements, from the
// first on, that are here.
func (m *Moments) each(do func(name string, shape []int, first int, own *tensor.Tensor) error) error {
	if m.Kind != MomentsF8 {
		for at, moment := range m.parts {
			err := eachParameter(m.layout, m.own, moment, func(spec model.Spec, first int, own *tensor.Tensor) error {
				return do(momentNames[at]+spec.Name, spec.Shape, first, own)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	for at, spec := range momentSpecs(m.layout, m.Kind) {
		first := m.own.Begin
		if spec.dtype == cuda.F32 {
			first = blocksOf(first)
		}
		if err := do(spec.name, spec.shape, first, m.parts[at]); err != nil {
			return err
		}
	}
	return nil
}

// eachParameter calls `do` with each parameter, and with those of its elements, from the first on, that are in `data`,
// which has the elements `own` of an arena.
func eachParameter(
	layout *model.Layout, own model.Span, data *tensor.Tensor,
	do func(spec model.Spec, first int, own *tensor.Tensor) error,
) error {
	for _, spec := range layout.Specs {
		begin := min(max(spec.Offset, own.Begin), own.End)
		end := max(begin, min(spec.Offset+spec.Size(), own.End))
		first := 0
		if begin < end {
			first = begin - spec.Offset
		}
		part, err := data.Narrow(0, begin-own.Begin, end-begin)
		if err == nil {
			err = do(spec, first, part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// storedPart is a tensor as it is written, of which the elements from `first` on that are here.
func storedPart(name string, shape []int, first int, own *tensor.Tensor) safetensors.Tensor {
	begin := first * own.DType().Size()
	return safetensors.Tensor{
		Name: name, DType: safetensors.DType(strings.ToUpper(own.DType().String())), Shape: shape, Load: own.Download,
		Part: &[2]int{begin, begin + int(own.Bytes())},
	}
}

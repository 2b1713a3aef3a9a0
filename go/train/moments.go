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

// Bytes is the memory of both moments of so many parameters.
func (k MomentsKind) Bytes(count int) int {
	switch k {
	case MomentsBF16:
		return 2 * 2 * count
	case MomentsF8:
		return 2 * (count + 4*blocksOf(count))
	default:
		return 2 * 4 * count
	}
}

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
	own    []model.Span     // the elements of the arenas that they are of, each from a multiple of a block on
	parts  []*tensor.Tensor // first and second; of f8 first codes, first scales, second codes, second scales
}

func newMoments(ctx *cuda.Context, layout *model.Layout, kind MomentsKind, own []model.Span) (*Moments, error) {
	m, elements := &Moments{Kind: kind, layout: layout, own: own}, 0
	for _, span := range own {
		elements += span.Size()
	}
	type part struct {
		dtype cuda.DType
		size  int
	}
	each := []part{{cuda.F32, elements}}
	switch kind {
	case MomentsBF16:
		each[0].dtype = cuda.BF16
	case MomentsF8:
		each = []part{{cuda.U8, elements}, {cuda.F32, blocksOf(elements)}}
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

// Tensors are all of them, span after span, first moments before second ones, codes before their scales.
func (m *Moments) Tensors() []*tensor.Tensor { return slices.Clone(m.parts) }

// step is the form of AdamW for these moments, on the elements that they are of. grad, param and copied are whole.
func (m *Moments) step(grad, lr, step, scale, skip, param, copied *tensor.Tensor, config Config) error {
	begin := 0
	for _, span := range m.own {
		arenas := []*tensor.Tensor{grad, param, copied}
		for at, arena := range arenas {
			if arena == nil {
				continue
			}
			own, err := span.Of(arena)
			if err != nil {
				return err
			}
			arenas[at] = own
		}
		own, err := m.within(begin, span.Size())
		if err == nil {
			err = m.stepOn(span, own, arenas[0], lr, step, scale, skip, arenas[1], arenas[2], config)
		}
		if err != nil {
			return err
		}
		begin += span.Size()
	}
	return nil
}

// within gives of each of the parts those of `count` elements from one on.
func (m *Moments) within(begin, count int) ([]*tensor.Tensor, error) {
	own := make([]*tensor.Tensor, len(m.parts))
	for at, part := range m.parts {
		first, size := begin, count
		if m.scales(at) {
			first, size = begin/momentBlock, blocksOf(count)
		}
		var err error
		if own[at], err = part.Narrow(0, first, size); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// scales says whether a part has one number for a block.
func (m *Moments) scales(part int) bool { return m.Kind == MomentsF8 && part%2 == 1 }

// stepOn is step on the elements of one span, of which all tensors are.
func (m *Moments) stepOn(
	span model.Span, own []*tensor.Tensor, grad, lr, step, scale, skip, param, copied *tensor.Tensor, config Config,
) error {
	beta1, beta2 := float32(config.Beta1), float32(config.Beta2)
	eps, decay := float32(config.Eps), float32(config.WeightDecay)
	decayed, first := int64(min(max(m.layout.NumDecayed-span.Begin, 0), span.Size())), int64(span.Begin)
	switch m.Kind {
	case MomentsF8:
		return tensor.AdamWStepF8(grad, lr, step, scale, skip, param, own[0], own[1], own[2], own[3], copied, decayed,
			first, beta1, beta2, eps, decay)
	case MomentsBF16:
		return tensor.AdamWStepBF16(grad, lr, step, scale, skip, param, own[0], own[1], copied, decayed, first, beta1,
			beta2, eps, decay)
	default:
		return tensor.AdamWStep(grad, lr, step, scale, skip, param, own[0], own[1], copied, decayed, beta1, beta2, eps,
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
	return m.each(func(name string, first int, own *tensor.Tensor) error {
		stored, _ := moments.Tensor(name)
		begin := first * own.DType().Size()
		return own.Upload(stored.Bytes[begin : begin+int(own.Bytes())])
	})
}

// stored gives the tensors as they are written.
func (m *Moments) stored() ([]safetensors.Tensor, error) {
	writing := newStoredTensors()
	for _, spec := range momentSpecs(m.layout, m.Kind) {
		writing.add(spec.name, spec.dtype, spec.shape)
	}
	return writing.tensors, m.each(writing.addPart)
}

// each calls `do` with the name of a tensor of a checkpoint and those of its elements, from the first on, that are here,
// part after part.
func (m *Moments) each(do func(name string, first int, own *tensor.Tensor) error) error {
	specs, begin := momentSpecs(m.layout, m.Kind), 0
	for _, span := range m.own {
		own, err := m.within(begin, span.Size())
		if err != nil {
			return err
		}
		for at, part := range own {
			switch {
			case m.scales(at):
				err = do(specs[at].name, span.Begin/momentBlock, part)
			case m.Kind == MomentsF8:
				err = do(specs[at].name, span.Begin, part)
			default:
				err = eachParameter(m.layout, span, part, func(name string, first int, own *tensor.Tensor) error {
					return do(momentNames[at]+name, first, own)
				})
			}
			if err != nil {
				return err
			}
		}
		begin += span.Size()
	}
	return nil
}

package model

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Arena is one buffer of a layout: the parameters themselves, their gradients, or a moment of the optimiser.
//
// Of several ranks, one may have only a part of it in memory, and a program that touches more of Data ends.
type Arena struct {
	Layout *Layout
	Data   *tensor.Tensor // [Layout.Size]

	spans   []Span // that are memory, in ascending order and apart
	current []Span // that are up to date; of these alone there are views
	why     error  // of a view of what is not
}

// NewArena makes an arena of zeros. It must be closed.
func NewArena(ctx *cuda.Context, layout *Layout, dtype cuda.DType) (*Arena, error) {
	data, err := tensor.Zeros(ctx, dtype, layout.Size)
	if err != nil {
		return nil, err
	}
	all := []Span{{0, layout.Size}}
	return &Arena{layout, data, all, all, nil}, nil
}

// newPartialArena makes an arena of which only spans are memory, of zeros; `why` is the error of a view of the rest.
func newPartialArena(
	ctx *cuda.Context, layout *Layout, dtype cuda.DType, spans []Span, why error,
) (*Arena, error) {
	ranges := make([][2]int, len(spans))
	for at, span := range spans {
		ranges[at] = [2]int{span.Begin, span.End}
	}
	data, err := tensor.NewParts(ctx, dtype, ranges, layout.Size)
	if err != nil {
		return nil, err
	}
	return &Arena{layout, data, spans, spans, why}, nil
}

// Close frees the arena.
func (a *Arena) Close() error {
	if a == nil {
		return nil
	}
	return a.Data.Close()
}

// isAll says that spans are all elements.
func (a *Arena) isAll(spans []Span) bool { return slices.Equal(spans, []Span{{0, a.Layout.Size}}) }

// MakeWhole gives the arena memory for all elements, where it has not; those that it had not are zeros, which are not up
// to date. `before`, which runs first where that is so, lets go of Data: that becomes another tensor.
func (a *Arena) MakeWhole(before func() error) error {
	if a.isAll(a.spans) {
		return nil
	}
	if err := before(); err != nil {
		return err
	}
	made, err := NewArena(a.Data.Context(), a.Layout, a.Data.DType())
	if err != nil {
		return err
	}
	for _, span := range a.spans {
		err = errors.Join(err, copyPart(made.Data, span.Begin, a.Data, span.Begin, span.Size()))
	}
	if err = errors.Join(err, a.Data.Close()); err != nil {
		return errors.Join(err, made.Close())
	}
	a.Data, a.spans = made.Data, made.spans
	return nil
}

// Bytes is how much memory there is.
func (a *Arena) Bytes() int {
	elements := 0
	for _, span := range a.spans {
		elements += span.Size()
	}
	return elements * a.Data.DType().Size()
}

// Parameter is a view of one parameter. An error where not all of it is memory, or up to date.
func (a *Arena) Parameter(name string) (*tensor.Tensor, error) {
	spec, found := a.Layout.Find(name)
	if !found {
		return nil, fmt.Errorf("there is no parameter %s", name)
	}
	return a.view(spec.Offset, spec.Shape)
}

// At gives the parameter that has an element at an address of the device, and the index of the element.
func (a *Arena) At(address uint64) (spec Spec, index []int, found bool) {
	start := a.Data.Memory().Address()
	if address < start || address >= start+uint64(a.Data.Bytes()) {
		return Spec{}, nil, false
	}
	element := int(address-start) / a.Data.DType().Size()
	after := sort.Search(len(a.Layout.Specs), func(at int) bool { return a.Layout.Specs[at].Offset > element })
	spec = a.Layout.Specs[after-1]
	element -= spec.Offset
	index = make([]int, len(spec.Shape))
	for at := range slices.Backward(spec.Shape) {
		index[at], element = element%spec.Shape[at], element/spec.Shape[at]
	}
	return spec, index, true
}

// fused is a view of neighbouring parameters as one tensor, from parameter `first` on.
func (a *Arena) fused(first string, shape ...int) (*tensor.Tensor, error) {
	spec, found := a.Layout.Find(first)
	if !found {
		return nil, fmt.Errorf("there is no parameter %s", first)
	}
	return a.view(spec.Offset, shape)
}

func (a *Arena) view(offset int, shape []int) (*tensor.Tensor, error) {
	wanted := Span{offset, offset + Spec{Shape: shape}.Size()}
	whole := slices.ContainsFunc(a.current, func(span Span) bool { return span.Meet(wanted) == wanted })
	if !whole {
		return nil, a.why
	}
	flat, err := wanted.Of(a.Data)
	if err != nil {
		return nil, err
	}
	return flat.View(shape...)
}

// initialize sets initial values: matrices from Normal(0, init_std), tensor i of the layout from stream i of `seed`;
// gains 1, biases 0.
func (a *Arena) initialize(config Config, seed int64) error {
	return a.eachHeld(func(stream int, first int, part *tensor.Tensor) error {
		switch spec := a.Layout.Specs[stream]; {
		case strings.HasSuffix(spec.Name, ".bias"):
			return tensor.Fill(part, 0)
		case len(spec.Shape) == 1:
			return tensor.Fill(part, 1)
		}
		return normal(part, first, float32(config.InitStd), seed, int64(stream))
	})
}

// eachHeld calls `do` with the number of each parameter and each part of it that is memory, which begins at its element
// `first`.
func (a *Arena) eachHeld(do func(spec, first int, part *tensor.Tensor) error) error {
	for at, spec := range a.Layout.Specs {
		all := Span{spec.Offset, spec.Offset + spec.Size()}
		for _, span := range a.spans {
			part := span.Meet(all)
			if part.Size() == 0 {
				continue
			}
			data, err := part.Of(a.Data)
			if err == nil {
				err = do(at, part.Begin-spec.Offset, data)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// drawnAtOnce is the elements of a block of the random generator.
const drawnAtOnce = 4

// normal gives y [n] the elements from `first` on of Normal(0, std).
func normal(y *tensor.Tensor, first int, std float32, seed, stream int64) error {
	block, inside := int64(first/drawnAtOnce), first%drawnAtOnce
	if inside == 0 {
		return tensor.Normal(y, 0, std, seed, stream, block)
	}
	drawn, err := tensor.New(y.Context(), y.DType(), drawnAtOnce)
	if err != nil {
		return err
	}
	err = tensor.Normal(drawn, 0, std, seed, stream, block)
	head := min(drawnAtOnce-inside, y.Size())
	if err == nil {
		err = copyPart(y, 0, drawn, inside, head)
	}
	if err = errors.Join(err, drawn.Close()); err != nil {
		return err
	}
	rest, err := y.Narrow(0, head, y.Size()-head)
	if err != nil {
		return err
	}
	return tensor.Normal(rest, 0, std, seed, stream, block+1)
}

// copyPart copies `count` elements of one vector, from one place on, to a place in another.
func copyPart(to *tensor.Tensor, at int, from *tensor.Tensor, first, count int) error {
	source, err := from.Narrow(0, first, count)
	if err != nil {
		return err
	}
	target, err := to.Narrow(0, at, count)
	if err != nil {
		return err
	}
	return target.Copy(source)
}

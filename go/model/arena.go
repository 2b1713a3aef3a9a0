package model

import (
	"fmt"
	"slices"
	"sort"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Arena is one buffer of a layout: the parameters themselves, their gradients, or a moment of the optimiser.
type Arena struct {
	Layout *Layout
	Data   *tensor.Tensor // [Layout.Size]
}

// NewArena makes an arena of zeros. It must be closed.
func NewArena(ctx *cuda.Context, layout *Layout, dtype cuda.DType) (*Arena, error) {
	data, err := tensor.Zeros(ctx, dtype, layout.Size)
	if err != nil {
		return nil, err
	}
	return &Arena{layout, data}, nil
}

// Close frees the arena.
func (a *Arena) Close() error {
	if a == nil {
		return nil
	}
	return a.Data.Close()
}

// Parameter is a view of one parameter.
func (a *Arena) Parameter(name string) (*tensor.Tensor, error) {
	spec, found := a.Layout.Find(name)
	if !found {
		return nil, fmt.Errorf("there is no parameter %s", name)
	}
	return a.span(spec.Offset, spec.Shape)
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
	return a.span(spec.Offset, shape)
}

func (a *Arena) span(offset int, shape []int) (*tensor.Tensor, error) {
	size := Spec{Shape: shape}.Size()
	flat, err := a.Data.Narrow(0, offset, size)
	if err != nil {
		return nil, err
	}
	return flat.View(shape...)
}

// initialize sets initial values: matrices from Normal(0, init_std), tensor i of the layout from stream i of `seed`;
// gains 1.
func (a *Arena) initialize(config Config, seed int64) error {
	for stream, spec := range a.Layout.Specs {
		view, err := a.Data.Narrow(0, spec.Offset, spec.Size())
		if err != nil {
			return err
		}
		if len(spec.Shape) == 1 {
			err = tensor.Fill(view, 1)
		} else {
			err = tensor.Normal(view, 0, float32(config.InitStd), seed, int64(stream), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

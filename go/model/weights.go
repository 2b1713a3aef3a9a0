package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Weights are named tensors from somewhere else, a file as a rule.
type Weights interface {
	// Names lists the tensors in any order.
	Names() []string
	// Shape gives a tensor's shape; false when there is none of this name.
	Shape(name string) ([]int, bool)
	// Floats gives a tensor's values as f32, row-major, whatever floating type they are stored as. Values of another type
	// are an error.
	Floats(name string) ([]float32, error)
}

// CheckWeights says what keeps weights from being those of a configuration: names that are missing or too many, or a
// shape that is another. It reads no values.
func CheckWeights(config Config, weights Weights) error {
	layout := NewLayout(config)
	if err := CheckNames(weights.Names(), layout.Names()); err != nil {
		return err
	}
	for _, spec := range layout.Specs {
		if shape, _ := weights.Shape(spec.Name); !slices.Equal(shape, spec.Shape) {
			return fmt.Errorf("tensor %s has shape %s; config.json makes it %s",
				spec.Name, ShapeText(shape), ShapeText(spec.Shape))
		}
	}
	return nil
}

// Load takes the arena's values from weights that CheckWeights has passed, rounded to the arena's element type.
func (a *Arena) Load(weights Weights) error {
	err := a.eachHeld(func(spec, first int, part *tensor.Tensor) error {
		values, err := weights.Floats(a.Layout.Specs[spec].Name)
		if err != nil {
			return err
		}
		return write(part, values[first:first+part.Size()])
	})
	if err == nil {
		a.current = a.spans
	}
	return err
}

// write gives a tensor values, which the library rounds, so that every language rounds alike.
func write(to *tensor.Tensor, values []float32) error {
	if to.DType() == cuda.F32 {
		return tensor.Write(to, values)
	}
	exact, err := tensor.From(to.Context(), values, to.Shape()...)
	if err != nil {
		return err
	}
	return errors.Join(tensor.Cast(exact, to), exact.Close())
}

// Names lists the parameters.
func (l *Layout) Names() []string {
	names := make([]string, len(l.Specs))
	for at, spec := range l.Specs {
		names[at] = spec.Name
	}
	return names
}

// CheckNames says which names are missing or too many.
func CheckNames(given, expected []string) error {
	for _, problem := range []struct {
		names, others []string
		words         string
	}{{expected, given, "missing"}, {given, expected, "not part of this model"}} {
		known := make(map[string]bool, len(problem.others))
		for _, name := range problem.others {
			known[name] = true
		}
		wrong := slices.DeleteFunc(slices.Clone(problem.names), func(name string) bool { return known[name] })
		if len(wrong) > 0 {
			more := ""
			if len(wrong) > 3 {
				more = fmt.Sprintf(" and %d more", len(wrong)-3)
			}
			return fmt.Errorf("tensors %s: %s%s", problem.words, strings.Join(wrong[:min(3, len(wrong))], ", "), more)
		}
	}
	return nil
}

// ShapeText writes a shape as messages show it: [320, 32].
func ShapeText(shape []int) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}

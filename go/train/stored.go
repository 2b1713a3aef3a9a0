package train

import (
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tensor"
)

// storedTensors are those of a file, each with the parts of it that are here.
type storedTensors struct {
	tensors []safetensors.Tensor
	at      map[string]int // by name
}

func newStoredTensors() *storedTensors { return &storedTensors{at: map[string]int{}} }

// add adds a tensor, of which nothing is here yet.
func (s *storedTensors) add(name string, dtype cuda.DType, shape []int) {
	s.at[name] = len(s.tensors)
	s.tensors = append(s.tensors, safetensors.Tensor{
		Name: name, DType: safetensors.DType(strings.ToUpper(dtype.String())), Shape: shape, Parts: []safetensors.Part{},
	})
}

// addPart adds elements of a tensor, from the first on, that are here.
func (s *storedTensors) addPart(name string, first int, own *tensor.Tensor) error {
	begin, of := first*own.DType().Size(), &s.tensors[s.at[name]]
	of.Parts = append(of.Parts, safetensors.Part{Begin: begin, End: begin + int(own.Bytes()), Load: own.Download})
	return nil
}

// eachParameter calls `do` with the name of each parameter that reaches into `span` of an arena, of which `data` has the
// elements, and with those of its elements, from the first on, that are there.
func eachParameter(
	layout *model.Layout, span model.Span, data *tensor.Tensor, do func(name string, first int, own *tensor.Tensor) error,
) error {
	for _, spec := range layout.Specs {
		part := span.Meet(model.Span{Begin: spec.Offset, End: spec.Offset + spec.Size()})
		if part.Size() == 0 {
			continue
		}
		own, err := data.Narrow(0, part.Begin-span.Begin, part.Size())
		if err == nil {
			err = do(spec.Name, part.Begin-spec.Offset, own)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

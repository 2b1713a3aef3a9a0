package engine

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// store owns tensors that live as long as the engine.
type store struct{ made []*tensor.Tensor }

// empty makes a tensor, its values not set.
func (s *store) empty(p *layer.Pass, dtype cuda.DType, shape ...int) *tensor.Tensor {
	return s.keep(p, p.Empty(dtype, shape...))
}

// zeros makes a tensor of zeros.
func (s *store) zeros(p *layer.Pass, dtype cuda.DType, shape ...int) *tensor.Tensor {
	made := s.empty(p, dtype, shape...)
	if p.Err() == nil {
		p.Check(made.Zero())
	}
	return made
}

// from makes a tensor of values.
func from[T tensor.Element](s *store, p *layer.Pass, dtype cuda.DType, values []T) *tensor.Tensor {
	made := s.empty(p, dtype, len(values))
	p.Check(tensor.Write(made, values))
	return made
}

// keep makes a pass's tensor the store's.
func (s *store) keep(p *layer.Pass, made *tensor.Tensor) *tensor.Tensor {
	if p.Err() == nil {
		s.made = append(s.made, p.Keep(made))
	}
	return made
}

func (s *store) close() error {
	var err error
	for _, made := range s.made {
		err = errors.Join(err, made.Close())
	}
	s.made = nil
	return err
}

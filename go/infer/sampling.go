// Package infer generates tokens and text from a model, one after another.
package infer

import (
	"errors"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// Sampling says how the next token is chosen. The zero value always picks the most likely token.
type Sampling struct {
	Temperature float64 // divides the logits; 0 always picks the most likely token
	TopK        int     // samples only from this many of the most likely tokens; 0 from all
	// TopP samples only from the shortest run of most likely tokens that reaches this probability; 0: no limit.
	TopP float64
	Seed int64 // the same seed gives the same tokens; sequence r of a batch uses Seed + r
}

// Validate says which option is outside its range.
func (s Sampling) Validate() error {
	if math.IsNaN(s.Temperature) || math.IsInf(s.Temperature, 0) || s.Temperature < 0 {
		return fmt.Errorf("temperature is %v; it must be a finite number, at least 0", s.Temperature)
	}
	if s.TopK < 0 || s.TopK > math.MaxInt32 {
		return fmt.Errorf("top_k is %d; it must be at least 1", s.TopK)
	}
	if !(s.TopP >= 0 && s.TopP <= 1) {
		return fmt.Errorf("top_p is %v; it must be above 0, at most 1", s.TopP)
	}
	return nil
}

// sampler draws on the device, one number after the other, which are counted there too.
type sampler struct {
	sampling           Sampling
	temperature, seeds *tensor.Tensor // f32, i64 [rows]
	steps              *tensor.Tensor // i32 [rows]
	topK, topP         *tensor.Tensor // i32, f32 [rows], or nil
}

func newSampler(ctx *cuda.Context, sampling Sampling, rows int) (*sampler, error) {
	s := &sampler{sampling: sampling}
	seeds := make([]int64, rows)
	for row := range seeds {
		seeds[row] = int64(uint64(sampling.Seed) + uint64(row)) // modulo 2^64, as keys of the generator count
	}
	err := firstError(
		func() (err error) { s.temperature, err = filled(ctx, float32(sampling.Temperature), rows); return },
		func() (err error) { s.seeds, err = tensor.From(ctx, seeds); return },
		func() (err error) { s.steps, err = tensor.Zeros(ctx, cuda.I32, rows); return },
		func() (err error) {
			if sampling.TopK > 0 {
				s.topK, err = filled(ctx, int32(sampling.TopK), rows)
			}
			return
		},
		func() (err error) {
			if sampling.TopP > 0 {
				s.topP, err = filled(ctx, float32(sampling.TopP), rows)
			}
			return
		},
	)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func filled[T tensor.Element](ctx *cuda.Context, value T, rows int) (*tensor.Tensor, error) {
	values := make([]T, rows)
	for row := range values {
		values[row] = value
	}
	return tensor.From(ctx, values)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sampler) close() error {
	return errors.Join(s.temperature.Close(), s.seeds.Close(), s.steps.Close(), s.topK.Close(), s.topP.Close())
}

// draw makes the next draw of each row of logits [rows, vocab], into ids i32 [rows]; none in a pass that failed.
func (s *sampler) draw(p *layer.Pass, logits, ids *tensor.Tensor) {
	switch {
	case p.Err() != nil:
		return
	case s.sampling.Temperature == 0:
		p.Check(tensor.Argmax(logits, ids))
		return
	case s.topP != nil:
		p.Check(tensor.TopPSample(logits, s.temperature, s.topK, s.topP, s.seeds, s.steps, ids))
	case s.topK != nil:
		p.Check(tensor.TopKSample(logits, s.temperature, s.topK, s.seeds, s.steps, ids))
	default:
		p.Check(tensor.Sample(logits, s.temperature, s.seeds, s.steps, ids))
	}
	p.Check(tensor.Increment(s.steps, 1))
}

package infer

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// Sampling says how the next token is chosen. The zero value always picks the most likely token.
type Sampling = engine.Sampling

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
		seeds[row] = sampling.Of(row).Seed
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

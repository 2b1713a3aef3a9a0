package train

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// LossScaling is what the next step of a training in f16 depends on.
type LossScaling struct {
	Scale     float64 // what the losses of the next step are multiplied by
	GoodSteps int     // steps since the scale last changed
	Skipped   int     // steps skipped so far
}

// lossScaling multiplies losses by a scale, so that small gradients do not vanish in f16, and finds the largest that
// fits. A step whose gradients overflow is skipped, and the scale backs off; after so many good steps it grows. All of
// it happens on the device, and nothing is read back. (Micikevicius et al. 2018, section 3.2)
type lossScaling struct {
	growth, backoff float32
	interval        int64

	scale, skip              *tensor.Tensor // of the last step: f32 [1]; i32 [1], 1 when it was skipped
	next, goodSteps, skipped *tensor.Tensor // f32 [1], i32 [1], i32 [1]: what the next step depends on
}

func newLossScaling(ctx *cuda.Context, config Config) (*lossScaling, error) {
	s := &lossScaling{
		growth: float32(config.LossScaleGrowth), backoff: float32(config.LossScaleBackoff),
		interval: int64(config.LossScaleInterval),
	}
	scalars := []scalarAt{
		{&s.scale, cuda.F32}, {&s.skip, cuda.I32}, {&s.next, cuda.F32}, {&s.goodSteps, cuda.I32}, {&s.skipped, cuda.I32},
	}
	if err := makeScalars(ctx, scalars); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.restore(LossScaling{Scale: config.LossScale}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *lossScaling) close() error {
	return closeScalars(s.scale, s.skip, s.next, s.goodSteps, s.skipped)
}

// scalarAt is the place of a tensor of one number, and its dtype.
type scalarAt struct {
	place **tensor.Tensor
	dtype cuda.DType
}

// makeScalars makes tensors of one zero. After an error the caller closes those that were made.
func makeScalars(ctx *cuda.Context, scalars []scalarAt) error {
	for _, scalar := range scalars {
		var err error
		if *scalar.place, err = tensor.Zeros(ctx, scalar.dtype, 1); err != nil {
			return err
		}
	}
	return nil
}

func closeScalars(scalars ...*tensor.Tensor) error {
	var err error
	for _, scalar := range scalars {
		err = errors.Join(err, scalar.Close())
	}
	return err
}

// state reads what the next step depends on from the device.
func (s *lossScaling) state() (LossScaling, error) {
	next, err := scalar(s.next)
	goodSteps, failure := counter(s.goodSteps)
	skipped, last := counter(s.skipped)
	return LossScaling{next, goodSteps, skipped}, errors.Join(err, failure, last)
}

func (s *lossScaling) restore(state LossScaling) error {
	return errors.Join(
		tensor.Write(s.next, []float32{float32(state.Scale)}),
		tensor.Write(s.goodSteps, []int32{int32(state.GoodSteps)}),
		tensor.Write(s.skipped, []int32{int32(state.Skipped)}),
	)
}

// begin takes the scale of a step, which update leaves as it is.
func (s *lossScaling) begin() error { return s.scale.Copy(s.next) }

// scaled gives y = factors * scale, both f32 [k].
func (s *lossScaling) scaled(p *layer.Pass, factors, y *tensor.Tensor) {
	for at := range factors.Dim(0) {
		p.Check(tensor.Mul(p.Narrow(factors, 0, at, 1), s.scale, p.Narrow(y, 0, at, 1)))
	}
}

// update sets `skip`, and the scale of the next step, from the norm f32 [1] of the gradients of the scaled losses.
func (s *lossScaling) update(norm *tensor.Tensor) error {
	return tensor.LossScaleUpdate(norm, s.next, s.goodSteps, s.skipped, s.skip, s.growth, s.backoff, s.interval)
}

func counter(of *tensor.Tensor) (int, error) {
	values, err := tensor.Read[int32](of)
	if err != nil {
		return 0, err
	}
	return int(values[0]), nil
}

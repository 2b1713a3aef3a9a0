package train

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// guard stops a training whose losses are not scaled from updating once gradients were not finite, so that the weights
// stay those that the bad step met. The norms of all steps are added up on the device: the sum is finite as long as all
// of them were. Nothing is read back before somebody asks.
type guard struct {
	sum                *tensor.Tensor // f32 [1], of the norms
	skip               *tensor.Tensor // i32 [1], 1 when nothing is updated any more
	scale              *tensor.Tensor // f32 [1], stays 1
	goodSteps, skipped *tensor.Tensor // i32 [1]
}

func newGuard(ctx *cuda.Context) (*guard, error) {
	g := &guard{}
	scalars := []scalarAt{
		{&g.sum, cuda.F32}, {&g.skip, cuda.I32}, {&g.scale, cuda.F32}, {&g.goodSteps, cuda.I32}, {&g.skipped, cuda.I32},
	}
	if err := makeScalars(ctx, scalars); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if err := g.reset(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *guard) close() error {
	return closeScalars(g.sum, g.skip, g.scale, g.goodSteps, g.skipped)
}

// reset forgets all steps.
func (g *guard) reset() error {
	return errors.Join(g.sum.Zero(), g.skip.Zero(), g.goodSteps.Zero(), g.skipped.Zero(), tensor.Fill(g.scale, 1))
}

// update sets `skip` from the norm f32 [1] of a step and from those before.
func (g *guard) update(norm *tensor.Tensor) error {
	if err := tensor.Add(norm, g.sum, g.sum); err != nil {
		return err
	}
	return tensor.LossScaleUpdate(g.sum, g.scale, g.goodSteps, g.skipped, g.skip, 1, 1, 1)
}

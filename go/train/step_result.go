package train

import (
	"errors"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// StepResult is what a step did. Values stay on the device until they are asked for; they last until the next step.
type StepResult struct {
	Step   int // steps done
	Tokens int // targets that counted

	trainer *Trainer
	calls   *capturedStep
}

// Loss is the mean cross-entropy over the targets of the whole batch, in nats.
func (r *StepResult) Loss() (float64, error) {
	return r.mean(r.calls.losses, nil, r.Tokens)
}

// AuxLoss is the load-balancing loss, the mean over the micro-batches by their tokens.
func (r *StepResult) AuxLoss() (float64, error) {
	return r.mean(r.calls.aux, r.calls.weights, r.calls.batch)
}

func (r *StepResult) mean(of, weights *tensor.Tensor, divisor int) (mean float64, err error) {
	err = r.trainer.Model.Exclusive(func() (err error) { mean, err = weightedMean(of, weights, divisor); return err })
	return mean, err
}

// ExpertCounts are the slots that chose each expert in the last micro-batch of the last replica, dropped ones included,
// a row a layer. Of several ranks all must ask.
func (r *StepResult) ExpertCounts() ([][]int32, error) {
	rows, err := r.chosen(func(use layer.ExpertUse) *tensor.Tensor { return use.Counts })
	comm := r.trainer.replicas.comm
	if err != nil || comm == nil {
		return rows, err
	}
	counts, err := tensor.From(comm.Context(), slices.Concat(rows...))
	if err != nil {
		return nil, err
	}
	err = comm.Broadcast(counts.Memory(), counts.Bytes(), comm.Ranks()-1)
	var all []int32
	if err == nil {
		all, err = tensor.Read[int32](counts)
	}
	if err = errors.Join(err, counts.Close()); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(rows[0]))), nil
}

// ExpertChoices are the experts of each token of the last micro-batch here, likeliest first, a row a layer.
func (r *StepResult) ExpertChoices() ([][]int32, error) {
	return r.chosen(func(use layer.ExpertUse) *tensor.Tensor { return use.Choices })
}

func (r *StepResult) chosen(of func(layer.ExpertUse) *tensor.Tensor) (rows [][]int32, err error) {
	rows = make([][]int32, len(r.calls.uses))
	for at, use := range r.calls.uses {
		if rows[at], err = read[int32](r.trainer, of(use)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// GradNorm is the global norm of the gradients before clipping, the loss scale divided out. In a skipped step it is not
// finite.
func (r *StepResult) GradNorm() (float64, error) {
	norm, err := r.scalar(r.trainer.norm)
	if err != nil || !r.Scaled() {
		return norm, err
	}
	scale, err := r.LossScale()
	return norm / scale, err
}

// LearningRate is the rate of this update; NaN in a skipped step, which makes none.
func (r *StepResult) LearningRate() (float64, error) {
	skipped, err := r.Skipped()
	if err != nil || skipped {
		return math.NaN(), err
	}
	return r.scalar(r.trainer.lr)
}

// Scaled tells whether losses are scaled, as in f16.
func (r *StepResult) Scaled() bool { return r.trainer.scaling != nil }

// LossScale is what the losses of this step were multiplied by; 1 in another precision than f16.
func (r *StepResult) LossScale() (float64, error) {
	if !r.Scaled() {
		return 1, nil
	}
	return r.scalar(r.trainer.scaling.scale)
}

// Skipped tells whether nothing was updated: because the gradients were not finite, or, in another precision than f16,
// those of a step before.
func (r *StepResult) Skipped() (bool, error) {
	values, err := read[int32](r.trainer, r.trainer.skip())
	return err == nil && values[0] != 0, err
}

// SkippedSteps is how many steps were skipped so far, this one included.
func (r *StepResult) SkippedSteps() (int, error) {
	if !r.Scaled() {
		return 0, nil
	}
	values, err := read[int32](r.trainer, r.trainer.scaling.skipped)
	if err != nil {
		return 0, err
	}
	return int(values[0]), nil
}

func (r *StepResult) scalar(of *tensor.Tensor) (float64, error) {
	values, err := read[float32](r.trainer, of)
	if err != nil {
		return 0, err
	}
	return float64(values[0]), nil
}

// read gives the values of a tensor that steps write, unless another goroutine is using the model.
func read[T tensor.Element](t *Trainer, of *tensor.Tensor) (values []T, err error) {
	err = t.Model.Exclusive(func() (err error) { values, err = tensor.Read[T](of); return err })
	return values, err
}

// weightedMean reads the mean of what was summed in parts; `weights` may be nil.
func weightedMean(parts, weights *tensor.Tensor, divisor int) (mean float64, err error) {
	y, err := tensor.New(parts.Context(), cuda.F32, 1)
	if err != nil {
		return 0, err
	}
	if err = tensor.WeightedMean(parts, weights, y, int64(divisor)); err == nil {
		mean, err = scalar(y)
	}
	return mean, errors.Join(err, y.Close())
}

func scalar(of *tensor.Tensor) (float64, error) {
	values, err := tensor.Read[float32](of)
	if err != nil {
		return 0, err
	}
	return float64(values[0]), nil
}

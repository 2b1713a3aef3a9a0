package train

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// ErrDiverged says that the loss is not a finite number any more, or above max_loss.
var ErrDiverged = errors.New("training diverged")

// DivergedError is an ErrDiverged that says at which step, and where it began.
type DivergedError struct {
	Step    int
	message string
}

func (e *DivergedError) Error() string { return e.message }

// Unwrap gives ErrDiverged.
func (e *DivergedError) Unwrap() error { return ErrDiverged }

const afterDivergence = "the last checkpoint is from before that. A lower learning rate or a longer warm-up usually " +
	"helps"

// diverged is the error of a step with a loss, and what was found out about it.
func diverged(step int, loss float64, found string) error {
	message := fmt.Sprintf("the loss is %.4g at step %d%s; %s", loss, step, found, afterDivergence)
	return &DivergedError{step, message}
}

// overflown is the error of a step in f16 whose gradients overflow whatever the loss scale.
func overflown(step int) error {
	return &DivergedError{step, fmt.Sprintf("the gradients overflow at step %d with the least loss scale there is; "+
		"the last checkpoint is from before that. A lower learning rate or another precision usually helps", step)}
}

// limit is the loss above which a run counts as diverged: by itself ten times that of equally likely tokens.
func (r *Run) limit() float64 {
	if most := r.Trainer.Config.MaxLoss; most != 0 {
		return most
	}
	return 10 * math.Log(float64(r.Trainer.Model.Config.VocabSize))
}

// requireConvergence is a DivergedError when the step of `result`, or one before it, gave gradients or a loss that are
// not finite, or a loss above the limit. A step in f16 that overflowed is none of these: it was skipped, and a lower
// loss scale can still help, if there is one.
func (r *Run) requireConvergence(result *StepResult) error {
	skipped, err := result.Skipped()
	if err != nil {
		return err
	}
	if skipped && result.Scaled() {
		scale, err := result.LossScale()
		if err == nil && scale == leastLossScale {
			err = overflown(result.Step)
		}
		return err
	}
	loss, err := result.Loss()
	switch {
	case err != nil:
		return err
	case skipped:
		// Nothing was updated since the first such step, so the weights are still those that it met.
		updates, err := counter(r.Trainer.step)
		if err != nil {
			return err
		}
		return r.explain(updates+1, loss)
	case !finite(loss):
		return r.explain(result.Step, loss)
	case loss > r.limit():
		largest := ": the largest gradient" + notSearched
		if r.Trainer.Model.Experts == nil {
			if largest, err = r.Trainer.largestOfAll(); err != nil {
				return err
			}
		}
		return diverged(result.Step, loss, fmt.Sprintf(", above max_loss (%.4g)%s", r.limit(), largest))
	}
	return nil
}

// notSearched is said instead of what only a rank with all experts can find.
const notSearched = " is not searched for while experts are on several ranks"

// largestOfAll is largestGradient of what all ranks have. All call it.
func (t *Trainer) largestOfAll() (string, error) {
	if t.Model.Partitioned == nil {
		if err := t.replicas.gather(t.Model.Gradients.Data); err != nil {
			return "", err
		}
	}
	return t.largestGradient()
}

// explain is the DivergedError of a step, which is run again to see where it began. `reported` is a loss for the case
// that this fails, or that a rank cannot do it, since it has a part of the experts alone.
func (r *Run) explain(step int, reported float64) error {
	if r.Trainer.Model.Experts != nil {
		return diverged(step, reported, ": the place where it began"+notSearched)
	}
	loss, found, err := r.inspect(step)
	if err != nil {
		found, loss = fmt.Sprintf(": where it began could not be found (%v)", err), reported
	}
	return diverged(step, loss, found)
}

// inspect runs the batch of a step again, which is a function of seed and position.
func (r *Run) inspect(step int) (loss float64, found string, err error) {
	config := r.Trainer.Config
	position := r.Position - (r.Trainer.Step()-step+1)*config.BatchSize
	order, err := r.order(position)
	if err != nil {
		return 0, "", err
	}
	batch, err := r.Data.Batch(order)
	if err != nil {
		return 0, "", err
	}
	return r.Trainer.inspect(batch, config.BatchSize)
}

// inspect computes loss and gradients of a batch once more, call by call, under a trace that finds the first value that
// is not finite. Of several ranks each runs all of the batch, so that all find the same.
func (t *Trainer) inspect(batch Batch, rows int) (loss float64, found string, err error) {
	if t.calls != nil { // its memory first
		before := t.calls
		t.calls = nil
		if err := before.close(); err != nil {
			return 0, "", err
		}
	}
	first, err := t.Model.Context().FirstNonfinite(func() error {
		loss, err = t.lossAndGradients(batch, rows)
		return err
	})
	if err == nil && first == nil {
		found, err = t.largestGradient()
	} else if err == nil {
		found = t.place(first)
	}
	return loss, found, err
}

// place says where a value is that is not finite: in a weight, in the gradient of one, or in what a call of a layer
// took in or gave.
func (t *Trainer) place(value *cuda.Nonfinite) string {
	what, index := value.Argument+" of "+value.In(), value.Index
	if spec, at, ok := t.Model.Weights.At(value.Address); ok {
		what, index = spec.Name, at
	} else if spec, at, ok := t.Model.Gradients.At(value.Address); ok {
		what, index = "the gradient of "+spec.Name, at
	}
	place := strings.ReplaceAll(fmt.Sprint(index), " ", ", ")
	return fmt.Sprintf(": %s is not finite, first at %s (%s)", what, place, value.Value)
}

// lossAndGradients is a step without its update.
func (t *Trainer) lossAndGradients(batch Batch, rows int) (loss float64, err error) {
	alone := &replicas{count: 1, last: 1, waiting: []int{0}, merges: []int{0}, held: t.replicas.held,
		gradients: t.Model.Gradients.Data}
	calls, err := newCapturedStep(
		t.Model, rows, len(batch.Inputs)/rows, t.Config.micro(rows), batch.DocumentEnds != nil, false, false, t.scaling, alone)
	if err != nil {
		return 0, err
	}
	tokens := countTargets(batch.Targets)
	err = t.Model.Exclusive(func() error { return calls.do(batch, tokens, func() error { return nil }) })
	if err == nil {
		result := StepResult{Tokens: tokens, trainer: t, calls: calls}
		loss, err = result.Loss()
	}
	return loss, errors.Join(err, calls.close())
}

// largestGradient names the parameter whose gradient of the last step has the largest norm, the first of equals.
func (t *Trainer) largestGradient() (found string, err error) {
	if t.Model.Partitioned != nil {
		return ": the largest gradient is not searched for while each rank keeps some of them", nil
	}
	scale := 1.0
	if t.scaling != nil {
		if scale, err = scalar(t.scaling.scale); err != nil {
			return "", err
		}
	}
	name, largest := "", math.Inf(-1)
	for _, spec := range t.Model.Layout.Specs {
		view, err := t.Model.Gradients.Parameter(spec.Name)
		if err != nil {
			return "", err
		}
		values, err := tensor.Read[float32](view)
		if err != nil {
			return "", err
		}
		sum := 0.0
		for _, value := range values {
			sum += float64(value) * float64(value)
		}
		if norm := math.Sqrt(sum) / scale; norm > largest {
			name, largest = spec.Name, norm
		}
	}
	return fmt.Sprintf(": the largest gradient is that of %s (norm %.2g)", name, largest), nil
}

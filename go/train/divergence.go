package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
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
// no numbers, or a loss above the limit. A step in f16 that overflowed is none of these: it was skipped, and a lower
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
		largest, err := r.Trainer.largestGradient()
		if err != nil {
			return err
		}
		return diverged(result.Step, loss, fmt.Sprintf(", above max_loss (%.4g)%s", r.limit(), largest))
	}
	return nil
}

// explain is the DivergedError of a step, which is run again to see where it began. `reported` is a loss for the case
// that this fails.
func (r *Run) explain(step int, reported float64) error {
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
	inputs, targets, err := r.batch(position)
	if err != nil {
		return 0, "", err
	}
	return r.Trainer.inspect(inputs, targets, config.BatchSize)
}

// inspect computes loss and gradients of a batch once more, call by call, and looks at everything in the order in which
// it is used or made: weights, outputs, gradients.
func (t *Trainer) inspect(inputs, targets []int32, batch int) (loss float64, found string, err error) {
	if t.calls != nil { // its memory first
		before := t.calls
		t.calls = nil
		if err := before.close(); err != nil {
			return 0, "", err
		}
	}
	found, err = firstWeight(t.Model.Weights)
	if err != nil {
		return 0, "", err
	}
	watch := &watcher{found: found}
	t.Model.Observe(watch.output)
	defer t.Model.Observe(nil)
	loss, err = t.lossAndGradients(inputs, targets, batch)
	if err != nil {
		return 0, "", err
	}
	if watch.found == "" {
		watch.found, err = firstGradient(t.Model)
	}
	if watch.found == "" && err == nil {
		watch.found, err = t.largestGradient()
	}
	return loss, watch.found, err
}

// lossAndGradients is a step without its update.
func (t *Trainer) lossAndGradients(inputs, targets []int32, batch int) (loss float64, err error) {
	micro := t.Config.MicroBatchSize
	if micro == 0 {
		micro = batch
	}
	calls, err := newCapturedStep(t.Model, batch, len(inputs)/batch, micro, false, t.scaling)
	if err != nil {
		return 0, err
	}
	tokens := countTargets(targets)
	err = t.Model.Exclusive(func() error { return calls.do(inputs, targets, tokens, func() error { return nil }) })
	if err == nil {
		result := StepResult{Tokens: tokens, trainer: t, calls: calls}
		loss, err = result.Loss()
	}
	return loss, errors.Join(err, calls.close())
}

// watcher looks for the first value that is not finite among what layers give.
type watcher struct {
	found string
	base  int // tokens of the micro-batches before
	next  int // tokens up to the end of this micro-batch
}

// output is a model.Observer.
func (w *watcher) output(p *layer.Pass, name string, first int, x *tensor.Tensor) {
	if name == model.EmbeddingName { // a micro-batch begins
		w.base = w.next
		w.next += x.Dim(0)
	}
	if w.found != "" {
		return
	}
	values, err := x.Floats()
	p.Check(err)
	at := firstNotFinite(values)
	if at < 0 {
		return
	}
	what := "the output of " + name + " is"
	if name == model.HeadName {
		what = "the logits are"
	}
	token, channel := w.base+first+at/x.Dim(1), at%x.Dim(1)
	w.found = fmt.Sprintf(": %s not finite, first at token %d, channel %d (%.4g)", what, token, channel,
		values[at])
}

// firstNotFinite is the place of the first value that is not a finite number; -1 when there is none.
func firstNotFinite(values []float32) int {
	return slices.IndexFunc(values, func(value float32) bool { return !finite(float64(value)) })
}

// firstWeight looks for what is not finite in an arena of weights, in its order.
func firstWeight(arena *model.Arena) (found string, err error) {
	for _, spec := range arena.Layout.Specs {
		found, err := firstIn(arena, spec, spec.Name)
		if err != nil || found != "" {
			return found, err
		}
	}
	return "", nil
}

// firstIn looks for what is not finite in a parameter of an arena, which is called `what`.
func firstIn(arena *model.Arena, spec model.Spec, what string) (found string, err error) {
	view, err := arena.Parameter(spec.Name)
	if err != nil {
		return "", err
	}
	values, err := view.Floats()
	if err != nil {
		return "", err
	}
	at := firstNotFinite(values)
	if at < 0 {
		return "", nil
	}
	place := fmt.Sprintf("[%d]", at)
	if len(spec.Shape) == 2 {
		place = fmt.Sprintf("[%d, %d]", at/spec.Shape[1], at%spec.Shape[1])
	}
	return fmt.Sprintf(": %s is not finite, first at %s (%.4g)", what, place, values[at]), nil
}

// firstGradient looks for what is not finite among the gradients, in the order in which backward makes them.
func firstGradient(m *model.MoETransformer) (found string, err error) {
	for _, prefix := range backwardOrder(m.Config.NumLayers) {
		for _, spec := range m.Layout.Specs {
			if !strings.HasPrefix(spec.Name, prefix) {
				continue
			}
			found, err := firstIn(m.Gradients, spec, "the gradient of "+spec.Name)
			if err != nil || found != "" {
				return found, err
			}
		}
	}
	return "", nil
}

// backwardOrder is what the names of parameters begin with, in the order in which backward comes by.
func backwardOrder(layers int) []string {
	order := []string{model.HeadName + ".", "model.norm."}
	for at := layers - 1; at >= 0; at-- {
		order = append(order, fmt.Sprintf("model.layers.%d.", at))
	}
	return append(order, model.EmbeddingName+".")
}

// largestGradient names the parameter whose gradient of the last step has the largest norm, the first of equals.
func (t *Trainer) largestGradient() (found string, err error) {
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

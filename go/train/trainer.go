// Package train trains a MoE transformer: one step (gradients over micro-batches, clipping, schedule, AdamW), data in
// an order that is a function of seed and position, checkpoints, and the run that ties them together in a folder. Every
// step is the same sequence of calls of the library as in the other languages, so the bits are the same.
package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// Trainer trains a model with AdamW. The state beside the model's parameters: first and second moments in what the
// option says, the step, and the loss scale of a model in f16. It must be closed, after which the model is still its
// maker's.
type Trainer struct {
	Model   *model.MoETransformer
	Config  Config
	Moments *Moments

	// NoCapture runs every step call by call instead of replaying a captured graph: the same bits, later.
	NoCapture bool

	calls          *capturedStep
	scaling        *lossScaling   // nil but in f16
	guard          *guard         // nil in f16
	done           int            // known here, without waiting for the device
	step           *tensor.Tensor // i32 [1], updates, which is steps without those that were skipped
	lr, norm, clip *tensor.Tensor // f32 [1]
}

// NewTrainer makes a trainer of a model with gradients.
func NewTrainer(m *model.MoETransformer, config Config) (*Trainer, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if m.Gradients == nil {
		return nil, errors.New("this model was made for inference: it has no gradients")
	}
	if config.SequenceLength > m.Config.Context {
		return nil, fmt.Errorf("sequence_length is %d; this model's context is %d", config.SequenceLength, m.Config.Context)
	}
	if config.ActivationCheckpointing > m.Config.NumLayers {
		return nil, fmt.Errorf("activation_checkpointing is %d; this model has %d blocks",
			config.ActivationCheckpointing, m.Config.NumLayers)
	}
	if config.Precision != m.Precision {
		return nil, fmt.Errorf("precision is %s; this model computes in %s", config.Precision, m.Precision)
	}
	m.Recompute(config.ActivationCheckpointing, config.RecomputeExperts)
	t := &Trainer{Model: m, Config: config}
	if err := t.build(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trainer) build() error {
	ctx := t.Model.Context()
	var err error
	if t.Moments, err = newMoments(ctx, t.Model.Layout, t.Config.Moments); err != nil {
		return err
	}
	if t.Config.Precision == model.F16 {
		t.scaling, err = newLossScaling(ctx, t.Config)
	} else {
		t.guard, err = newGuard(ctx)
	}
	if err != nil {
		return err
	}
	if t.step, err = tensor.Zeros(ctx, cuda.I32, 1); err != nil {
		return err
	}
	for _, scalar := range []**tensor.Tensor{&t.lr, &t.norm, &t.clip} {
		if *scalar, err = tensor.Zeros(ctx, cuda.F32, 1); err != nil {
			return err
		}
	}
	return nil
}

// Close frees moments and what the captured step holds.
func (t *Trainer) Close() error { return t.Model.Exclusive(t.free) }

func (t *Trainer) free() error {
	var err error
	if t.calls != nil {
		err = t.calls.close()
		t.calls = nil
	}
	if t.scaling != nil {
		err = errors.Join(err, t.scaling.close())
	}
	if t.guard != nil {
		err = errors.Join(err, t.guard.close())
	}
	err = errors.Join(err, t.Moments.close())
	for _, scalar := range []*tensor.Tensor{t.step, t.lr, t.norm, t.clip} {
		err = errors.Join(err, scalar.Close())
	}
	return err
}

// Step is the number of steps done, those that were skipped included.
func (t *Trainer) Step() int { return t.done }

// LossScaling reads the loss scale and its counters from the device; nil in another precision than f16.
func (t *Trainer) LossScaling() (*LossScaling, error) {
	if t.scaling == nil {
		return nil, nil
	}
	state, err := t.scaling.state()
	return &state, err
}

// Restore makes the trainer continue after `step`; `state` is the loss scaling at that step in f16, else nil.
func (t *Trainer) Restore(step int, state *LossScaling) error {
	if (state == nil) != (t.scaling == nil) {
		return errors.New("a loss-scaling state is required with precision f16, and allowed with no other")
	}
	if step < 0 || step > math.MaxInt32 {
		return fmt.Errorf("step is %d; it must be 0 to %d", step, math.MaxInt32)
	}
	updates := step
	if state != nil {
		updates -= state.Skipped
		if err := t.scaling.restore(*state); err != nil {
			return err
		}
	} else if err := t.guard.reset(); err != nil {
		return err
	}
	if err := tensor.Write(t.step, []int32{int32(updates)}); err != nil {
		return err
	}
	t.done = step
	return nil
}

// TrainStep does one update from ids and targets [batch, length], row after row; targets of model.IgnoreIndex count for
// nothing. A step whose gradients are not finite updates nothing (StepResult.Skipped); in another precision than f16
// none after it does either.
//
// The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into micro-batches,
// plus that of the load-balancing loss, which is the mean over micro-batches by their tokens. It is an error when no
// target counts, cuda.ErrOutOfRange when an id is outside the vocabulary, and model.ErrInUse when another goroutine is
// using the model; the parameters then stay.
func (t *Trainer) TrainStep(inputs, targets []int32, batch int) (*StepResult, error) {
	if batch < 1 || len(inputs) != len(targets) || len(inputs) == 0 || len(inputs)%batch != 0 {
		return nil, fmt.Errorf("%d input ids and %d targets must have the same shape, [%d, length]",
			len(inputs), len(targets), batch)
	}
	length, vocab := len(inputs)/batch, t.Model.Config.VocabSize
	if err := checkIDs("input_ids", inputs, length, vocab, false); err != nil {
		return nil, err
	}
	if err := checkIDs("targets", targets, length, vocab, true); err != nil {
		return nil, err
	}
	tokens := countTargets(targets)
	if tokens == 0 {
		return nil, errors.New("no target counts: all are -100")
	}
	var result *StepResult
	err := t.Model.Exclusive(func() error {
		if err := t.doStep(inputs, targets, batch, length, tokens); err != nil {
			return err
		}
		result = &StepResult{Step: t.done, Tokens: tokens, trainer: t, calls: t.calls}
		return nil
	})
	return result, err
}

// Rehearse is TrainStep for a batch of that shape of which there are no ids: on a context that measures.
func (t *Trainer) Rehearse(batch, length int) error {
	if measures, err := t.Model.Context().Measures(); err != nil || !measures {
		return errors.Join(err, errors.New("a step without ids is for a context that measures"))
	}
	return t.Model.Exclusive(func() error { return t.doStep(nil, nil, batch, length, batch*length) })
}

func (t *Trainer) doStep(inputs, targets []int32, batch, length, tokens int) error {
	if err := t.prepare(batch, length); err != nil {
		return err
	}
	if err := t.calls.do(inputs, targets, tokens, t.update); err != nil {
		return err
	}
	t.done++
	return nil
}

// countTargets is how many targets count.
func countTargets(targets []int32) int {
	tokens := 0
	for _, target := range targets {
		if target != model.IgnoreIndex {
			tokens++
		}
	}
	return tokens
}

// prepare makes the calls of this shape of batch, unless they are there.
func (t *Trainer) prepare(batch, length int) error {
	before := t.calls
	if before != nil {
		if before.batch == batch && before.length == length {
			return nil
		}
		t.calls = nil // its memory first
		if err := before.close(); err != nil {
			return err
		}
	}
	micro := t.Config.MicroBatchSize
	if micro == 0 {
		micro = batch
	}
	calls, err := newCapturedStep(t.Model, batch, length, micro, !t.NoCapture, t.scaling)
	if err != nil {
		return err
	}
	t.calls = calls
	if before == nil {
		return nil
	}
	calls.refusal = before.refusal // this trainer continues call by call
	if before.graph != nil {
		calls.first = fmt.Sprintf("the batch is %s, the captured step was for %s", calls.shape(), before.shape())
	}
	return nil
}

// EagerReason says why the last step ran call by call; "" when it was replayed, and before the first.
func (t *Trainer) EagerReason() string {
	if t.calls == nil {
		return ""
	}
	return t.calls.eager
}

func (t *Trainer) update() error {
	config, m := t.Config, t.Model
	gradients := m.Gradients.Data
	if err := tensor.GradNorm(gradients, t.norm); err != nil {
		return err
	}
	limit := math.Inf(1)
	if config.ClipNorm != 0 {
		limit = config.ClipNorm
	}
	var lossScale, copied *tensor.Tensor
	skip, decide := t.skip(), t.guard.update
	if t.scaling != nil {
		lossScale, decide = t.scaling.scale, t.scaling.update
	}
	if m.Weights != m.Parameters {
		copied = m.Weights.Data
	}
	if err := tensor.GradClip(t.norm, lossScale, t.clip, nil, float32(limit)); err != nil {
		return err
	}
	if err := decide(t.norm); err != nil {
		return err
	}
	if err := config.advance(skip, t.step, t.lr); err != nil {
		return err
	}
	return t.Moments.step(gradients, t.lr, t.step, t.clip, skip, m.Parameters.Data, copied, config,
		int64(m.Layout.NumDecayed))
}

// advance counts an update, unless it is skipped, and gives its rate. `skip` may be nil.
func (c Config) advance(skip, step, rate *tensor.Tensor) error {
	warmup, total := c.scheduleSteps()
	lowest := float32(c.LearningRate * c.MinRateShare)
	return tensor.LRSchedule(skip, step, rate, int64(warmup), int64(total), float32(c.LearningRate), lowest)
}

// skip is the flag i32 [1] that is 1 when the last step updated nothing.
func (t *Trainer) skip() *tensor.Tensor {
	if t.scaling != nil {
		return t.scaling.skip
	}
	return t.guard.skip
}

// checkIDs names an id that is neither a token nor, where allowed, IgnoreIndex: before anything reaches the device, so
// that the trainer can continue.
func checkIDs(name string, ids []int32, length, vocab int, ignorable bool) error {
	for at, id := range ids {
		if (id >= 0 && int(id) < vocab) || (ignorable && id == model.IgnoreIndex) {
			continue
		}
		rule := fmt.Sprintf("0 to %d", vocab-1)
		if ignorable {
			rule += fmt.Sprintf(", or %d", model.IgnoreIndex)
		}
		message := fmt.Sprintf("%s[%d, %d] is %d; it must be %s", name, at/length, at%length, id, rule)
		return &cuda.Error{Status: cuda.ErrOutOfRange, Function: "TrainStep", Message: message}
	}
	return nil
}

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

// ExpertCounts are the slots that chose each expert in the last micro-batch, dropped ones included, a row a layer.
func (r *StepResult) ExpertCounts() ([][]int32, error) {
	return r.chosen(func(use layer.ExpertUse) *tensor.Tensor { return use.Counts })
}

// ExpertChoices are the experts of each token of the last micro-batch, likeliest first, a row a layer.
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

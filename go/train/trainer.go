// Package train trains a MoE transformer: one step (gradients over micro-batches, clipping, schedule, AdamW), data in
// an order that is a function of seed and position, checkpoints, and the run that ties them together in a folder. Every
// step is the same sequence of calls of the library as in the other languages, so the bits are the same.
package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// Trainer trains a model with AdamW. The state beside the model's parameters: first and second moments, arenas of the
// same layout, and the step. It must be closed, after which the model is still its maker's.
type Trainer struct {
	Model                       *model.MoETransformer
	Config                      Config
	FirstMoments, SecondMoments *model.Arena

	// NoCapture runs every step call by call instead of replaying a captured graph: the same bits, later.
	NoCapture bool

	calls                *capturedStep
	done                 int // what step holds, so that nobody has to wait for the device to know it
	step, lr, norm, clip *tensor.Tensor
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
	t := &Trainer{Model: m, Config: config}
	if err := t.build(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trainer) build() error {
	ctx := t.Model.Context()
	var err error
	if t.FirstMoments, err = model.NewArena(ctx, t.Model.Layout); err != nil {
		return err
	}
	if t.SecondMoments, err = model.NewArena(ctx, t.Model.Layout); err != nil {
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
func (t *Trainer) Close() error {
	var err error
	if t.calls != nil {
		err = t.calls.close()
		t.calls = nil
	}
	err = errors.Join(err, t.FirstMoments.Close(), t.SecondMoments.Close())
	for _, scalar := range []*tensor.Tensor{t.step, t.lr, t.norm, t.clip} {
		err = errors.Join(err, scalar.Close())
	}
	return err
}

// Step is the number of updates done.
func (t *Trainer) Step() int { return t.done }

// SetStep sets the number of updates done.
func (t *Trainer) SetStep(step int) error {
	if step < 0 || step > math.MaxInt32 {
		return fmt.Errorf("step is %d; it must be 0 to %d", step, math.MaxInt32)
	}
	if err := tensor.Write(t.step, []int32{int32(step)}); err != nil {
		return err
	}
	t.done = step
	return nil
}

// TrainStep does one update from ids and targets [batch, length], row after row; targets of model.IgnoreIndex count for
// nothing.
//
// The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into micro-batches,
// plus that of the load-balancing loss, which is the mean over micro-batches by their tokens. It is an error when no
// target counts, and cuda.ErrOutOfRange when an id is outside the vocabulary; the parameters then stay.
func (t *Trainer) TrainStep(inputs, targets []int32, batch int) (*StepResult, error) {
	if batch < 1 || len(inputs) != len(targets) || len(inputs) == 0 || len(inputs)%batch != 0 {
		return nil, fmt.Errorf("%d input ids and %d targets must have one shape, [%d, length]",
			len(inputs), len(targets), batch)
	}
	length, vocab := len(inputs)/batch, t.Model.Config.VocabSize
	if err := checkIDs("input_ids", inputs, length, vocab, false); err != nil {
		return nil, err
	}
	if err := checkIDs("targets", targets, length, vocab, true); err != nil {
		return nil, err
	}
	tokens := 0
	for _, target := range targets {
		if target != model.IgnoreIndex {
			tokens++
		}
	}
	if tokens == 0 {
		return nil, errors.New("no target counts: all are -100")
	}
	if err := t.prepare(batch, length); err != nil {
		return nil, err
	}
	if err := t.calls.run(inputs, targets, tokens, t.update); err != nil {
		return nil, err
	}
	t.done++
	return &StepResult{Step: t.done, Tokens: tokens, trainer: t, calls: t.calls}, nil
}

// prepare makes the calls of this shape of batch, unless they are there.
func (t *Trainer) prepare(batch, length int) error {
	if t.calls != nil {
		if t.calls.batch == batch && t.calls.length == length {
			return nil
		}
		before := t.calls // its memory first
		t.calls = nil
		if err := before.close(); err != nil {
			return err
		}
	}
	micro := t.Config.MicroBatchSize
	if micro == 0 {
		micro = batch
	}
	calls, err := newCapturedStep(t.Model, batch, length, micro, !t.NoCapture)
	if err == nil {
		t.calls = calls
	}
	return err
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
	if err := tensor.GradClip(t.norm, nil, t.clip, nil, float32(limit)); err != nil {
		return err
	}
	warmup, total := config.scheduleSteps()
	lowest := float32(config.LearningRate * config.MinRateShare)
	err := tensor.LRSchedule(nil, t.step, t.lr, int64(warmup), int64(total), float32(config.LearningRate), lowest)
	if err != nil {
		return err
	}
	return tensor.AdamWStep(
		gradients, t.lr, t.step, t.clip, nil, m.Parameters.Data, t.FirstMoments.Data, t.SecondMoments.Data, nil,
		int64(m.Layout.NumDecayed), float32(config.Beta1), float32(config.Beta2), float32(config.Eps),
		float32(config.WeightDecay),
	)
}

// checkIDs says which id is no token, nor IgnoreIndex where that may be: before the device is given anything, so that
// it can go on.
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
	Step   int // updates done
	Tokens int // targets that counted

	trainer *Trainer
	calls   *capturedStep
}

// Loss is the mean cross-entropy over the targets of the whole batch, in nats.
func (r *StepResult) Loss() (float64, error) {
	values, err := tensor.Read[float32](r.calls.losses)
	if err != nil {
		return 0, err
	}
	parts := make([]float64, len(values))
	for at, value := range values {
		parts[at] = float64(value)
	}
	return exactSum(parts) / float64(r.Tokens), nil
}

// AuxLoss is the load-balancing loss, the mean over the micro-batches by their tokens.
func (r *StepResult) AuxLoss() (float64, error) {
	values, err := tensor.Read[float32](r.calls.aux)
	if err != nil {
		return 0, err
	}
	parts := make([]float64, len(values))
	for at, value := range values {
		parts[at] = r.calls.shares[at] * float64(value)
	}
	return exactSum(parts), nil
}

// GradNorm is the global norm of the gradients before clipping.
func (r *StepResult) GradNorm() (float64, error) { return scalar(r.trainer.norm) }

// LearningRate is the rate of this update.
func (r *StepResult) LearningRate() (float64, error) { return scalar(r.trainer.lr) }

func scalar(of *tensor.Tensor) (float64, error) {
	values, err := tensor.Read[float32](of)
	if err != nil {
		return 0, err
	}
	return float64(values[0]), nil
}

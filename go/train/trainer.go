// Package train trains a MoE transformer: one step (gradients over micro-batches, clipping, schedule, AdamW), data in
// an order that is a function of seed and position, checkpoints, and the run that ties them together in a folder. Every
// step is the same sequence of calls of the library as in the other languages, so the bits are the same.
package train

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// Trainer trains a model with AdamW. The state beside the model's parameters: first and second moments in what the
// option says, the step, and the loss scale of a model in f16. It must be closed, after which the model is still its
// maker's.
//
// One of several ranks, made with WithComm, computes the gradients of its replicas on its rows of a batch, and updates a
// part of the parameters, of which alone it has moments. All ranks make the same calls; every number and every weight
// has the bits that a rank alone computes. In 16 bits each has memory for its part of the f32 values in
// Model.Parameters alone; a model made without model.WithComm has room for all, of which only that part is up to date.
// GatherParameters gives it the others.
//
// Where the model was made with experts shared out (model.WithExperts), each rank has its own experts alone, and what is
// no expert's. No bit depends on it. Only GatherParameters, and views of what is not here, are then errors.
type Trainer struct {
	Model   *model.MoETransformer
	Config  Config
	Moments *Moments // of what this rank updates

	// NoCapture runs every step call by call instead of replaying a captured graph: the same bits, later.
	NoCapture bool
	// EachKind, on a context that measures, runs of micro-batches that make the same calls the first alone; see LeftOut.
	EachKind bool

	base           *Base // of an adapter that is trained in a run, nil else
	calls          *capturedStep
	replicas       *replicas
	scaling        *lossScaling   // nil but in f16
	guard          *guard         // nil in f16
	done           int            // known here, without waiting for the device
	step           *tensor.Tensor // i32 [1], updates, which is steps without those that were skipped
	lr, norm, clip *tensor.Tensor // f32 [1]
}

// An Option changes how a trainer or a run is made.
type Option func(*settings)

type settings struct {
	comm           *cuda.Comm
	expertParallel *int    // nil where it is not given
	origin         *Origin // of a run
}

// WithComm makes it one of the ranks of a communicator, which must outlive it. They share out the replicas of
// Config.Replicas.
func WithComm(comm *cuda.Comm) Option { return func(s *settings) { s.comm = comm } }

// WithExpertParallel shares the experts of every layer out over groups of `size` ranks, which must divide the ranks and
// the experts: each holds and updates its own alone, and computes what the tokens of the others make of them. The default
// is 1; no bit depends on it. A trainer has it by its model.
func WithExpertParallel(size int) Option { return func(s *settings) { s.expertParallel = &size } }

// experts is the place of this rank among those that share out the experts of a model; nil where it has all of them.
func (s settings) experts(config model.Config) (*layer.ExpertParallel, error) {
	size := 1
	if s.expertParallel != nil {
		size = *s.expertParallel
	}
	return layer.NewExpertParallel(s.comm, size, config.NumExperts)
}

// modelOptions are those of the model that this rank trains.
func (s settings) modelOptions(
	ctx *cuda.Context, config model.Config, options Config, experts *layer.ExpertParallel,
) []model.Option {
	partition := false
	if s.comm != nil && experts == nil {
		device, _ := ctx.Device()
		partition = options.PartitionsGradients(config, device, s.comm.Ranks(), 1)
	}
	return []model.Option{
		model.WithExperts(experts), model.WithComm(s.comm), model.WithPartitionedGradients(partition),
	}
}

// checkExperts refuses experts of a model that are shared out in another way than the trainer is to have it.
func (s settings) checkExperts(m *model.MoETransformer) error {
	switch {
	case m.Experts != nil && m.Experts.Comm != s.comm:
		return errors.New("the experts of this model are shared out over the ranks of another communicator")
	case m.Held != nil && m.Comm != nil && m.Comm != s.comm:
		return errors.New("the parameters of this model are shared out over the ranks of another communicator")
	case s.expertParallel != nil && *s.expertParallel != m.ExpertParallel():
		return fmt.Errorf("expert_parallel is %d; this model was made with %d", *s.expertParallel, m.ExpertParallel())
	}
	return nil
}

func settingsOf(given []Option) settings {
	var chosen settings
	for _, option := range given {
		option(&chosen)
	}
	return chosen
}

// NewTrainer makes a trainer of a model with gradients.
func NewTrainer(m *model.MoETransformer, config Config, options ...Option) (*Trainer, error) {
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
	if config.KeepExperts > m.Config.NumLayers {
		return nil, fmt.Errorf("keep_experts is %d; this model has %d blocks", config.KeepExperts, m.Config.NumLayers)
	}
	if config.Precision != m.Precision {
		return nil, fmt.Errorf("precision is %s; this model computes in %s", config.Precision, m.Precision)
	}
	if rank, trained := 0, "all weights"; m.LowRank != nil || config.LoraRank > 0 {
		if m.LowRank != nil {
			rank, trained = m.LowRank.Rank, fmt.Sprintf("an adapter of rank %d", m.LowRank.Rank)
		}
		if config.LoraRank != rank {
			return nil, fmt.Errorf("lora_rank is %d; this model trains %s", config.LoraRank, trained)
		}
	}
	chosen := settingsOf(options)
	if err := chosen.checkExperts(m); err != nil {
		return nil, err
	}
	if m.LowRank != nil {
		if err := chosen.requireOneRank(); err != nil {
			return nil, err
		}
	}
	if m.Partitioned != nil && !config.oneMicroBatchEach(m.Comm.Ranks()) {
		return nil, errors.New("this model's gradients are partitioned: each rank must run one micro-batch of an update")
	}
	if err := m.MaskDocuments(config.DocumentMask); err != nil {
		return nil, err
	}
	m.Recompute(config.ActivationCheckpointing, config.RecomputeExperts, config.KeepExperts)
	t := &Trainer{Model: m, Config: config}
	if err := t.build(chosen.comm); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTrainer makes a trainer with a model of its own.
func newTrainer(ctx *cuda.Context, config model.Config, options Config, more []Option) (*Trainer, error) {
	chosen := settingsOf(more)
	experts, err := chosen.experts(config)
	if err != nil {
		return nil, err
	}
	made, err := model.New(
		ctx, config, options.Precision, options.Seed, chosen.modelOptions(ctx, config, options, experts)...)
	if err != nil {
		return nil, errors.Join(err, experts.Close())
	}
	trainer, err := NewTrainer(made, options, more...)
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return trainer, nil
}

func (t *Trainer) build(comm *cuda.Comm) error {
	ctx := t.Model.Context()
	var err error
	if t.replicas, err = newReplicas(t.Model, t.Config, comm); err != nil {
		return err
	}
	if comm := t.replicas.comm; comm != nil {
		if err := comm.Agree("configuration", agreed(t.Model.Config, t.Config)); err != nil {
			return err
		}
		if err := comm.Agree("expert parallel", strconv.Itoa(t.Model.ExpertParallel())); err != nil {
			return err
		}
	}
	if err = t.Model.Experts.Join(); err != nil {
		return err
	}
	if err = t.replicas.join(t.Model); err != nil {
		return err
	}
	if t.Moments, err = newMoments(ctx, t.Model.Layout, t.Config.Moments, t.replicas.held.Updated); err != nil {
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
	err = errors.Join(err, t.Moments.close(), t.replicas.close())
	for _, scalar := range []*tensor.Tensor{t.step, t.lr, t.norm, t.clip} {
		err = errors.Join(err, scalar.Close())
	}
	return err
}

// GradientBytes is the memory of the gradients: of the model's, of the sums over replicas, and of what arrives of these.
func (t *Trainer) GradientBytes() int {
	return t.Model.Gradients.Bytes() + t.Model.Partitioned.Bytes() + t.replicas.bytes()
}

// BytesSent is how many bytes this rank has given to others so far, over all communicators of the training.
func (t *Trainer) BytesSent() (int64, error) { return t.replicas.bytesSent() }

// Together runs `own`, forward calls of up to so many tokens, while the ranks with which this one shares out the experts,
// if there are any, run as much. An expert takes up to `capacity` slots, 0 for no limit.
func (t *Trainer) Together(tokens, capacity int, own func() error) error {
	rank, ranks := t.replicas.place()
	return t.replicas.experts.evaluate(rank, ranks, tokens, capacity, own)
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
// The gradient is that of the mean cross-entropy over all targets of the batch that count, however it is cut into
// micro-batches and shared out among ranks: one with few of them weighs little, one with none nothing. To it comes that of
// the load-balancing loss, which is the mean over micro-batches by their tokens, whatever counts. Of several ranks each gives
// the rows of Rows. It is an error when no target counts, cuda.ErrOutOfRange when an id is outside the vocabulary, and
// model.ErrInUse when another goroutine is using the model; the parameters then stay.
func (t *Trainer) TrainStep(inputs, targets []int32, batch int) (*StepResult, error) {
	return t.TrainBatch(Batch{Inputs: inputs, Targets: targets}, batch)
}

// TrainBatch is TrainStep on so many rows, which may be packed documents: then none sees another, and each begins at
// position 0.
func (t *Trainer) TrainBatch(batch Batch, rows int) (*StepResult, error) {
	comm, whole := t.replicas.comm, rows
	if err := t.checkRows(batch, rows); err != nil {
		return nil, TellFailure(comm, err)
	}
	if comm != nil {
		whole = t.Config.BatchSize
	}
	tokens, err := t.replicas.total(countTargets(batch.Targets))
	if err != nil {
		return nil, err
	}
	if tokens == 0 {
		return nil, errors.New("no target counts: all are -100")
	}
	var result *StepResult
	err = t.Model.Exclusive(func() error {
		if err := t.doStep(batch, whole, len(batch.Inputs)/rows, tokens); err != nil {
			return err
		}
		result = &StepResult{Step: t.done, Tokens: tokens, trainer: t, calls: t.calls}
		return nil
	})
	return result, TellFailure(comm, err)
}

// checkRows refuses what is no batch, or not this rank's part of one.
func (t *Trainer) checkRows(given Batch, batch int) error {
	inputs, targets, ends := given.Inputs, given.Targets, given.DocumentEnds
	if batch < 1 || len(inputs) != len(targets) || len(inputs) == 0 || len(inputs)%batch != 0 {
		return fmt.Errorf("%d input ids and %d targets must have the same shape, [%d, length]",
			len(inputs), len(targets), batch)
	}
	length, vocab := len(inputs)/batch, t.Model.Config.VocabSize
	if err := checkIDs("input_ids", inputs, length, vocab, false); err != nil {
		return err
	}
	if err := checkIDs("targets", targets, length, vocab, true); err != nil {
		return err
	}
	if ends != nil && len(ends) != len(inputs) {
		return fmt.Errorf("%d ends of documents must have the shape of the ids, [%d, %d]", len(ends), batch, length)
	}
	if err := checkIDs("document_ends", ends, length, 2, false); err != nil {
		return err
	}
	if rows := len(t.Rows()); t.replicas.comm != nil && batch != rows {
		return fmt.Errorf("a batch of %d; of this rank it must have its rows, %d", batch, rows)
	}
	return nil
}

// Rehearse is TrainStep for a batch of that shape of which there are no ids: on a context that measures.
func (t *Trainer) Rehearse(batch, length int) error {
	if measures, err := t.Model.Context().Measures(); err != nil || !measures {
		return errors.Join(err, errors.New("a step without ids is for a context that measures"))
	}
	return t.Model.Exclusive(func() error { return t.doStep(Batch{}, batch, length, batch*length) })
}

func (t *Trainer) doStep(given Batch, batch, length, tokens int) error {
	if err := t.Config.checkReplicas(batch); err != nil {
		return err
	}
	if err := t.prepare(batch, length, given.DocumentEnds != nil); err != nil {
		return err
	}
	if m := t.Model; t.replicas.comm != nil && m.Weights != m.Parameters {
		m.UpToDate(t.replicas.held.Updated)
	}
	if err := t.calls.do(given, tokens, t.update); err != nil {
		return err
	}
	t.done++
	return nil
}

// Rows lists which rows of a batch of Config.BatchSize TrainStep takes here: all, or those of this rank's micro-batches.
func (t *Trainer) Rows() []int {
	batch := t.Config.BatchSize
	micro := t.Config.micro(batch)
	var rows []int
	for _, at := range t.replicas.own(t.Config.MicroBatches(batch)) {
		for row := at * micro; row < min((at+1)*micro, batch); row++ {
			rows = append(rows, row)
		}
	}
	return rows
}

// GatherParameters brings all of Model.Parameters up to date, on all ranks, which all must call it, and makes room for
// them, which stays. They stay up to date until the next step. An error where a rank has a part of the experts alone, and
// on all ranks where one has no memory for them.
func (t *Trainer) GatherParameters() error {
	if experts := t.Model.Experts; experts != nil {
		return experts.Alone()
	}
	m := t.Model
	return m.Exclusive(func() error {
		err := m.Parameters.MakeWhole(func() error { return t.calls.forget() }) // it updates the old place
		if err != nil {
			return TellFailure(t.replicas.comm, err)
		}
		if err = t.replicas.gather(m.Parameters.Data); err == nil {
			m.UpToDate([]model.Span{{End: m.Layout.Size}})
		}
		return err
	})
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
func (t *Trainer) prepare(batch, length int, documents bool) error {
	before := t.calls
	if before != nil {
		if before.batch == batch && before.length == length && (before.ends != nil) == documents {
			return nil
		}
		t.calls = nil // its memory first
		if err := before.close(); err != nil {
			return err
		}
	}
	calls, err := newCapturedStep(
		t.Model, batch, length, t.Config.micro(batch), documents, !t.NoCapture, t.EachKind, t.scaling, t.replicas)
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

// LeftOut lists, of a trainer with EachKind, what a step of the last shape does, part by part, and how many times more
// than it is done in TrainStep.
func (t *Trainer) LeftOut() []Repeated {
	if t.calls == nil {
		return nil
	}
	return t.calls.leftOut()
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
	if err := t.replicas.reduce(); err != nil {
		return err
	}
	if err := t.replicas.norm(t.norm); err != nil {
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
	if err := t.Moments.step(m.Gradients.Data, t.lr, t.step, t.clip, skip, m.Parameters.Data, copied, config); err != nil {
		return err
	}
	return t.replicas.move(m.Weights.Data, t.replicas.moves)
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

package plan

import (
	"encoding/json"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// Work is the operations and bytes that the calls of each kernel come to, by its name.
type Work map[string]Cost

// Cost is operations and bytes read and written, and how many calls they are of.
type Cost struct{ Flops, Bytes, Calls int }

// Sum is the cost of all kernels.
func (w Work) Sum() (all Cost) {
	for _, cost := range w {
		all.Flops += cost.Flops
		all.Bytes += cost.Bytes
		all.Calls += cost.Calls
	}
	return all
}

// add adds other work, so many times.
func (w Work) add(other Work, times int) {
	for name, more := range other {
		cost := w[name]
		w[name] = Cost{cost.Flops + times*more.Flops, cost.Bytes + times*more.Bytes, cost.Calls + times*more.Calls}
	}
}

// Seconds is the least time on a device: of each kernel, its operations at the peak or its bytes at the bandwidth.
func (w Work) Seconds(device Device, precision model.Precision) (seconds float64) {
	peak := device.Flops16
	if precision == model.F32 {
		peak = device.FlopsF32
	}
	for _, cost := range w {
		seconds += max(float64(cost.Flops)/peak, float64(cost.Bytes)/device.Bandwidth)
	}
	return seconds
}

// steps are the shape of a batch, and how much of it is run to measure it.
type steps struct {
	batch, length, micro int
	replicas             int
	left                 int // micro-batches that are left out
	rows                 int // sequences that are not
}

func newSteps(config model.Config, options train.Config, seat Seat) (steps, error) {
	if err := config.Validate(); err != nil {
		return steps{}, err
	}
	if err := options.Validate(); err != nil {
		return steps{}, err
	}
	s := steps{batch: options.BatchSize, length: options.SequenceLength, micro: options.BatchSize,
		replicas: options.Replicas}
	if options.MicroBatchSize > 0 {
		s.micro = min(options.MicroBatchSize, s.batch)
	}
	if s.micro > mostTokens/s.length/max(config.ExpertsPerToken, 1) {
		return s, ErrTooLarge
	}
	whole := max(microBatches, s.replicas)
	if seat.ExpertParallel > 1 { // which replicas' sums are there at once shows in the second round of all of them
		whole = 2 * s.replicas
	}
	left := max(0, options.MicroBatches(s.batch)-whole)
	s.left = left / s.replicas * s.replicas // so that the last replica still ends with the same
	s.rows = s.batch - s.left*s.micro
	return s, nil
}

// eachKind says that of micro-batches that make the same calls one is run; tests run all.
var eachKind = true

// newTrainer makes that of a rank, for updates of so many sequences.
func newTrainer(
	ctx *cuda.Context, config model.Config, options train.Config, batch int, seat Seat,
) (*train.Trainer, error) {
	comm, err := ctx.NewComm(cuda.TransportSelf, "", seat.Rank, seat.Ranks, 0)
	if err != nil {
		return nil, err
	}
	experts, err := layer.NewExpertParallel(comm, seat.ExpertParallel, config.NumExperts)
	if err != nil {
		return nil, err
	}
	device, _ := ctx.Device()
	made, err := model.New(ctx, config, options.Precision, options.Seed, model.WithExperts(experts),
		model.WithComm(comm),
		model.WithPartitionedGradients(options.PartitionsGradients(config, device, seat.Ranks, seat.ExpertParallel)))
	if err != nil {
		return nil, err
	}
	options.BatchSize = batch
	trainer, err := train.NewTrainer(made, options, train.WithComm(comm))
	if err == nil {
		trainer.EachKind = eachKind
	}
	return trainer, err
}

// TrainingWork is what one step computes and moves.
func TrainingWork(config model.Config, options train.Config, machine cuda.Machine) (Work, error) {
	work, _, err := trainingWork(config, options, machine, Alone)
	return work, err
}

// trainingWork also gives the bytes that a rank sends in a step.
func trainingWork(
	config model.Config, options train.Config, machine cuda.Machine, seat Seat,
) (whole Work, sent int, err error) {
	s, err := newSteps(config, options, seat)
	if err != nil {
		return nil, 0, err
	}
	tokens := s.micro * s.length
	if whole, sent, err = stepWork(config, options, machine, s.rows, tokens, seat); err != nil || s.left == 0 {
		return whole, sent, err
	}
	// Those left out are whole rounds of the replicas: each comes to what the second of two does.
	rounds := s.left / s.replicas
	one, sentByOne, err := stepWork(config, options, machine, s.replicas*s.micro, tokens, seat)
	if err != nil {
		return nil, 0, err
	}
	two, sentByTwo, err := stepWork(config, options, machine, 2*s.replicas*s.micro, tokens, seat)
	if err == nil {
		whole.add(two, rounds)
		whole.add(one, -rounds)
	}
	return whole, sent + rounds*(sentByTwo-sentByOne), err
}

// stepWork is the work of a step on a batch, all of which is run, in micro-batches of so many tokens.
func stepWork(
	config model.Config, options train.Config, machine cuda.Machine, batch, tokens int, seat Seat,
) (work Work, sent int, err error) {
	err = measured(machine, func(ctx *cuda.Context) error {
		trainer, err := newTrainer(ctx, config, options, batch, seat)
		if err != nil {
			return err
		}
		trainer.NoCapture = true
		rows := len(trainer.Rows())
		ids := make([]int32, rows*options.SequenceLength)
		step := func() error {
			_, err := trainer.TrainStep(ids, ids, rows)
			return err
		}
		if err := step(); err != nil { // which makes tables and factors, once
			return err
		}
		work = Work{}
		for _, part := range append([]train.Repeated{{Run: step, Times: 1}}, trainer.LeftOut()...) {
			if part.Times == 0 {
				continue
			}
			before, err := trainer.BytesSent()
			if err != nil {
				return err
			}
			once, err := profiled(ctx, part.Run)
			if err != nil {
				return err
			}
			work.add(once, part.Times)
			after, err := trainer.BytesSent()
			if err != nil {
				return err
			}
			sent += part.Times * int(after-before)
		}
		work.fill(trainer.Model, tokens)
		return nil
	})
	return work, sent, err
}

// fill makes the work of a rank with a part of the experts, which are equally wanted, that of the rows that come: its
// products have room for the most that may, and leave alone what is not filled of it. A micro-batch has so many tokens.
func (w Work) fill(made *model.MoETransformer, tokens int) {
	if made.Experts == nil {
		return
	}
	config := made.Config
	k, hidden, ffn := config.ExpertsPerToken, config.HiddenSize, config.FFNSize
	room := made.Experts.MostRows(k, tokens, config.Capacity(tokens))
	empty := 1 - float64(k*tokens)/float64(made.Experts.Size*room)
	for _, name := range []string{"cuda_grouped_gemm", "cuda_grouped_gemm_wgrad"} {
		cost := w[name]
		withW13 := cost.Flops/(2*room*hidden*ffn) - cost.Calls // these have twice the operations of those with W2
		elements := room * (withW13*(hidden+2*ffn) + (cost.Calls-withW13)*(hidden+ffn))
		cost.Bytes -= int(empty * float64(elements*made.Weights.Data.DType().Size()))
		cost.Flops -= int(empty * float64(cost.Flops))
		w[name] = cost
	}
}

// InferenceWork is what the next token of `batch` sequences computes and moves, each with a cache of `capacity` tokens.
func InferenceWork(
	config model.Config, precision model.Precision, machine cuda.Machine, batch, capacity int,
) (found Work, err error) {
	err = measured(machine, func(ctx *cuda.Context) error {
		next, err := newToken(ctx, config, precision, batch, capacity)
		if err != nil {
			return err
		}
		found, err = profiled(ctx, next.decode)
		return err
	})
	return found, err
}

// token is what the next token of a batch of sequences is found with.
type token struct {
	model       *model.MoETransformer
	cache       *layer.KVCache
	ids, logits *tensor.Tensor
}

func newToken(ctx *cuda.Context, config model.Config, precision model.Precision, batch, capacity int) (*token, error) {
	made, err := model.NewForInference(ctx, config, precision, 0)
	if err != nil {
		return nil, err
	}
	cache, err := made.Cache(batch, capacity)
	if err != nil {
		return nil, err
	}
	t := &token{model: made, cache: cache}
	return t, layer.Run(ctx, func(p *layer.Pass) {
		t.ids, t.logits = p.Keep(p.Empty(cuda.I32, batch)), p.Keep(p.Empty(cuda.F32, batch, config.VocabSize))
	})
}

func (t *token) decode() error {
	return layer.Run(t.model.Context(), func(p *layer.Pass) { t.model.Decode(p, t.ids, t.cache, t.logits) })
}

// profiled is the work of the calls of a program.
func profiled(ctx *cuda.Context, program func() error) (Work, error) {
	if err := ctx.BeginProfile(); err != nil {
		return nil, err
	}
	if err := program(); err != nil {
		return nil, err
	}
	if err := ctx.EndProfile(); err != nil {
		return nil, err
	}
	text, err := ctx.ProfileReport(cuda.ReportJSON)
	if err != nil {
		return nil, err
	}
	var report struct {
		Kernels []struct {
			Kernel       string
			Flops, Bytes float64
			Calls        int
		}
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return nil, err
	}
	work := make(Work, len(report.Kernels))
	for _, one := range report.Kernels {
		work[one.Kernel] = Cost{int(one.Flops), int(one.Bytes), one.Calls}
	}
	return work, nil
}

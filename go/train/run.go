package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Progress is where a run stands after a step. Losses, in nats per token, and skipped steps are those of the last
// report.
type Progress struct {
	Step            int
	Loss            float64
	HeldOutLoss     *float64 // nil when nothing was evaluated yet
	TokensPerSecond float64
	Seconds         float64
	SkippedSteps    int
}

// Run trains in a folder: `run.json`, `checkpoints/`, `metrics.jsonl`, `chain.jsonl`.
//
// The order of the data is a function of seed and position, and a checkpoint holds all that a step depends on, so a run
// that was stopped anywhere and resumed passes through the same bits as one that was not. It must be closed.
type Run struct {
	Folder      string
	Checkpoints string // the folder of its checkpoints
	Trainer     *Trainer
	Data        *Windows
	HeldOut     *Windows              // nil without held-out data
	Tokenizer   tokenizer.FolderFiles // nil without one
	Position    int                   // windows visited
	Seconds     float64               // spent training
	Notice      string                // what an extension does to the schedule, or Origin's; "" without one

	OnProgress func(Progress)              // called after each step, where set
	OnRecord   func(*formats.Object) error // gets each record of the metrics file, where set
}

// StartRun makes a new run, with its run.json. It is an error (fs.ErrExist) when the folder holds checkpoints already.
// heldOut may be "", the tokenizer nil. The steps may not end in the warm-up.
//
// Of several ranks (WithComm) all start, resume and train the run in one folder, which rank 0 alone writes to but for the
// tensors of checkpoints. Whatever fails on one of them ends the run on all.
func StartRun(
	ctx *cuda.Context, folder string, config model.Config, options Config, data, heldOut string,
	tokens *tokenizer.Tokenizer, more ...Option,
) (*Run, error) {
	run, err := startRun(ctx, folder, config, options, data, heldOut, tokens, more)
	return run, TellFailure(settingsOf(more).comm, err)
}

func startRun(
	ctx *cuda.Context, folder string, config model.Config, options Config, data, heldOut string,
	tokens *tokenizer.Tokenizer, more []Option,
) (*Run, error) {
	if len(ListCheckpoints(filepath.Join(folder, "checkpoints"))) > 0 {
		problem := "already holds a run: resume it, or choose another folder"
		return nil, &existsError{fmt.Sprintf("%s %s", folder, problem)}
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	if err := options.CheckSchedule(); err != nil {
		return nil, err
	}
	run, err := openRun(folder, data, heldOut, options)
	if err != nil {
		return nil, err
	}
	origin := settingsOf(more).origin
	if options.LoraRank > 0 && (origin == nil || origin.base == nil) {
		problem := "lora_rank is %d, but there is no model beside which an adapter is trained: give --from"
		return nil, errors.Join(fmt.Errorf(problem, options.LoraRank), run.Close())
	}
	switch {
	case tokens != nil:
		run.Tokenizer = tokens
	case origin != nil && origin.base == nil:
		run.Tokenizer = origin.tokens
	}
	if origin != nil {
		run.Notice = origin.Notice
	}
	err = run.checkVocabulary(config.VocabSize)
	if err == nil && origin != nil {
		run.Trainer, err = origin.trainer(ctx, config, options, more)
	} else if err == nil {
		run.Trainer, err = newTrainer(ctx, config, options, more)
	}
	if err == nil && run.talks() {
		err = run.writeRecord(Sources{data, heldOut}, origin)
	}
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return run, nil
}

// talks says whether this rank is the one that tells of the run: rank 0, or one alone.
func (r *Run) talks() bool { return r.comm() == nil || r.comm().Rank() == 0 }

// comm leads to the other ranks; nil without any.
func (r *Run) comm() *cuda.Comm { return r.Trainer.replicas.comm }

// agree is an error on all ranks unless all have the same data and are at the same step.
func (r *Run) agree() error {
	comm := r.comm()
	if comm == nil {
		return nil
	}
	var data []string
	for _, windows := range []*Windows{r.Data, r.HeldOut} {
		if windows == nil {
			continue
		}
		digest, err := windows.digest()
		if err != nil {
			return err
		}
		data = append(data, strconv.Itoa(windows.Count), digest)
	}
	if err := comm.Agree("training data", strings.Join(data, " ")); err != nil {
		return err
	}
	return comm.Agree("step", strconv.Itoa(r.Trainer.Step()))
}

// existsError is fs.ErrExist with a sentence of its own.
type existsError struct{ message string }

func (e *existsError) Error() string { return e.message }
func (e *existsError) Unwrap() error { return fs.ErrExist }

// openRun opens the data.
func openRun(folder, data, heldOut string, options Config) (*Run, error) {
	run := &Run{Folder: folder, Checkpoints: filepath.Join(folder, "checkpoints")}
	var err error
	if run.Data, err = OpenWindows(data, options.SequenceLength); err != nil {
		return nil, err
	}
	if heldOut != "" {
		if run.HeldOut, err = OpenWindows(heldOut, options.SequenceLength); err != nil {
			return nil, errors.Join(err, run.Close())
		}
	}
	if err := run.checkDocuments(options.DocumentMask); err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return run, nil
}

// sources are the data of a run by what messages call them; windows may be nil.
func (r *Run) sources() []source {
	return []source{{r.Data, "training"}, {r.HeldOut, "held-out"}}
}

type source struct {
	windows *Windows
	name    string
}

// checkDocuments refuses to look for documents in data that knows them.
func (r *Run) checkDocuments(mask int) error {
	for _, part := range r.sources() {
		if part.windows != nil && part.windows.HasDocuments && mask != NoDocumentMask {
			return fmt.Errorf(
				"document_mask is %d, but the %s data knows where its documents end: leave it out", mask, part.name)
		}
	}
	return nil
}

func (r *Run) checkVocabulary(vocab int) error {
	for _, part := range r.sources() {
		if part.windows != nil && part.windows.VocabSize != vocab {
			return fmt.Errorf(
				"the %s data has a vocabulary of %d, the model one of %d",
				part.name,
				part.windows.VocabSize,
				vocab,
			)
		}
	}
	return nil
}

// Close frees trainer and model.
func (r *Run) Close() error {
	var err error
	if r.Trainer != nil {
		err = errors.Join(r.Trainer.Close(), r.Trainer.Model.Close())
	}
	return err
}

// Train runs until all steps are done or ctx is; then the step that it is in is finished and saved, and the error is
// that of ctx. One step is done in any case, so that there is a checkpoint. Cancelled in its last step, a run is
// complete, and there is no error. ErrDiverged when training has diverged: the last checkpoint is from before. All ranks
// stop when ctx is done on one of them.
func (r *Run) Train(ctx context.Context) error {
	loop := &loop{run: r, loss: math.NaN()}
	if r.talks() {
		var err error
		if loop.log, err = r.openFolder(); err != nil {
			return TellFailure(r.comm(), err)
		}
	}
	err := TellFailure(r.comm(), loop.steps(ctx))
	if loop.log != nil {
		err = errors.Join(err, loop.log.close())
	}
	if err == nil && r.Trainer.Step() < r.Trainer.Config.Steps {
		err = cmp.Or(ctx.Err(), context.Canceled) // another rank's, if not that of this one
	}
	return err
}

// openFolder readies the folder for what Train writes.
func (r *Run) openFolder() (*metricsLog, error) {
	if err := os.MkdirAll(r.Checkpoints, 0o777); err != nil {
		return nil, err
	}
	if err := formats.RemoveLeftovers(r.Checkpoints); err != nil {
		return nil, err
	}
	return openMetrics(r.Folder, r.Trainer.Step())
}

// loop is the state of Train from step to step.
type loop struct {
	run     *Run
	log     *metricsLog // nil where another rank has it
	chain   *chain      // nil there, too, and where there are no hashes
	digests string      // of the state after the last step, "" where they were not needed
	loss    float64
	skipped int // steps
	heldOut *float64
	speed   float64
	saved   bool

	timedSteps   int // since the last report
	timedSeconds float64
}

func (l *loop) steps(ctx context.Context) error {
	r := l.run
	config := r.Trainer.Config
	if err := r.agree(); err != nil {
		return err
	}
	if err := l.openChain(); err != nil {
		return err
	}
	for r.Trainer.Step() < config.Steps {
		began := time.Now()
		result, err := r.step()
		if err != nil {
			return err
		}
		step := result.Step
		l.saved = false
		reported := step == config.Steps || step%config.LogEvery == 0
		var record *formats.Object
		if reported {
			if record, err = l.record(result); err != nil {
				return err
			}
		}
		link, err := l.hash(step)
		if err != nil {
			return err
		}
		l.count(time.Since(began).Seconds())
		if reported {
			if link != "" {
				record.Set("hash", link)
			}
			if err := l.report(record, result); err != nil {
				return err
			}
		}
		if err := l.evaluateAndSave(result, reported); err != nil {
			return err
		}
		if r.OnProgress != nil {
			r.OnProgress(Progress{step, l.loss, l.heldOut, l.speed, r.Seconds, l.skipped})
		}
		stopping := 0
		if ctx.Err() != nil {
			stopping = 1
		}
		if stopping, err = r.Trainer.replicas.total(stopping); err != nil {
			return err
		}
		if stopping > 0 {
			return l.saveAfterStop(result)
		}
	}
	return nil
}

// saveAfterStop saves the last step unless that was done.
func (l *loop) saveAfterStop(result *StepResult) error {
	if l.saved {
		return nil
	}
	if err := l.run.requireConvergence(result); err != nil {
		return err
	}
	return l.save(nil)
}

// step trains on the next batch.
func (r *Run) step() (*StepResult, error) {
	order, err := r.order(r.Position)
	if err != nil {
		return nil, err
	}
	var own []int64
	for _, row := range r.Trainer.Rows() {
		own = append(own, order[row])
	}
	batch, err := r.Data.Batch(own)
	if err != nil {
		return nil, err
	}
	result, err := r.Trainer.TrainBatch(batch, len(own))
	if err == nil {
		r.Position += r.Trainer.Config.BatchSize
	}
	return result, err
}

// order gives the windows of the batch that begins at a position of the data order.
func (r *Run) order(position int) ([]int64, error) {
	config := r.Trainer.Config
	return r.Trainer.Model.Context().DataOrder(config.Seed, int64(position), config.BatchSize, int64(r.Data.Count))
}

// count adds the time of a step.
func (l *loop) count(seconds float64) {
	l.run.Seconds += seconds
	l.timedSteps++
	l.timedSeconds += seconds
}

// record makes the line of metrics of a step, its time still missing. Null stands for what is not finite.
func (l *loop) record(result *StepResult) (*formats.Object, error) {
	r := l.run
	record := formats.NewObject("step", result.Step)
	for _, value := range []struct {
		name string
		read func() (float64, error)
	}{
		{"loss", result.Loss}, {"aux_loss", result.AuxLoss},
		{"grad_norm", result.GradNorm}, {"learning_rate", result.LearningRate},
	} {
		number, err := value.read()
		if err != nil {
			return nil, err
		}
		if value.name == "loss" {
			l.loss = number
		}
		if record.Set(value.name, number); !finite(number) {
			record.Set(value.name, nil)
		}
	}
	record.Set("tokens", r.Position*r.Trainer.Config.SequenceLength)
	record.Set("tokens_per_second", nil)
	record.Set("seconds", nil)
	peak, err := r.Trainer.Model.Context().BytesPeak()
	if err != nil {
		return nil, err
	}
	record.Set("bytes_peak", peak)
	if r.Trainer.Model.Config.NumExperts > 0 {
		counts, err := result.ExpertCounts()
		if err != nil {
			return nil, err
		}
		record.Set("expert_shares", shares(counts))
	}
	if !result.Scaled() {
		return record, nil
	}
	scale, err := result.LossScale()
	if err != nil {
		return nil, err
	}
	if l.skipped, err = result.SkippedSteps(); err != nil {
		return nil, err
	}
	record.Set("loss_scale", scale)
	record.Set("skipped_steps", l.skipped)
	return record, nil
}

func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// shares gives the share of each expert in its layer's slots.
func shares(counts [][]int32) []any {
	rows := make([]any, len(counts))
	for at, row := range counts {
		total := 0.0
		for _, count := range row {
			total += float64(count)
		}
		parts := make([]any, len(row))
		for expert, count := range row {
			parts[expert] = round(float64(count)/total, 5)
		}
		rows[at] = parts
	}
	return rows
}

// round gives the double nearest to a number's decimal with so many digits after the point.
func round(value float64, digits int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'f', digits, 64), 64)
	if err != nil { // only what is not finite, and that parses too
		return value
	}
	return rounded
}

// report writes the metrics of a step, also of one that diverged.
func (l *loop) report(record *formats.Object, result *StepResult) error {
	config := l.run.Trainer.Config
	l.speed = float64(l.timedSteps*config.BatchSize*config.SequenceLength) / l.timedSeconds
	l.timedSteps, l.timedSeconds = 0, 0
	record.Set("tokens_per_second", round(l.speed, 1))
	record.Set("seconds", round(l.run.Seconds, 3))
	if err := l.write(record); err != nil {
		return err
	}
	return l.run.requireConvergence(result)
}

func (l *loop) write(record *formats.Object) (err error) {
	if l.log != nil {
		err = l.log.write(record)
	}
	if err == nil && l.run.OnRecord != nil {
		err = l.run.OnRecord(record)
	}
	return err
}

// evaluateAndSave does what is due after a step. `checked` says that the step was found to converge already.
func (l *loop) evaluateAndSave(result *StepResult, checked bool) error {
	r, config, step := l.run, l.run.Trainer.Config, result.Step
	due := func(every int) bool { return step == config.Steps || (every > 0 && step%every == 0) }
	evaluates, saves := r.HeldOut != nil && due(config.EvalEvery), due(config.SaveEvery)
	if !checked && (evaluates || saves) {
		if err := r.requireConvergence(result); err != nil {
			return err
		}
	}
	var measured *float64
	if evaluates {
		loss, err := r.Evaluate(config.EvalBatches)
		if err != nil {
			return err
		}
		measured, l.heldOut = &loss, &loss
		if err := l.write(formats.NewObject("step", step, "held_out_loss", loss)); err != nil {
			return err
		}
	}
	if !saves {
		return nil
	}
	l.saved = true
	return l.save(measured)
}

// Evaluate gives the mean cross-entropy over the held-out data, all of it (0) or so many batches, in nats per token. Ranks
// share the batches out, and all get it.
func (r *Run) Evaluate(batches int) (float64, error) {
	loss, err := r.heldOutLoss(batches)
	return loss, TellFailure(r.comm(), err)
}

func (r *Run) heldOutLoss(batches int) (float64, error) {
	if r.HeldOut == nil {
		return 0, errors.New("this run has no held-out data")
	}
	config := r.Trainer.Config
	size := config.micro(config.BatchSize)
	replicas := r.Trainer.replicas
	parted := r.HeldOut.spread(size, batches)
	sums, count := make([]float32, len(parted)), 0
	rank, ranks := replicas.place()
	for first := 0; first < len(parted); first += ranks {
		at := first + rank
		err := replicas.experts.evaluate(at, len(parted), size*config.SequenceLength, 0, func() error {
			batch, err := r.HeldOut.Batch(parted[at])
			if err != nil {
				return err
			}
			part, tokens, err := r.Trainer.Model.EvaluateDocuments(
				batch.Inputs, batch.Targets, batch.DocumentEnds, len(parted[at]))
			sums[at], count = float32(part), count+int(tokens)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	parts, err := tensor.From(r.Trainer.Model.Context(), sums)
	if err != nil {
		return 0, err
	}
	mean := 0.0
	if err = replicas.tell(parts); err == nil {
		count, err = replicas.total(count)
	}
	if err == nil {
		mean, err = weightedMean(parts, nil, count)
	}
	return mean, errors.Join(err, parts.Close())
}

// Save writes a checkpoint of this moment and removes those that are not to be kept. heldOutLoss may be nil.
func (r *Run) Save(heldOutLoss *float64) error {
	_, err := r.save(heldOutLoss)
	return err
}

// save is Save; it gives the folder of the checkpoint.
func (r *Run) save(heldOutLoss *float64) (string, error) {
	config := r.Trainer.Config
	scaling, err := r.Trainer.LossScaling()
	if err != nil {
		return "", err
	}
	state := State{
		Step: r.Trainer.Step(), DataPosition: r.Position, DataWindows: r.Data.Count, Seconds: r.Seconds,
		Train: config, HeldOutLoss: heldOutLoss, LossScaling: scaling, Base: r.Trainer.base,
	}
	folder, err := SaveCheckpoint(r.Checkpoints, r.Trainer, state, r.Tokenizer)
	if err != nil || !r.talks() {
		return folder, err
	}
	return folder, pruneCheckpoints(r.Checkpoints, config.KeepCheckpoints)
}

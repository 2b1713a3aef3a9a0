package train_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// sharded is a model whose arenas are cut into several shards, the last of them ragged.
func sharded() model.Config {
	config := tiny()
	config.VocabSize, config.FFNSize, config.NumExperts = 300, 300, 6
	return config
}

// dropping is a model whose experts take fewer tokens than they are sent.
func dropping(config model.Config) model.Config {
	config.CapacityFactor = 0.8
	return config
}

// jobOptions are of a job with eight replicas.
func jobOptions() train.Config {
	config := options()
	config.Steps, config.BatchSize, config.MicroBatchSize, config.Replicas = 6, 17, 2, 8
	config.SaveEvery, config.EvalEvery, config.EvalBatches, config.KeepCheckpoints = 2, 3, 4, 100
	return config
}

// trace is the hash of each file of a run, without what is measured in it.
func trace(t testing.TB, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must.Do(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content := string(must.Get(os.ReadFile(path))(t))
		var kept []string
		for line := range strings.Lines(content) {
			if name := entry.Name(); name == "metrics.jsonl" {
				record := must.Get(formats.ParseJSON([]byte(line)))(t).(*formats.Object)
				for _, measured := range []string{"seconds", "tokens_per_second", "bytes_peak"} {
					record.Delete(measured)
				}
				line = string(must.Get(formats.JSONLine(record))(t))
			} else if name == "chain.jsonl" { // its seals are of what was measured, too
				record := must.Get(formats.ParseJSON([]byte(line)))(t).(*formats.Object)
				if !record.Has("hash") {
					continue
				}
				line = record.Get("hash").(string)
			} else if name == "training.json" && strings.Contains(line, `"seconds"`) {
				continue
			}
			kept = append(kept, line)
		}
		name := must.Get(filepath.Rel(folder, path))(t)
		found[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(kept, ""))))
		return nil
	}))
	return found
}

// traceOfStopped is the trace of a run that stopped after its first and third steps, without their checkpoints: one that
// does not stop there has none.
func traceOfStopped(t testing.TB, folder string) map[string]string {
	t.Helper()
	found := trace(t, folder)
	for name := range found {
		if strings.Contains(name, "step-00000001") || strings.Contains(name, "step-00000003") {
			delete(found, name)
		}
	}
	return found
}

func requireSameTrace(t testing.TB, found, wanted map[string]string, what string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if found[name] != wanted[name] {
			t.Errorf("%s: %s differs", what, name)
		}
	}
	if len(found) != len(wanted) {
		t.Errorf("%s: the files are %v, not %v", what, slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(wanted)))
	}
}

// job trains a run on so many ranks, from its start or on, up to a step, or to its end with 0.
func job(t testing.TB, count int, folder, data string, config model.Config, options train.Config, until int) {
	t.Helper()
	jobOn(t, shape{count, 1}, folder, data, config, options, until, nil)
}

// shape is how many ranks a job has, and how many of them share out the experts.
type shape struct{ ranks, experts int }

func (s shape) String() string { return fmt.Sprintf("%d ranks, experts over %d", s.ranks, s.experts) }

// jobOn is job on ranks that share out the experts; `prepare`, which may be nil, gets the run of each before it trains.
func jobOn(
	t testing.TB, on shape, folder, data string, config model.Config, options train.Config, until int,
	prepare func(*train.Run),
) {
	t.Helper()
	ranks.Run(t, on.ranks, func(comm *cuda.Comm) {
		var run *train.Run
		with := []train.Option{train.WithComm(comm), train.WithExpertParallel(on.experts)}
		if len(train.ListCheckpoints(filepath.Join(folder, "checkpoints"))) == 0 {
			run = must.Get(train.StartRun(comm.Context(), folder, config, options, data, data, nil, with...))(t)
		} else {
			run = must.Get(train.ResumeRun(comm.Context(), folder, data, data, nil, with...))(t)
		}
		if prepare != nil {
			prepare(run)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		run.OnProgress = func(progress train.Progress) { // one rank is told to stop; all do
			if comm.Rank() == on.ranks-1 && progress.Step == until {
				cancel()
			}
		}
		if err := run.Train(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d: %v", comm.Rank(), err)
		}
		must.Do(t, run.Close())
	})
}

// jobs have a model each; that of the tiny one is no longer than a grain, so that all ranks but one own nothing.
var jobs = map[string]struct {
	config  model.Config
	options func(*train.Config)
}{
	"f32":                        {sharded(), func(*train.Config) {}},
	"f32, bf16 between replicas": {sharded(), func(c *train.Config) { c.ReduceDType = model.BF16 }},
	"tiny":                       {dropping(tiny()), func(c *train.Config) { c.Precision, c.Moments = model.BF16, train.MomentsF8 }},
	"bf16, bf16 moments": {sharded(), func(c *train.Config) {
		c.Precision, c.Moments = model.BF16, train.MomentsBF16
	}},
	"f16, f8 moments, recomputing": {sharded(), func(c *train.Config) {
		c.Precision, c.Moments, c.LossScale = model.F16, train.MomentsF8, 1<<24
		c.ActivationCheckpointing, c.RecomputeExperts, c.ReduceDType = 2, true, model.F16
	}},
}

// TestAnyNumberOfRanksWritesTheSameFiles: as one rank, with and without a change of the number on the way.
func TestAnyNumberOfRanksWritesTheSameFiles(t *testing.T) {
	for name, of := range jobs {
		t.Run(name, func(t *testing.T) {
			config, options, data := of.config, jobOptions(), writeShards(t, of.config.VocabSize)
			of.options(&options)
			alone := t.TempDir()
			trainRun(t, must.Get(train.StartRun(newContext(t), alone, config, options, data, data, nil))(t), 0)
			wanted := trace(t, alone)
			if len(wanted) < 3*4 {
				t.Fatalf("the run has only %v", wanted)
			}
			for _, count := range []int{2, 3, 5, 8} {
				folder := t.TempDir()
				job(t, count, folder, data, config, options, 0)
				requireSameTrace(t, trace(t, folder), wanted, fmt.Sprintf("%d ranks", count))
			}
			folder := t.TempDir()
			for at, count := range []int{3, 1, 8, 2} {
				job(t, count, folder, data, config, options, []int{1, 3, 4, 0}[at])
			}
			requireSameTrace(t, traceOfStopped(t, folder), wanted, "other numbers of ranks on the way")
		})
	}
}

// TestRanksSeeTheSameSteps: what a step tells is the same on every rank, and what a rank alone is told.
func TestRanksSeeTheSameSteps(t *testing.T) {
	options := jobOptions()
	options.Precision = model.BF16
	inputs, targets := randomBatch(rand.New(rand.NewPCG(41, 42)), sharded(), options.BatchSize, 9)
	alone := newTrainer(t, newContext(t), sharded(), options)
	var wanted []string
	for range 4 {
		result := must.Get(alone.TrainStep(inputs, targets, options.BatchSize))(t)
		wanted = append(wanted, told(t, result)+fmt.Sprint(result.Tokens, must.Get(result.ExpertCounts())(t)))
	}
	parameters := must.Get(tensor.Read[float32](alone.Model.Parameters.Data))(t)
	for range 2 {
		must.Get(alone.TrainStep(inputs, targets, options.BatchSize))(t)
	}
	later := must.Get(tensor.Read[float32](alone.Model.Parameters.Data))(t)
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		made := must.Get(model.New(
			comm.Context(), sharded(), options.Precision, options.Seed, model.WithComm(comm)))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		if whole := 4 * made.Layout.Size; made.Parameters.Bytes() > whole/3+4*model.Grain {
			t.Errorf("rank %d has %d bytes of f32 parameters, of %d", comm.Rank(), made.Parameters.Bytes(), whole)
		}
		requirePartial(t, made, comm.Rank())
		var ids, answers []int32
		for _, row := range trainer.Rows() {
			ids, answers = append(ids, inputs[9*row:9*row+9]...), append(answers, targets[9*row:9*row+9]...)
		}
		for step := range wanted {
			result := must.Get(trainer.TrainStep(ids, answers, len(ids)/9))(t)
			found := told(t, result) + fmt.Sprint(result.Tokens, must.Get(result.ExpertCounts())(t))
			if found != wanted[step] {
				t.Errorf("rank %d, step %d: %s, not %s", comm.Rank(), step, found, wanted[step])
			}
		}
		if reason := trainer.EagerReason(); reason != "" {
			t.Errorf("the last step ran call by call: %s", reason)
		}
		must.Do(t, trainer.GatherParameters())
		requireSame(t, must.Get(tensor.Read[float32](made.Parameters.Data))(t), parameters, "gathered")
		must.Do(t, made.RoundWeights())
		for range 2 { // they go on, in another place
			must.Get(trainer.TrainStep(ids, answers, len(ids)/9))(t)
			if reason := trainer.EagerReason(); reason != "" {
				t.Errorf("the step ran call by call: %s", reason)
			}
			requirePartial(t, made, comm.Rank())
			must.Do(t, trainer.GatherParameters())
		}
		requireSame(t, must.Get(tensor.Read[float32](made.Parameters.Data))(t), later, "gathered again")
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
		if used := must.Get(comm.Context().BytesUsed())(t); used != 0 {
			t.Errorf("%d bytes are still used", used)
		}
	})
}

// requirePartial asks of a rank of three that nothing is made of f32 parameters that others update.
func requirePartial(t testing.TB, made *model.MoETransformer, rank int) {
	t.Helper()
	refusal := "this rank has a part of the f32 parameters alone; GatherParameters of its trainer brings all"
	if err := made.RoundWeights(); err == nil || err.Error() != refusal {
		t.Errorf("rank %d: %v", rank, err)
	}
	others := []string{"lm_head.weight", "model.embed_tokens.weight", "model.embed_tokens.weight"}[rank]
	if _, err := made.Parameters.Parameter(others); err == nil || err.Error() != refusal {
		t.Errorf("rank %d: %v", rank, err)
	}
}

// TestParametersOfAModelMadeAlone: whole until a step, and again when they are gathered.
func TestParametersOfAModelMadeAlone(t *testing.T) {
	options := jobOptions()
	options.Precision = model.BF16
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		made := must.Get(model.New(comm.Context(), sharded(), options.Precision, options.Seed))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		must.Do(t, made.RoundWeights())
		ids := make([]int32, 9*len(trainer.Rows()))
		must.Get(trainer.TrainStep(ids, ids, len(trainer.Rows())))(t)
		requirePartial(t, made, comm.Rank())
		must.Do(t, trainer.GatherParameters())
		exact := must.Get(tensor.New(comm.Context(), cuda.F32, made.Layout.Size))(t)
		read := func() []float32 {
			must.Do(t, tensor.Cast(made.Weights.Data, exact))
			return must.Get(tensor.Read[float32](exact))(t)
		}
		weights := read()
		must.Do(t, made.RoundWeights())
		requireSame(t, read(), weights, "the gathered parameters, rounded")
		must.Do(t, errors.Join(exact.Close(), trainer.Close(), made.Close()))
	})
}

// TestARankThatCannotGather tells the others why.
func TestARankThatCannotGather(t *testing.T) {
	options := jobOptions()
	options.Precision = model.BF16
	var making sync.WaitGroup // an error of one rank would reach another while it makes its trainer
	making.Add(3)
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		made := must.Get(model.New(
			comm.Context(), sharded(), options.Precision, options.Seed, model.WithComm(comm)))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		making.Done()
		making.Wait()
		if comm.Rank() == 1 { // what it would take over is gone
			must.Do(t, made.Parameters.Data.Close())
		}
		if err := trainer.GatherParameters(); err == nil || !strings.Contains(err.Error(), "is closed") {
			t.Errorf("rank %d: %v", comm.Rank(), err)
		}
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
	})
}

// TestAModelInF32IsWhole: it may be trained alone, whichever ranks it was made for.
func TestAModelInF32IsWhole(t *testing.T) {
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		made := must.Get(model.New(comm.Context(), tiny(), model.F32, 0, model.WithComm(comm)))(t)
		trainer := must.Get(train.NewTrainer(made, options()))(t)
		inputs, targets := randomBatch(rand.New(rand.NewPCG(43, 44)), tiny(), 4, 16)
		must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		found := must.Get(tensor.Read[float32](made.Parameters.Data))(t)
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
		made = must.Get(model.New(comm.Context(), tiny(), model.F32, 0))(t)
		trainer = must.Get(train.NewTrainer(made, options()))(t)
		must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		requireSame(t, must.Get(tensor.Read[float32](made.Parameters.Data))(t), found, "parameters")
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
	})
}

// TestDivergedRanks: all find the same, and what a rank alone finds.
func TestDivergedRanks(t *testing.T) {
	options, data := jobOptions(), writeShards(t, 48)
	options.MaxLoss = 0.1
	run := startRun(t, newContext(t), t.TempDir(), data, options)
	wanted := run.Train(context.Background())
	must.Do(t, run.Close())
	if !errors.Is(wanted, train.ErrDiverged) || !strings.Contains(wanted.Error(), "the largest gradient is that of") {
		t.Fatal(wanted)
	}
	folder := t.TempDir()
	ranks.Run(t, 4, func(comm *cuda.Comm) {
		run := must.Get(train.StartRun(comm.Context(), folder, tiny(), options, data, data, nil, train.WithComm(comm)))(t)
		if err := run.Train(context.Background()); err == nil || err.Error() != wanted.Error() {
			t.Errorf("rank %d: %v, not %v", comm.Rank(), err, wanted)
		}
		must.Do(t, run.Close())
	})
}

// TestARankThatFails ends the run on all, with its reason, and leaves the last checkpoint and nothing else.
func TestARankThatFails(t *testing.T) {
	options, data := jobOptions(), writeShards(t, 48)
	full := errors.New("no space is left")
	for name, fails := range map[string]func(run *train.Run, rank int) string{
		"in a step": func(run *train.Run, rank int) string {
			if rank == 1 {
				run.OnRecord = func(record *formats.Object) error {
					if record.Get("step") == 3 {
						return full
					}
					return nil
				}
			}
			return "rank 1: no space is left"
		},
		"in a checkpoint": func(run *train.Run, rank int) string {
			if rank == 0 {
				run.OnProgress = func(progress train.Progress) {
					if progress.Step == 3 { // another is there already
						must.Do(t, os.MkdirAll(filepath.Join(run.Checkpoints, "step-00000004"), 0o777))
					}
				}
			}
			return "step-00000004"
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			ranks.Run(t, 3, func(comm *cuda.Comm) {
				run := must.Get(train.StartRun(
					comm.Context(), folder, tiny(), options, data, data, nil, train.WithComm(comm)))(t)
				wanted := fails(run, comm.Rank())
				err := run.Train(context.Background())
				if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(wanted, fmt.Sprintf("rank %d: ", comm.Rank()))) {
					t.Errorf("rank %d: %v, not %s", comm.Rank(), err, wanted)
				}
				must.Do(t, run.Close())
			})
			entries := must.Get(os.ReadDir(filepath.Join(folder, "checkpoints")))(t)
			for _, entry := range entries {
				if name := entry.Name(); name != "step-00000002" && name != "step-00000004" {
					t.Errorf("%s is left", name)
				}
			}
			checkpoint := must.Get(train.OpenCheckpoint(filepath.Join(folder, "checkpoints", "step-00000002")))(t)
			must.Do(t, checkpoint.Close())
		})
	}
}

// TestRanksThatAreUnlike: other options, other data, another step.
func TestRanksThatAreUnlike(t *testing.T) {
	data, other := writeShards(t, 48), writeShards(t, 48)
	must.Do(t, os.Remove(filepath.Join(other, "b.tokens")))
	for words, change := range map[string]func(options *train.Config, data *string){
		"the configuration of rank 1 is not that of rank 0": func(options *train.Config, _ *string) { options.Beta2 = 0.96 },
		"the training data of rank 1 (":                     func(_ *train.Config, data *string) { *data = other },
		"2 ranks share out replicas: replicas must be at least 2, and is 1": func(options *train.Config, _ *string) {
			options.Replicas = 1
		},
	} {
		folder := t.TempDir()
		ranks.Run(t, 2, func(comm *cuda.Comm) {
			options, source := jobOptions(), data
			if comm.Rank() == 1 {
				change(&options, &source)
			}
			run, err := train.StartRun(comm.Context(), folder, tiny(), options, source, "", nil, train.WithComm(comm))
			if err == nil {
				err = run.Train(context.Background())
				must.Do(t, run.Close())
			}
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("rank %d: %v, not %s", comm.Rank(), err, words)
			}
		})
		if found := train.ListCheckpoints(filepath.Join(folder, "checkpoints")); len(found) > 0 {
			t.Errorf("%v was written", found)
		}
	}
}

// TestRowsOfRanks: each has its own, and another number of them is refused, on all ranks.
func TestRowsOfRanks(t *testing.T) {
	options := jobOptions()
	options.BatchSize, options.MicroBatchSize, options.Replicas = 7, 2, 3
	wanted := [][]int{{0, 1, 6}, {2, 3, 4, 5}}
	var making sync.WaitGroup // an error of one rank would reach the other while it makes its trainer
	making.Add(2)
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		made := must.Get(model.New(comm.Context(), tiny(), options.Precision, 0))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		if rows := trainer.Rows(); !slices.Equal(rows, wanted[comm.Rank()]) {
			t.Errorf("rank %d has the rows %v", comm.Rank(), rows)
		}
		making.Done()
		making.Wait()
		ids := make([]int32, 9*3)
		words := "a batch of 3; of this rank it must have its rows, 4"
		if _, err := trainer.TrainStep(ids, ids, 3); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("rank %d: %v", comm.Rank(), err)
		}
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
	})
}

// TestARankThatCannotWrite: no rank has a checkpoint, and nothing of it is left.
func TestARankThatCannotWrite(t *testing.T) {
	options, root := jobOptions(), t.TempDir()
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		made := must.Get(model.New(comm.Context(), sharded(), options.Precision, 0))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		save := func() error {
			_, err := train.SaveCheckpoint(root, trainer, train.State{DataWindows: 1, Train: options}, nil)
			return err
		}
		must.Do(t, save())
		must.Do(t, os.RemoveAll(filepath.Join(root, "step-00000000")))
		must.Do(t, comm.Barrier())
		if comm.Rank() == 1 { // what it would write is gone
			must.Do(t, trainer.Moments.Tensors()[1].Close())
		}
		if err := save(); err == nil || !strings.Contains(err.Error(), "source is closed") {
			t.Errorf("rank %d: %v", comm.Rank(), err)
		}
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
	})
	if left := must.Get(os.ReadDir(root))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

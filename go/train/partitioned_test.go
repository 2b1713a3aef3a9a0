package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// deep is dealt with so many layers that three of them are less than all.
func deep() model.Config {
	config := dealt()
	config.NumLayers = 9
	return config
}

// oneEach is a configuration of which each of so many ranks runs one micro-batch of an update.
func oneEach(count int, precision, wire model.Precision) train.Config {
	options := options()
	options.BatchSize, options.MicroBatchSize, options.Replicas = count, 1, count
	options.Precision, options.ReduceDType = precision, wire
	return options
}

// TestPartitionedGradients: ranks that keep the gradients of what they update alone train the bits of a rank alone, call by
// call and captured.
func TestPartitionedGradients(t *testing.T) {
	small := sharded() // so small that some ranks update a part of one layer alone, or nothing
	small.NumLayers = 8
	for _, of := range []struct {
		config          model.Config
		count           int
		precision, wire model.Precision
	}{
		{deep(), 2, model.F32, model.F32}, {deep(), 3, model.BF16, model.BF16}, {deep(), 4, model.F16, model.F16},
		{dealt(), 3, model.F32, model.BF16}, // of two layers, so that the embedding comes to the buffer of the head
		{small, 5, model.F32, model.F32}, {dropping(small), 8, model.BF16, model.F32},
	} {
		config, options := of.config, oneEach(of.count, of.precision, of.wire)
		if of.precision == model.BF16 {
			options.ActivationCheckpointing, options.Moments = config.NumLayers, train.MomentsBF16
		}
		inputs, targets := randomBatch(rand.New(rand.NewPCG(53, 54)), config, of.count, 9)
		alone := newTrainer(t, newContext(t), config, options)
		var wanted []string
		for range 4 {
			wanted = append(wanted, told(t, must.Get(alone.TrainStep(inputs, targets, of.count))(t)))
		}
		parameters := must.Get(tensor.Read[float32](alone.Model.Parameters.Data))(t)
		ranks.Run(t, of.count, func(comm *cuda.Comm) {
			what := fmt.Sprintf("%+v, rank %d", of, comm.Rank())
			made := must.Get(model.New(comm.Context(), config, of.precision, options.Seed, model.WithComm(comm),
				model.WithPartitionedGradients(true)))(t)
			trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
			row := comm.Rank()
			for step := range wanted {
				found := told(t, must.Get(trainer.TrainStep(inputs[9*row:9*row+9], targets[9*row:9*row+9], 1))(t))
				if found != wanted[step] {
					t.Errorf("%s, step %d: %s, not %s", what, step, found, wanted[step])
				}
			}
			if reason := trainer.EagerReason(); reason != "" {
				t.Errorf("%s: the last step ran call by call: %s", what, reason)
			}
			requirePartitioned(t, trainer, what)
			must.Do(t, trainer.GatherParameters())
			requireSame(t, must.Get(tensor.Read[float32](made.Parameters.Data))(t), parameters, what)
			must.Do(t, errors.Join(trainer.Close(), made.Close()))
			if used := must.Get(comm.Context().BytesUsed())(t); used != 0 {
				t.Errorf("%s: %d bytes are still used", what, used)
			}
		})
	}
}

// requirePartitioned asks of a trainer that it has the gradients of what its rank updates, all gains', and three buffers of
// the largest piece.
func requirePartitioned(t testing.TB, trainer *train.Trainer, what string) {
	t.Helper()
	made, refusal := trainer.Model, "this rank keeps the gradients of the parameters that it updates alone"
	kept := made.Layout.Size - made.Layout.NumDecayed
	for _, span := range made.Held.Updated {
		kept += span.Meet(model.Span{End: made.Layout.NumDecayed}).Size()
	}
	largest := 0
	for _, piece := range made.Layout.BackwardPieces() {
		largest = max(largest, piece.Size())
	}
	if found := made.Gradients.Bytes() + made.Partitioned.Bytes(); found != 4*(kept+3*largest) {
		t.Errorf("%s has %d bytes for gradients, not %d", what, found, 4*(kept+3*largest))
	}
	for _, spec := range made.Layout.Specs {
		all := model.Span{Begin: spec.Offset, End: spec.Offset + spec.Size()}
		own := slices.ContainsFunc(made.Held.Updated, func(span model.Span) bool { return span.Meet(all) == all })
		_, err := made.Gradients.Parameter(spec.Name)
		if own = own || len(spec.Shape) == 1; own && err != nil || !own && (err == nil || err.Error() != refusal) {
			t.Errorf("%s: the gradient of %s: %v", what, spec.Name, err)
		}
	}
}

// TestRunsPartitionByThemselves: from their start and on, where each rank runs one micro-batch; the files are those of one
// rank.
func TestRunsPartitionByThemselves(t *testing.T) {
	config, options := sharded(), oneEach(4, model.BF16, model.F32)
	config.NumLayers = 8
	options.Steps, options.SaveEvery, options.EvalEvery, options.EvalBatches, options.KeepCheckpoints = 6, 2, 3, 4, 100
	data, alone, folder := writeShards(t, config.VocabSize), t.TempDir(), t.TempDir()
	trainRun(t, must.Get(train.StartRun(newContext(t), alone, config, options, data, data, nil))(t), 0)
	for at, count := range []int{4, 2, 4} {
		jobOn(t, shape{count, 1}, folder, data, config, options, []int{1, 3, 0}[at], func(run *train.Run) {
			if partitions := run.Trainer.Model.Partitioned != nil; partitions != (count == 4) {
				t.Errorf("does one of %d ranks partition its gradients? %v", count, partitions)
			}
		})
	}
	requireSameTrace(t, traceOfStopped(t, folder), trace(t, alone), "ranks that partition gradients")
}

// TestDivergedRanksThatPartition find where it began as a rank alone does, but for the largest gradient.
func TestDivergedRanksThatPartition(t *testing.T) {
	const unknown = "the largest gradient is not searched for while each rank keeps some of them;"
	config := sharded()
	config.NumLayers = 8
	for name, fault := range map[string]func(run *train.Run){
		"a large loss": func(run *train.Run) { run.Trainer.Config.MaxLoss = 0.1 },
		"a value that is not finite": func(run *train.Run) {
			plant(t, run.Trainer.Model, "model.norm.weight", func(values []float32) { values[7] = float32(math.NaN()) })
		},
		// With w3 all zero nothing reaches the output, but a product overflows on the way back.
		"a gradient": func(run *train.Run) {
			experts(t, run.Trainer.Model, 1, "w1", times(1e6))
			experts(t, run.Trainer.Model, 1, "w2", times(1e38))
			experts(t, run.Trainer.Model, 1, "w3", times(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			options, data := oneEach(4, model.F32, model.F32), writeShards(t, config.VocabSize)
			options.Steps = 6
			run := must.Get(train.StartRun(newContext(t), t.TempDir(), config, options, data, data, nil))(t)
			fault(run)
			err := run.Train(context.Background())
			must.Do(t, run.Close())
			if !errors.Is(err, train.ErrDiverged) {
				t.Fatal(err)
			}
			wanted := regexp.MustCompile(`the largest gradient is that of .*?;`).ReplaceAllString(err.Error(), unknown)
			if strings.Contains(wanted, unknown) != (name == "a large loss") {
				t.Fatal(wanted)
			}
			folder := t.TempDir()
			ranks.Run(t, 4, func(comm *cuda.Comm) {
				run := must.Get(train.StartRun(
					comm.Context(), folder, config, options, data, data, nil, train.WithComm(comm)))(t)
				fault(run)
				if err := run.Train(context.Background()); err == nil || err.Error() != wanted {
					t.Errorf("rank %d: %v, not %s", comm.Rank(), err, wanted)
				}
				must.Do(t, run.Close())
			})
		})
	}
}

// TestWhatIsPartitioned: only where each rank runs one micro-batch, and where it is less memory.
func TestWhatIsPartitioned(t *testing.T) {
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		options := oneEach(3, model.F32, model.F32)
		more := options
		more.BatchSize = 6
		for _, of := range []struct {
			options     train.Config
			config      model.Config
			device      cuda.Device
			ranks, each int
			wanted      bool
		}{
			{options, deep(), cuda.CPU, 3, 1, true}, {more, deep(), cuda.CPU, 3, 1, false},
			{options, dealt(), cuda.CPU, 3, 1, false}, {options, deep(), cuda.CUDA, 3, 1, false},
			{options, deep(), cuda.CPU, 2, 1, false}, {options, deep(), cuda.CPU, 3, 3, false},
		} {
			if of.options.PartitionsGradients(of.config, of.device, of.ranks, of.each) != of.wanted {
				t.Errorf("%+v: not %v", of, of.wanted)
			}
		}
		made := must.Get(model.New(comm.Context(), deep(), model.F32, 1, model.WithComm(comm),
			model.WithPartitionedGradients(true)))(t)
		defer func() { must.Do(t, made.Close()) }()
		_, err := train.NewTrainer(made, more, train.WithComm(comm))
		if err == nil || !strings.Contains(err.Error(), "each rank must run one micro-batch of an update") {
			t.Errorf("a trainer with two micro-batches a rank: %v", err)
		}
	})
	ranks.Run(t, 1, func(comm *cuda.Comm) {
		for _, of := range []*cuda.Comm{nil, comm} {
			_, err := model.New(comm.Context(), deep(), model.F32, 1, model.WithComm(of),
				model.WithPartitionedGradients(true))
			if err == nil || !strings.Contains(err.Error(), "among the ranks of a communicator") {
				t.Errorf("a model of a rank alone: %v", err)
			}
		}
	})
}

package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// eightExperts is a model whose arenas are cut into several shards, and whose experts into up to eight parts.
func eightExperts() model.Config {
	config := sharded()
	config.NumExperts = 8
	return config
}

// expertJobs have other numbers of replicas and of micro-batches; the last micro-batch of most is smaller.
var expertJobs = map[string]struct {
	config  model.Config
	options func(*train.Config)
	shapes  []shape
}{
	"f32, a replica a micro-batch and one more": {eightExperts(), func(*train.Config) {}, []shape{{2, 2}, {4, 2}, {8, 8}}},
	"a model of one shard, bf16, f8 moments, drops": {dropping(tiny()), func(c *train.Config) {
		c.Precision, c.Moments, c.BatchSize, c.MicroBatchSize, c.Replicas = model.BF16, train.MomentsF8, 13, 1, 5
	}, []shape{{2, 2}, {4, 2}, {4, 4}}},
	"f16 that overflows, f8 moments, recomputing": {eightExperts(), func(c *train.Config) {
		c.Precision, c.Moments, c.LossScale = model.F16, train.MomentsF8, 1<<24
		c.ActivationCheckpointing, c.RecomputeExperts = 2, true
		c.BatchSize, c.Replicas, c.ReduceDType = 15, 4, model.F16
	}, []shape{{4, 4}, {4, 2}, {2, 2}}},
	"six experts, f32": {sharded(), func(c *train.Config) { c.BatchSize, c.Replicas = 15, 7 }, []shape{
		{3, 3}, {6, 3}, {6, 6},
	}},
	"bf16, between replicas, too, drops, all blocks again": {dropping(eightExperts()), func(c *train.Config) {
		c.ReduceDType = model.BF16
		c.Precision, c.Moments, c.ActivationCheckpointing, c.Replicas = model.BF16, train.MomentsBF16, 1, 6
	}, []shape{{4, 4}, {6, 2}}},
}

// TestExpertsOverRanksWriteTheSameFiles: as one rank, with and without other groups on the way.
func TestExpertsOverRanksWriteTheSameFiles(t *testing.T) {
	for name, of := range expertJobs {
		t.Run(name, func(t *testing.T) {
			config, options, data := of.config, jobOptions(), writeShards(t, of.config.VocabSize)
			of.options(&options)
			options.Steps, options.WarmupSteps = 4, 2
			alone := t.TempDir()
			trainRun(t, must.Get(train.StartRun(newContext(t), alone, config, options, data, data, nil))(t), 0)
			wanted := trace(t, alone)
			for at, on := range of.shapes {
				folder, plain := t.TempDir(), at == 1 // one of them call by call
				jobOn(t, on, folder, data, config, options, 0, func(run *train.Run) { run.Trainer.NoCapture = plain })
				requireSameTrace(t, trace(t, folder), wanted, on.String())
			}
			folder := t.TempDir()
			for at, on := range []shape{of.shapes[0], {1, 1}, of.shapes[1]} {
				jobOn(t, on, folder, data, config, options, []int{1, 3, 0}[at], nil)
			}
			requireSameTrace(t, traceOfStopped(t, folder), wanted, "other groups on the way")
		})
	}
}

// TestExpertsOverRanksSeeTheSameSteps: what a step tells is what a rank alone is told, and each has its own experts.
func TestExpertsOverRanksSeeTheSameSteps(t *testing.T) {
	options, config := jobOptions(), eightExperts()
	options.Precision = model.BF16
	inputs, targets := randomBatch(rand.New(rand.NewPCG(51, 52)), config, options.BatchSize, 9)
	alone := newTrainer(t, newContext(t), config, options)
	var wanted []string
	for range 4 {
		result := must.Get(alone.TrainStep(inputs, targets, options.BatchSize))(t)
		wanted = append(wanted, told(t, result)+fmt.Sprint(result.Tokens, must.Get(result.ExpertCounts())(t)))
	}
	w1 := func(layer, expert int) string {
		return fmt.Sprintf("model.layers.%d.block_sparse_moe.experts.%d.w1.weight", layer, expert)
	}
	ranks.Run(t, 4, func(comm *cuda.Comm) {
		experts := must.Get(layer.NewExpertParallel(comm, 2, config.NumExperts))(t)
		made := must.Get(model.New(
			comm.Context(), config, options.Precision, options.Seed, model.WithExperts(experts)))(t)
		trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
		if whole := made.Layout.Size * 2; made.Weights.Bytes() > 4*whole/5 {
			t.Errorf("rank %d holds %d bytes of %d", comm.Rank(), made.Weights.Bytes(), whole)
		}
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
		own, other := 4*(comm.Rank()%2), 4*(1-comm.Rank()%2)
		for expert := own; expert < own+4; expert++ {
			here := must.Get(must.Get(made.Weights.Parameter(w1(1, expert)))(t).Floats())(t)
			there := must.Get(must.Get(alone.Model.Weights.Parameter(w1(1, expert)))(t).Floats())(t)
			requireSame(t, here, there, w1(1, expert))
		}
		refusal := fmt.Sprintf("this rank holds experts %d to %d of 8 alone", own, own+3)
		_, ofLogits := made.Logits(ids, 1)
		_, ofCache := made.Cache(1, 8)
		refused := []error{ofLogits, ofCache, made.RoundWeights(), trainer.GatherParameters()}
		for at := range 8 {
			spec, _ := made.Layout.Find(w1(at/4, other+at%4))
			here := slices.ContainsFunc(made.Held.Updated, func(span model.Span) bool {
				return span.Begin < spec.Offset+spec.Size() && spec.Offset < span.End
			})
			if !here { // it has those that it updates
				_, err := made.Gradients.Parameter(spec.Name)
				refused = append(refused, err)
			}
		}
		if len(refused) == 4 {
			t.Errorf("rank %d updates a part of all experts", comm.Rank())
		}
		for _, err := range refused {
			if err == nil || !strings.HasPrefix(err.Error(), refusal) {
				t.Errorf("rank %d: %v, not %s", comm.Rank(), err, refusal)
			}
		}
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
		if used := must.Get(comm.Context().BytesUsed())(t); used != 0 {
			t.Errorf("%d bytes are still used", used)
		}
	})
}

// TestDivergedExpertsOverRanks: the error of a rank alone, without what only that can find.
func TestDivergedExpertsOverRanks(t *testing.T) {
	for name, of := range map[string]struct {
		fault func(run *train.Run)
		words string
	}{
		"a large loss": {func(run *train.Run) { run.Trainer.Config.MaxLoss = 0.1 },
			", above max_loss (0.1): the largest gradient is not searched for while experts are on several ranks; the last"},
		"a value that is not finite": {func(run *train.Run) {
			plant(t, run.Trainer.Model, "model.norm.weight", func(values []float32) { values[7] = float32(math.NaN()) })
		}, "the loss is NaN at step 1: " +
			"the place where it began is not searched for while experts are on several ranks; the last"},
	} {
		t.Run(name, func(t *testing.T) {
			data, folder := writeShards(t, 48), t.TempDir()
			ranks.Run(t, 4, func(comm *cuda.Comm) {
				run := must.Get(train.StartRun(comm.Context(), folder, tiny(), jobOptions(), data, data, nil,
					train.WithComm(comm), train.WithExpertParallel(2)))(t)
				of.fault(run)
				err := run.Train(context.Background())
				if !errors.Is(err, train.ErrDiverged) || !strings.Contains(err.Error(), of.words) {
					t.Errorf("rank %d: %v, not %s", comm.Rank(), err, of.words)
				}
				must.Do(t, run.Close())
			})
		})
	}
}

// TestAFailureReachesGroupsAndOwners: a rank that cannot go on, in a round or behind all, ends the run on all.
func TestAFailureReachesGroupsAndOwners(t *testing.T) {
	for name, broken := range map[string]func(trainer *train.Trainer) error{
		"in a round":       func(trainer *train.Trainer) error { return trainer.Model.Gradients.Close() },
		"behind the round": func(trainer *train.Trainer) error { return trainer.Moments.Tensors()[0].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			data, folder := writeShards(t, eightExperts().VocabSize), t.TempDir()
			ranks.Run(t, 4, func(comm *cuda.Comm) {
				run := must.Get(train.StartRun(comm.Context(), folder, eightExperts(), jobOptions(), data, data, nil,
					train.WithComm(comm), train.WithExpertParallel(2)))(t)
				if comm.Rank() == 2 {
					must.Do(t, broken(run.Trainer))
				}
				err := run.Train(context.Background())
				if err == nil || !strings.Contains(err.Error(), "is closed") {
					t.Errorf("rank %d: %v", comm.Rank(), err)
				}
				must.Do(t, run.Close())
			})
		})
	}
}

// TestWrongExpertParallel: what divides not both numbers, what is unlike on ranks, and what the model was not made for.
func TestWrongExpertParallel(t *testing.T) {
	data := writeShards(t, 48)
	start := func(comm *cuda.Comm, folder string, experts int) error {
		run, err := train.StartRun(comm.Context(), folder, tiny(), jobOptions(), data, "", nil, train.WithComm(comm),
			train.WithExpertParallel(experts))
		if err == nil {
			must.Do(t, run.Close())
		}
		return err
	}
	for _, of := range []struct {
		ranks   int
		experts []int
		words   string
	}{
		{4, []int{3}, "expert_parallel is 3; it must divide the 4 ranks and the 4 experts"},
		{3, []int{3}, "expert_parallel is 3; it must divide the 3 ranks and the 4 experts"},
		{1, []int{2}, "expert_parallel is 2; it must divide the 1 ranks and the 4 experts"},
		{2, []int{0}, "expert_parallel is 0; it must divide the 2 ranks and the 4 experts"},
		{4, []int{2, 4}, "the expert parallel of rank 1 (4) is not that of rank 0 (2)"},
		{2, []int{1, 2}, "the expert parallel of rank 1 (2) is not that of rank 0 (1)"},
	} {
		folder := t.TempDir()
		ranks.Run(t, of.ranks, func(comm *cuda.Comm) {
			err := start(comm, folder, of.experts[comm.Rank()%len(of.experts)])
			if err == nil || !strings.Contains(err.Error(), of.words) {
				t.Errorf("rank %d of %d: %v, not %s", comm.Rank(), of.ranks, err, of.words)
			}
		})
	}
	made := must.Get(model.New(newContext(t), tiny(), model.F32, 0))(t)
	_, err := train.NewTrainer(made, options(), train.WithExpertParallel(2))
	if err == nil || err.Error() != "expert_parallel is 2; this model was made with 1" {
		t.Error(err)
	}
	must.Do(t, made.Close())
}

// TestDenseAndExperts: the parts of a layout are all of it, and none of it twice.
func TestDenseAndExperts(t *testing.T) {
	config := eightExperts()
	layout := model.NewLayout(config)
	spans := layout.Dense()
	for at := range config.NumLayers {
		for part := range 4 {
			both := layout.Experts(at, part, 4)
			spans = append(spans, both[:]...)
			first := fmt.Sprintf("model.layers.%d.block_sparse_moe.experts.%d.w", at, 2*part)
			for matrix, name := range []string{"1", "2"} {
				if spec, _ := layout.Find(first + name + ".weight"); spec.Offset != both[matrix].Begin {
					t.Errorf("%s%s lies at %d, not at %d", first, name, spec.Offset, both[matrix].Begin)
				}
			}
		}
	}
	slices.SortFunc(spans, func(a, b model.Span) int { return a.Begin - b.Begin })
	end := 0
	for _, span := range spans {
		if span.Begin != end || span.Size() <= 0 {
			t.Fatalf("%v follows element %d", span, end)
		}
		end = span.End
	}
	if end != layout.Size {
		t.Errorf("the last ends at %d of %d", end, layout.Size)
	}
}

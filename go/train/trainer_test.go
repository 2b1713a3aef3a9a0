package train_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/tinymodel"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

var tiny = tinymodel.Config

func options() train.Config {
	config := train.DefaultConfig()
	config.Steps, config.BatchSize, config.SequenceLength = 30, 4, 16
	config.WarmupSteps, config.LearningRate = 5, 1e-2
	return config
}

func newContext(t testing.TB) *cuda.Context {
	t.Helper()
	return withlibrary.Context(t, cuda.WithThreads(1))
}

func newTrainer(t testing.TB, ctx *cuda.Context, config model.Config, options train.Config) *train.Trainer {
	t.Helper()
	made := must.Get(model.New(ctx, config, options.Precision, options.Seed))(t)
	t.Cleanup(func() { must.Do(t, made.Close()) })
	trainer := must.Get(train.NewTrainer(made, options))(t)
	t.Cleanup(func() { must.Do(t, trainer.Close()) })
	return trainer
}

// randomBatch gives inputs and targets; one target in five counts for nothing.
func randomBatch(random *rand.Rand, config model.Config, batch, length int) (inputs, targets []int32) {
	for range batch * length {
		inputs = append(inputs, random.Int32N(int32(config.VocabSize)))
		target := random.Int32N(int32(config.VocabSize))
		if random.IntN(5) == 0 {
			target = model.IgnoreIndex
		}
		targets = append(targets, target)
	}
	return inputs, targets
}

// state is every value that a trainer holds.
func state(t testing.TB, trainer *train.Trainer) []float32 {
	t.Helper()
	var values []float32
	for _, arena := range append(trainer.Moments.Tensors(), trainer.Model.Parameters.Data) {
		values = append(values, must.Get(tensor.Read[float32](arena))(t)...)
	}
	return values
}

func requireSame(t testing.TB, found, wanted []float32, what string) {
	t.Helper()
	for at := range wanted {
		if found[at] != wanted[at] {
			t.Fatalf("%s: value %d is %v, not %v", what, at, found[at], wanted[at])
		}
	}
}

func TestCaptureAndShapesDoNotChangeTheBits(t *testing.T) {
	config, options := tiny(), options()
	config.CapacityFactor = 0.8
	options.MicroBatchSize, options.ClipNorm = 3, 0.3
	ctx := newContext(t)
	captured, plain := newTrainer(t, ctx, config, options), newTrainer(t, ctx, config, options)
	plain.NoCapture = true
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 12 {
		// Other shapes in between make the graph anew, and an evaluation runs layers beside it.
		batch, length := 4, 16
		if step == 6 {
			batch, length = 5, 31
		}
		inputs, targets := randomBatch(random, config, batch, length)
		results := [2]*train.StepResult{}
		for at, trainer := range []*train.Trainer{captured, plain} {
			results[at] = must.Get(trainer.TrainStep(inputs, targets, batch))(t)
		}
		for name, read := range map[string]func(*train.StepResult) (float64, error){
			"loss": (*train.StepResult).Loss, "aux_loss": (*train.StepResult).AuxLoss,
			"grad_norm": (*train.StepResult).GradNorm, "learning_rate": (*train.StepResult).LearningRate,
		} {
			found, wanted := must.Get(read(results[0]))(t), must.Get(read(results[1]))(t)
			if found != wanted || !(found > 0) {
				t.Errorf("step %d: %s is %v, without capture %v", step, name, found, wanted)
			}
		}
		counts, plainCounts := must.Get(results[0].ExpertCounts())(t), must.Get(results[1].ExpertCounts())(t)
		for layer := range counts {
			sum := int32(0)
			for expert := range counts[layer] {
				sum += counts[layer][expert]
				if counts[layer][expert] != plainCounts[layer][expert] {
					t.Errorf("step %d: layer %d, expert %d: %v, not %v", step, layer, expert, counts, plainCounts)
				}
			}
			if tokens := batch % options.MicroBatchSize * length; sum != int32(tokens*config.ExpertsPerToken) {
				t.Errorf("step %d: %d slots in the last micro-batch of %d tokens", step, sum, tokens)
			}
		}
		if step%4 == 3 {
			for _, trainer := range []*train.Trainer{captured, plain} {
				if _, _, err := trainer.Model.Evaluate(inputs, targets, batch); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	requireSame(t, state(t, captured), state(t, plain), "with and without capture")
}

func TestTrainingLearns(t *testing.T) {
	config := tiny()
	trainer := newTrainer(t, newContext(t), config, options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(3, 4)), config, 4, 16)
	var losses []float64
	for range 30 {
		losses = append(losses, must.Get(must.Get(trainer.TrainStep(inputs, targets, 4))(t).Loss())(t))
	}
	if losses[29] > losses[0]/2 {
		t.Errorf("the loss went from %v to %v on one batch", losses[0], losses[29])
	}
	total, count, err := trainer.Model.Evaluate(inputs, targets, 4)
	must.Do(t, err)
	if mean := total / float64(count); mean > losses[0]/2 {
		t.Errorf("evaluated to %v", mean)
	}
}

func TestWrongBatchesLeaveTheModelAsItIs(t *testing.T) {
	config := tiny()
	trainer := newTrainer(t, newContext(t), config, options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(5, 6)), config, 2, 8)
	before := state(t, trainer)
	changed := func(values []int32, at int, value int32) []int32 {
		copied := append([]int32(nil), values...)
		copied[at] = value
		return copied
	}
	ignored := make([]int32, len(targets))
	for at := range ignored {
		ignored[at] = model.IgnoreIndex
	}
	for _, wrong := range []struct {
		inputs, targets []int32
		batch           int
		words           string
		outOfRange      bool
	}{
		{changed(inputs, 9, 48), targets, 2, "input_ids[1, 1] is 48; it must be 0 to 47", true},
		{changed(inputs, 0, -100), targets, 2, "input_ids[0, 0] is -100", true},
		{inputs, changed(targets, 15, -1), 2, "targets[1, 7] is -1; it must be 0 to 47, or -100", true},
		{inputs, ignored, 2, "no target counts", false},
		{inputs, targets[:8], 2, "must have the same shape", false},
		{inputs, targets, 3, "must have the same shape", false},
		{inputs, targets, 0, "must have the same shape", false},
		{nil, nil, 1, "must have the same shape", false},
	} {
		_, err := trainer.TrainStep(wrong.inputs, wrong.targets, wrong.batch)
		if err == nil || !strings.Contains(err.Error(), wrong.words) ||
			errors.Is(err, cuda.ErrOutOfRange) != wrong.outOfRange {
			t.Errorf("%v, not %q", err, wrong.words)
		}
	}
	requireSame(t, state(t, trainer), before, "after wrong batches")
	if trainer.Step() != 0 {
		t.Errorf("%d steps", trainer.Step())
	}
}

func TestTrainersThatCannotBe(t *testing.T) {
	ctx, config := newContext(t), tiny()
	made := must.Get(model.New(ctx, config, model.F32, 0))(t)
	defer made.Close()
	long := options()
	long.SequenceLength = 33
	if _, err := train.NewTrainer(made, long); err == nil ||
		!strings.Contains(err.Error(), "this model's context is 32") {
		t.Error(err)
	}
	wrong := options()
	wrong.Beta2 = 1
	if _, err := train.NewTrainer(made, wrong); err == nil || !strings.Contains(err.Error(), "beta2 is 1.0") {
		t.Error(err)
	}
}

// TestMemoryReturns: what a trainer takes is given back when it is closed, whatever shapes it saw.
func TestMemoryReturns(t *testing.T) {
	ctx, config := newContext(t), tiny()
	random := rand.New(rand.NewPCG(7, 8))
	made := must.Get(model.New(ctx, config, model.F32, 0))(t)
	trainer := must.Get(train.NewTrainer(made, options()))(t)
	for _, length := range []int{4, 4, 9, 9, 9, 4} {
		inputs, targets := randomBatch(random, config, 2, length)
		must.Get(trainer.TrainStep(inputs, targets, 2))(t)
		if _, _, err := made.Evaluate(inputs, targets, 2); err != nil {
			t.Fatal(err)
		}
	}
	logits := must.Get(made.Logits([]int32{1, 2, 3}, 1))(t)
	must.Do(t, logits.Close())
	must.Do(t, trainer.Close())
	must.Do(t, made.Close())
	if used := must.Get(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

// TestNothingGrows: device memory is the same after every step, resident memory and threads after a thousand.
func TestNothingGrows(t *testing.T) {
	ctx, config := newContext(t), tiny()
	trainer := newTrainer(t, ctx, config, options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(9, 10)), config, 2, 8)
	for range 200 {
		must.Get(trainer.TrainStep(inputs, targets, 2))(t)
	}
	used, resident, threads := must.Get(ctx.BytesUsed())(t), account(t, "VmRSS"), account(t, "Threads")
	for range 1000 {
		must.Get(trainer.TrainStep(inputs, targets, 2))(t)
		if now := must.Get(ctx.BytesUsed())(t); now != used {
			t.Fatalf("%d bytes are used, not %d", now, used)
		}
	}
	if grown := account(t, "VmRSS") - resident; grown > 1024 {
		t.Errorf("the process grew by %d KiB", grown)
	}
	if more := account(t, "Threads") - threads; more > 1 { // the runtime may need one for its own work
		t.Errorf("%d threads more", more)
	}
}

// account reads a line of the process's own account, in KiB where it is memory.
func account(t testing.TB, field string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("this system has no account of a process: ", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return must.Get(strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB")))(t)
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

func BenchmarkTrainStep(b *testing.B) {
	config := must.Get(model.Preset("small"))(b)
	config.VocabSize = 512
	for _, captured := range []bool{true, false} {
		name := map[bool]string{true: "captured", false: "call by call"}[captured]
		b.Run(name, func(b *testing.B) {
			options := options()
			trainer := newTrainer(b, newContext(b), config, options)
			trainer.NoCapture = !captured
			inputs, targets := randomBatch(rand.New(rand.NewPCG(1, 1)), config, 4, 64)
			for range 2 {
				must.Get(trainer.TrainStep(inputs, targets, 4))(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				must.Get(trainer.TrainStep(inputs, targets, 4))(b)
			}
			b.ReportMetric(float64(len(inputs))*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// TestRehearsalsAreForContextsThatMeasure: elsewhere a step needs its ids.
func TestRehearsalsAreForContextsThatMeasure(t *testing.T) {
	trainer := newTrainer(t, newContext(t), tiny(), options())
	if err := trainer.Rehearse(2, 8); err == nil || trainer.Step() != 0 {
		t.Error(err, trainer.Step())
	}
}

package plan_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// tolerance is of what is measured.
const tolerance = 0.01

func wide() model.Config {
	config := model.Default()
	config.VocabSize, config.HiddenSize, config.NumLayers = 512, 96, 4
	config.NumHeads, config.NumKVHeads, config.HeadDim = 6, 2, 16
	config.NumExperts, config.ExpertsPerToken, config.FFNSize = 4, 2, 128
	config.Context, config.ExtendedContext = 256, 512
	return config
}

func trainOptions() train.Config {
	options := train.DefaultConfig()
	options.Steps, options.WarmupSteps, options.BatchSize, options.SequenceLength = 9, 1, 8, 128
	return options
}

func near(t *testing.T, what string, planned int, measured int64) {
	t.Helper()
	if off := math.Abs(float64(planned)-float64(measured)) / float64(measured); off > tolerance {
		t.Errorf("%s: planned %d bytes, measured %d: %.1f %% off", what, planned, measured, 100*off)
	}
}

func TestPlanIsWhatIsMeasured(t *testing.T) {
	many, large, deep := wide(), wide(), wide()
	deep.NumLayers, deep.HiddenSize = 9, 64
	many.NumExperts, many.ExpertsPerToken, many.NumLayers, many.CapacityFactor = 16, 4, 2, 1.5
	large.VocabSize, large.NumLayers = 6000, 2 // three chunks of logits
	for _, of := range []struct {
		name    string
		model   model.Config
		options func(*train.Config)
	}{
		{"f32", wide(), func(*train.Config) {}},
		{"every block in bf16, deep", deep, func(c *train.Config) {
			c.Precision, c.ActivationCheckpointing = model.BF16, 1
		}},
		{"accumulated, many experts", many, func(c *train.Config) { c.Precision, c.MicroBatchSize = model.BF16, 3 }},
		{"replicas", wide(), func(c *train.Config) { c.MicroBatchSize, c.Replicas = 1, 7 }},
		{"every second block, large vocabulary", large, func(c *train.Config) {
			c.Precision, c.ActivationCheckpointing, c.RecomputeExperts = model.F16, 2, true
		}},
	} {
		for _, capture := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/capture=%v", of.name, capture), func(t *testing.T) {
				ctx, options := withlibrary.Context(t, cuda.WithThreads(2)), trainOptions()
				of.options(&options)
				machine := must.Get(ctx.Machine())(t)
				made := must.Get(model.New(ctx, of.model, options.Precision, 1))(t)
				trainer := must.Get(train.NewTrainer(made, options))(t)
				trainer.NoCapture = !capture
				ids := make([]int32, options.BatchSize*options.SequenceLength)
				for at := range ids {
					ids[at] = int32(at * 7919 % of.model.VocabSize)
				}
				for range 3 {
					must.Get(trainer.TrainStep(ids, ids, options.BatchSize))(t)
				}
				steps := must.Get(ctx.BytesPeak())(t)
				rows := options.BatchSize
				if options.MicroBatchSize > 0 {
					rows = options.MicroBatchSize
				}
				part := ids[:rows*options.SequenceLength]
				if _, _, err := made.Evaluate(part, part, rows); err != nil {
					t.Fatal(err)
				}
				whole := must.Get(ctx.BytesPeak())(t)
				must.Do(t, trainer.Close())
				must.Do(t, made.Close())
				planned := must.Get(plan.TrainingOf(of.model, options, machine, plan.Alone, false, capture))(t)
				near(t, "steps", planned.Peak, steps)
				evaluated := must.Get(plan.TrainingOf(of.model, options, machine, plan.Alone, true, capture))(t)
				near(t, "with evaluation", evaluated.Peak, whole)
				sum := 0
				for _, kind := range plan.Kinds() {
					sum += planned.Bytes[kind]
				}
				if sum != planned.Peak || planned.Held != planned.Peak {
					t.Errorf("the kinds add up to %d, held are %d, the peak is %d", sum, planned.Held, planned.Peak)
				}
			})
		}
	}
}

// zeros are weights that all are zero.
type zeros struct{ layout *model.Layout }

func (z zeros) Names() (names []string) {
	for _, spec := range z.layout.Specs {
		names = append(names, spec.Name)
	}
	return names
}

func (z zeros) Shape(name string) ([]int, bool) {
	spec, found := z.layout.Find(name)
	return spec.Shape, found
}

func (z zeros) Floats(name string) ([]float32, error) {
	spec, _ := z.layout.Find(name)
	return make([]float32, spec.Size()), nil
}

func TestInference(t *testing.T) {
	for _, precision := range []model.Precision{model.F32, model.BF16} {
		ctx := withlibrary.Context(t, cuda.WithThreads(2))
		made := must.Get(model.Load(ctx, wide(), zeros{model.NewLayout(wide())}, precision, false))(t)
		prompt := make([]int32, 200)
		request := infer.Request{
			Prompts: [][]int32{prompt, prompt, prompt}, MaxNewTokens: 57, EndID: infer.NoToken,
		}
		for _, err := range infer.Batch(context.Background(), made, request) {
			must.Do(t, err)
		}
		machine := must.Get(ctx.Machine())(t)
		planned := must.Get(plan.Inference(wide(), precision, machine, 3, 256, 200))(t)
		near(t, string(precision), planned.Peak, must.Get(ctx.BytesPeak())(t))
		must.Do(t, made.Close())
	}
}

// Each way, taken, needs what it says; none is one that a smaller change makes needless.
func TestWaysToFit(t *testing.T) {
	machine, options := cuda.Machine{Device: cuda.CPU, Threads: 2}, trainOptions()
	needed := must.Get(plan.Training(wide(), options, machine, true))(t).Held
	for _, percent := range []int{95, 80, 60, 50} {
		free := needed * percent / 100
		ways, _, err := plan.WaysToFit(wide(), options, machine, plan.Alone, free, true)
		must.Do(t, err)
		if len(ways) != 3 {
			t.Errorf("%d %%: %d ways", percent, len(ways))
		}
		for at, way := range ways {
			changed, values := options, formats.NewObject()
			for _, change := range way.Changes {
				values.Set(change.Option, change.Value)
			}
			must.Do(t, changed.Assign(values))
			held := must.Get(plan.Training(wide(), changed, machine, true))(t).Held
			if held != way.Held || held > free {
				t.Errorf("%d %%: way %d needs %d, said was %d, free are %d", percent, at, held, way.Held, free)
			}
		}
	}
	ways, least, err := plan.WaysToFit(wide(), options, machine, plan.Alone, 1000, true)
	must.Do(t, err)
	if len(ways) != 0 || least == nil || least.Held >= needed {
		t.Errorf("ways %v, least %v", ways, least)
	}
}

func TestWhatCannotBePlanned(t *testing.T) {
	machine := cuda.Machine{Device: cuda.CPU, Threads: 1}
	refused := func(words string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the error is %v; wanted %q", err, words)
		}
	}
	long, deep, huge := trainOptions(), trainOptions(), trainOptions()
	long.SequenceLength, deep.ActivationCheckpointing, huge.BatchSize = 300, 5, 1<<31-1
	vast := wide()
	vast.FFNSize = 1 << 20
	_, err := plan.Training(vast, huge, machine, true)
	refused("the sizes make a run of more memory than any machine has", err)
	for words, options := range map[string]train.Config{
		"sequence_length is 300; this model's context is 256":    long,
		"activation_checkpointing is 5; this model has 4 blocks": deep,
	} {
		_, err := plan.Training(wide(), options, machine, true)
		refused(words, err)
	}
	for words, sizes := range map[string][2]int{
		"513 tokens are more than this model takes (512)":      {513, 1},
		"a prompt has 65 tokens; it must have 1 to 64":         {64, 65},
		"context is 0; it must be a whole number, at least 1":  {0, 0},
		"context is -3; it must be a whole number, at least 1": {-3, 1},
	} {
		_, err := plan.Inference(wide(), model.F32, machine, 1, sizes[0], sizes[1])
		refused(words, err)
	}
}

// A GPU gives more than is asked for, and keeps a captured step's scratch beside that of calls; never less.
func TestPagesOfAGPU(t *testing.T) {
	options := trainOptions()
	options.Precision, options.ActivationCheckpointing = model.BF16, 1
	planned := must.Get(plan.Training(wide(), options, cuda.Machine{Device: cuda.CUDA, Capability: 90}, true))(t)
	if planned.Held <= planned.Peak || float64(planned.Held) > 1.2*float64(planned.Peak) {
		t.Errorf("held are %d bytes for %d", planned.Held, planned.Peak)
	}
}

func TestParameters(t *testing.T) {
	for _, name := range model.Presets() {
		config := must.Get(model.Preset(name))(t)
		total, active := 0, 0
		for _, count := range plan.Parameters(config) {
			total += count.Total
			active += count.Active
		}
		if total != config.NumParameters() || active != config.NumActiveParameters() {
			t.Errorf("%s: the kinds have %d and %d parameters", name, total, active)
		}
	}
}

// TestStepsThatAreLeftOut: of many micro-batches three are run, or as many as there are replicas, and the plan is that of
// all of them.
func TestStepsThatAreLeftOut(t *testing.T) {
	for _, replicas := range []int{1, 5} {
		options, machine := trainOptions(), cuda.Machine{Device: cuda.CPU, Threads: 2}
		options.BatchSize, options.MicroBatchSize, options.Precision = 33, 2, model.F16
		options.Replicas = replicas
		ctx := must.Get(cuda.NewMeasuring(machine))(t)
		trainer := must.Get(train.NewTrainer(must.Get(model.New(ctx, wide(), options.Precision, 0))(t), options))(t)
		must.Do(t, trainer.Rehearse(options.BatchSize, options.SequenceLength))
		must.Do(t, trainer.Rehearse(options.BatchSize, options.SequenceLength))
		planned := must.Get(plan.TrainingOf(wide(), options, machine, plan.Alone, false, true))(t)
		if peak := must.Get(ctx.BytesPeak())(t); int64(planned.Peak) != peak {
			t.Errorf("planned %d bytes, measured %d", planned.Peak, peak)
		}
		must.Do(t, ctx.Close())
		work := must.Get(plan.TrainingWork(wide(), options, machine))(t).Sum()
		one := options
		one.BatchSize = 32
		less := must.Get(plan.TrainingWork(wide(), one, machine))(t).Sum()
		one.BatchSize, one.Replicas = 1, 1
		least := must.Get(plan.TrainingWork(wide(), one, machine))(t).Sum()
		// 32 sequences and one more are 33, but for the update, which is there once.
		update := less.Flops + least.Flops - work.Flops
		if parameters := wide().NumParameters(); update < 5*parameters || update > 50*parameters {
			t.Errorf("the update takes %d operations of %d parameters", update, parameters)
		}
	}
	seconds := plan.Work{"a": {Flops: 2e12, Bytes: 1}, "b": {Flops: 1, Bytes: 1e12}}.Seconds(
		plan.Device{Bandwidth: 1e12, FlopsF32: 1e12, Flops16: 4e12}, model.F32)
	if seconds != 3 {
		t.Errorf("%v s, not 3", seconds)
	}
}

func TestInferenceWork(t *testing.T) {
	machine := plan.Devices[len(plan.Devices)-1].Machine
	work := must.Get(plan.InferenceWork(wide(), model.BF16, machine, 4, 200))(t).Sum()
	// At least each weight that a token meets takes a product and a sum, and is read.
	if active := wide().NumActiveParameters(); work.Flops < 4*active || work.Bytes < active {
		t.Errorf("%+v of %d parameters", work, active)
	}
}

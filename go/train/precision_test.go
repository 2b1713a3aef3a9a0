package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

var sixteenBits = []model.Precision{model.BF16, model.F16, model.FP8}

// inPrecision are options of a trainer on micro-batches of different sizes.
func inPrecision(precision model.Precision) train.Config {
	config := options()
	config.Steps, config.WarmupSteps, config.MicroBatchSize, config.LearningRate = 200, 10, 3, 5e-3
	config.Precision = precision
	return config
}

// learnableBatch gives inputs and targets where each token decides the next, but for a tenth of noise.
func learnableBatch(seed uint64, config model.Config, batch, length int) (inputs, targets []int32) {
	random, vocab := rand.New(rand.NewPCG(seed, 1)), int32(config.VocabSize)
	for range batch {
		id := random.Int32N(vocab)
		for range length {
			inputs = append(inputs, id)
			if random.IntN(10) > 0 {
				id = (5*id + 7) % vocab
			} else {
				id = random.Int32N(vocab)
			}
			targets = append(targets, id)
		}
	}
	return inputs, targets
}

// rounded gives the nearest value of a 16-bit precision, of equals the even one.
func rounded(value float32, precision model.Precision) float32 {
	bits, least, largest := 7, -126, math.Ldexp(1+127./128, 127)
	if precision == model.F16 {
		bits, least, largest = 10, -14, 65504
	}
	if value == 0 {
		return value
	}
	_, exponent := math.Frexp(float64(value)) // of a mantissa below 1
	unit := math.Ldexp(1, max(exponent-1, least)-bits)
	nearest := math.RoundToEven(float64(value)/unit) * unit
	if math.Abs(nearest) > largest {
		return float32(math.Inf(int(math.Copysign(1, nearest))))
	}
	return float32(nearest)
}

// told is what a step tells, as a text, so that NaN equals NaN.
func told(t testing.TB, result *train.StepResult) string {
	t.Helper()
	values := []any{result.Step, result.Scaled()}
	for _, read := range []func() (float64, error){
		result.Loss, result.AuxLoss, result.GradNorm, result.LearningRate, result.LossScale,
	} {
		values = append(values, must.Get(read())(t))
	}
	return fmt.Sprintln(append(values, must.Get(result.SkippedSteps())(t))...)
}

func TestCapturedStepsIn16Bits(t *testing.T) {
	ctx, config := newContext(t), tiny()
	config.CapacityFactor = 1.2
	for _, precision := range sixteenBits {
		options := inPrecision(precision)
		if precision == model.F16 {
			options.LossScale, options.LossScaleInterval = 1<<24, 2
		}
		captured, plain := newTrainer(t, ctx, config, options), newTrainer(t, ctx, config, options)
		plain.NoCapture = true
		random, skipped := rand.New(rand.NewPCG(21, 22)), 0
		for step, shape := range [][2]int{{4, 12}, {4, 12}, {4, 12}, {4, 12}, {2, 7}, {4, 12}, {4, 12}, {4, 12}} {
			inputs, targets := randomBatch(random, config, shape[0], shape[1])
			ours := must.Get(captured.TrainStep(inputs, targets, shape[0]))(t)
			other := must.Get(plain.TrainStep(inputs, targets, shape[0]))(t)
			if found, wanted := told(t, ours), told(t, other); found != wanted {
				t.Errorf("%s, step %d: %s, without capture %s", precision, step, found, wanted)
			}
			skipped = must.Get(ours.SkippedSteps())(t)
			for _, trainer := range []*train.Trainer{captured, plain} {
				if _, _, err := trainer.Model.Evaluate(inputs[:5], targets[:5], 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		requireSame(t, state(t, captured), state(t, plain), string(precision)+" with and without capture")
		if (skipped > 0) != (precision == model.F16) || skipped == 8 {
			t.Errorf("%s: %d steps were skipped", precision, skipped)
		}
	}
}

func TestWeightsAreTheRoundedParameters(t *testing.T) {
	ctx, config := newContext(t), tiny()
	for _, precision := range sixteenBits {
		trainer := newTrainer(t, ctx, config, inPrecision(precision))
		for seed := range uint64(3) {
			inputs, targets := learnableBatch(seed, config, 4, 12)
			must.Get(trainer.TrainStep(inputs, targets, 4))(t)
			requireRounded(t, trainer.Model)
		}
	}
}

// requireRounded compares the weights with the parameters that they are copies of.
func requireRounded(t testing.TB, made *model.MoETransformer) {
	t.Helper()
	parameters := must.Get(made.Parameters.Data.Floats())(t)
	for at, weight := range must.Get(made.Weights.Data.Floats())(t) {
		if wanted := rounded(parameters[at], made.Precision); weight != wanted {
			t.Fatalf("%s: parameter %d is %v, its weight %v, not %v", made.Precision, at, parameters[at], weight, wanted)
		}
	}
}

// TestLossesFollowThoseOfF32: within 2 % at the end of 120 steps, on the mean of 20.
func TestLossesFollowThoseOfF32(t *testing.T) {
	ctx, config := newContext(t), tiny()
	ends := map[model.Precision]float64{}
	for _, precision := range []model.Precision{model.F32, model.BF16, model.F16} {
		trainer := newTrainer(t, ctx, config, inPrecision(precision))
		first := 0.0
		for step := range 120 {
			inputs, targets := learnableBatch(uint64(step), config, 4, 12)
			loss := must.Get(must.Get(trainer.TrainStep(inputs, targets, 4))(t).Loss())(t)
			if step == 0 {
				first = loss
			}
			if step >= 100 {
				ends[precision] += loss / 20
			}
		}
		if ends[precision] > 0.6*first {
			t.Errorf("%s: the loss went from %v to %v", precision, first, ends[precision])
		}
		if off := ends[precision]/ends[model.F32] - 1; math.Abs(off) > 0.02 || (off == 0) != (precision == model.F32) {
			t.Errorf("%s ends at %v, f32 at %v", precision, ends[precision], ends[model.F32])
		}
	}
}

// TestOverflowIsSkipped: the scale falls until the gradients fit; then training is as if begun with that scale.
func TestOverflowIsSkipped(t *testing.T) {
	ctx, config, options := newContext(t), tiny(), inPrecision(model.F16)
	options.LossScale = 1 << 24
	trainer := newTrainer(t, ctx, config, options)
	before := state(t, trainer)
	inputs, targets := learnableBatch(0, config, 4, 12)
	var result *train.StepResult
	skipped := 0
	for {
		result = must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		if scale := must.Get(result.LossScale())(t); scale != math.Ldexp(1, 24-skipped) {
			t.Fatalf("step %d has the scale %v", result.Step, scale)
		}
		if !must.Get(result.Skipped())(t) {
			break
		}
		skipped++
		norm, rate := must.Get(result.GradNorm())(t), must.Get(result.LearningRate())(t)
		if !math.IsInf(norm, 0) && !math.IsNaN(norm) || !math.IsNaN(rate) || must.Get(result.SkippedSteps())(t) != skipped {
			t.Errorf("norm %v, rate %v in step %d, which was skipped", norm, rate, skipped)
		}
		requireSame(t, state(t, trainer), before, "after a step that was skipped")
	}
	scaling := must.Get(trainer.LossScaling())(t)
	if wanted := (train.LossScaling{Scale: must.Get(result.LossScale())(t), GoodSteps: 1, Skipped: skipped}); skipped < 3 ||
		*scaling != wanted {
		t.Fatalf("%+v, not %+v", *scaling, wanted)
	}
	options.LossScale = scaling.Scale
	other := newTrainer(t, ctx, config, options)
	must.Get(other.TrainStep(inputs, targets, 4))(t)
	for seed := range uint64(6) {
		inputs, targets := learnableBatch(seed, config, 4, 12)
		must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		must.Get(other.TrainStep(inputs, targets, 4))(t)
	}
	requireSame(t, state(t, trainer), state(t, other), "after the steps that were skipped")
	if trainer.Step() != other.Step()+skipped {
		t.Errorf("%d steps, %d without the %d", trainer.Step(), other.Step(), skipped)
	}
}

// TestExplodingInputIsSkipped: a token whose embedding is infinite in f16, but not in f32, ends its own batch alone.
func TestExplodingInputIsSkipped(t *testing.T) {
	config := tiny()
	trainer := newTrainer(t, newContext(t), config, inPrecision(model.F16))
	inputs, targets := learnableBatch(0, config, 4, 12)
	for at, id := range inputs {
		if id == 7 {
			inputs[at] = 8
		}
	}
	must.Get(trainer.TrainStep(inputs, targets, 4))(t)
	table := must.Get(trainer.Model.Parameters.Parameter("model.embed_tokens.weight"))(t)
	must.Do(t, tensor.Fill(must.Get(table.Narrow(0, 7, 1))(t), 1e6))
	must.Do(t, trainer.Model.RoundWeights())
	before := state(t, trainer)
	poisoned := slices.Clone(inputs)
	poisoned[29] = 7
	result := must.Get(trainer.TrainStep(poisoned, targets, 4))(t)
	if loss := must.Get(result.Loss())(t); !must.Get(result.Skipped())(t) || !math.IsNaN(loss) && !math.IsInf(loss, 0) {
		t.Errorf("skipped %v, with a loss of %v", must.Get(result.Skipped())(t), loss)
	}
	requireSame(t, state(t, trainer), before, "after an input that explodes")
	result = must.Get(trainer.TrainStep(inputs, targets, 4))(t)
	if must.Get(result.Skipped())(t) || must.Get(result.LossScale())(t) != 32768 {
		t.Errorf("the next step has the scale %v", must.Get(result.LossScale())(t))
	}
}

func TestScaleGrowsAndLeavesTheGradients(t *testing.T) {
	ctx, config, options := newContext(t), tiny(), inPrecision(model.F16)
	options.LossScale, options.LossScaleGrowth, options.LossScaleInterval = 1024, 4, 3
	trainer := newTrainer(t, ctx, config, options)
	inputs, targets := learnableBatch(0, config, 4, 12)
	var scales, norms []float64
	for range 7 {
		result := must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		scales = append(scales, must.Get(result.LossScale())(t))
		norms = append(norms, must.Get(result.GradNorm())(t))
	}
	if !slices.Equal(scales, []float64{1024, 1024, 1024, 4096, 4096, 4096, 16384}) {
		t.Errorf("the scales are %v", scales)
	}
	if state := must.Get(trainer.LossScaling())(t); *state != (train.LossScaling{Scale: 16384, GoodSteps: 1}) {
		t.Errorf("%+v", *state)
	}
	// Powers of two change nothing but what falls below the smallest number of f16.
	options.LossScale = 65536
	norm := must.Get(must.Get(newTrainer(t, ctx, config, options).TrainStep(inputs, targets, 4))(t).GradNorm())(t)
	if math.Abs(norm/norms[0]-1) > 1./2048 {
		t.Errorf("the norm is %v with one scale, %v with another", norm, norms[0])
	}
}

func TestGradientsThatNeverFitEndTheRun(t *testing.T) {
	options := runOptions()
	options.Precision, options.LossScale = model.F16, 1./(1<<22)
	run := startRun(t, newContext(t), filepath.Join(t.TempDir(), "run"), writeShards(t, 48), options)
	defer run.Close()
	gains := must.Get(run.Trainer.Model.Parameters.Parameter("model.norm.weight"))(t)
	must.Do(t, tensor.Fill(gains, float32(math.NaN())))
	must.Do(t, run.Trainer.Model.RoundWeights())
	err := run.Train(context.Background())
	if !errors.Is(err, train.ErrDiverged) ||
		!strings.Contains(err.Error(), "overflow at step 3 with the least loss scale") {
		t.Error(err)
	}
}

func TestTrainersHaveThePrecisionOfTheirModel(t *testing.T) {
	ctx, config := newContext(t), tiny()
	made := must.Get(model.New(ctx, config, model.F32, 0))(t)
	defer made.Close()
	if _, err := train.NewTrainer(made, inPrecision(model.BF16)); err == nil ||
		!strings.Contains(err.Error(), "precision is bf16; this model computes in f32") {
		t.Error(err)
	}
	const problem = "is required with precision f16, and allowed with no other"
	for _, precision := range []model.Precision{model.F32, model.F16} {
		trainer := newTrainer(t, ctx, config, inPrecision(precision))
		var wrong *train.LossScaling
		if precision == model.F32 {
			wrong = &train.LossScaling{Scale: 1}
		}
		if err := trainer.Restore(3, wrong); err == nil || !strings.Contains(err.Error(), problem) {
			t.Error(err)
		}
	}
}

// TestNothingGrowsIn16Bits: a trainer gives back what it takes, loss scaling included.
func TestNothingGrowsIn16Bits(t *testing.T) {
	ctx, config := newContext(t), tiny()
	for _, precision := range sixteenBits {
		made := must.Get(model.New(ctx, config, precision, 0))(t)
		trainer := must.Get(train.NewTrainer(made, inPrecision(precision)))(t)
		var used int64
		for step := range 8 {
			inputs, targets := learnableBatch(uint64(step), config, 4, 12)
			must.Get(trainer.TrainStep(inputs, targets, 4))(t)
			now := must.Get(ctx.BytesUsed())(t)
			if step == 2 {
				used = now
			} else if step > 2 && now != used {
				t.Errorf("%s: %d bytes are used, not %d", precision, now, used)
			}
		}
		must.Do(t, errors.Join(trainer.Close(), made.Close()))
		if used := must.Get(ctx.BytesUsed())(t); used != 0 {
			t.Errorf("%s: %d bytes are still used", precision, used)
		}
	}
}

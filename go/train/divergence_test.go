package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// plant changes the values of a parameter.
func plant(t testing.TB, m *model.MoETransformer, name string, change func(values []float32)) {
	t.Helper()
	view := must.Get(m.Parameters.Parameter(name))(t)
	values := must.Get(tensor.Read[float32](view))(t)
	change(values)
	must.Do(t, tensor.Write(view, values))
	must.Do(t, m.RoundWeights())
}

// times multiplies all values.
func times(factor float32) func([]float32) {
	return func(values []float32) {
		for at := range values {
			values[at] *= factor
		}
	}
}

// experts plants the same in a matrix of every expert of a layer.
func experts(t testing.TB, m *model.MoETransformer, layer int, matrix string, change func([]float32)) {
	t.Helper()
	for expert := range m.Config.NumExperts {
		name := fmt.Sprintf("model.layers.%d.block_sparse_moe.experts.%d.%s.weight", layer, expert, matrix)
		plant(t, m, name, change)
	}
}

// TestFaultsAreNamed: what is planted after the second step is found in the third, wherever it lies, when the fifth is
// reported, or the fourth is to be saved. Nothing is updated or saved in between, and the run can resume.
func TestFaultsAreNamed(t *testing.T) {
	const value = `\((nan|-?inf)\)`
	output := func(of string) string { return `: ` + of + ` is not finite, first at \[\d+, \d+\] ` + value }
	for name, fault := range map[string]struct {
		plant func(m *model.MoETransformer)
		found string // a regular expression
	}{
		"a matrix": {func(m *model.MoETransformer) {
			plant(t, m, "model.layers.1.block_sparse_moe.gate.weight", func(values []float32) {
				values[2*m.Config.HiddenSize+5] = float32(math.Inf(-1))
			})
		}, `the loss is NaN at step 3: model\.layers\.1\.block_sparse_moe\.gate\.weight is not finite, first at ` +
			`\[2, 5\] \(-inf\)`},
		"a gain": {func(m *model.MoETransformer) {
			plant(t, m, "model.norm.weight", func(values []float32) { values[7] = float32(math.NaN()) })
		}, `the loss is NaN at step 3: model\.norm\.weight is not finite, first at \[7\] \(nan\)`},
		"attention": {func(m *model.MoETransformer) {
			plant(t, m, "model.layers.0.self_attn.v_proj.weight", times(1e30))
			plant(t, m, "model.layers.0.self_attn.o_proj.weight", times(1e30))
		}, output(`c of cuda_gemm in model\.layers\.0\.self_attn`)},
		"experts": {func(m *model.MoETransformer) {
			experts(t, m, 1, "w2", times(1e30))
			experts(t, m, 1, "w3", times(1e30))
		}, output(`c of cuda_grouped_gemm in model\.layers\.1\.block_sparse_moe`)},
		"the head": {func(m *model.MoETransformer) {
			plant(t, m, "model.norm.weight", times(1e30))
			plant(t, m, "lm_head.weight", times(1e30))
		}, output(`c of cuda_gemm in lm_head`)},
		// With w3 all zero nothing reaches the output, but a product overflows on the way back.
		"a gradient": {func(m *model.MoETransformer) {
			experts(t, m, 1, "w1", times(1e6))
			experts(t, m, 1, "w2", times(1e38))
			experts(t, m, 1, "w3", times(0))
		}, `the loss is [0-9.]+ at step 3: gate_up of cuda_grouped_gemm_swiglu_backward in backward of ` +
			`model\.layers\.1\.block_sparse_moe is not finite, first at \[\d+, \d+\] ` + value},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
			options := runOptions()
			options.SaveEvery, options.LogEvery, options.EvalEvery = 0, 5, 0
			if name == "a gain" {
				options.SaveEvery = 4
			}
			run := startRun(t, ctx, folder, data, options)
			var planted []float32
			run.OnProgress = func(progress train.Progress) {
				if progress.Step == 2 {
					must.Do(t, run.Save(nil))
					fault.plant(run.Trainer.Model)
					planted = state(t, run.Trainer)
				}
			}
			err := run.Train(context.Background())
			words := `^.*` + fault.found + `; the last checkpoint is from before that\. A lower learning rate or a ` +
				`longer warm-up usually helps$`
			var diverged *train.DivergedError
			if !errors.As(err, &diverged) || !errors.Is(err, train.ErrDiverged) ||
				!regexp.MustCompile(words).MatchString(err.Error()) || diverged.Step != 3 {
				t.Errorf("%v\nis not %s", err, words)
			}
			for at, value := range state(t, run.Trainer) {
				if math.Float32bits(value) != math.Float32bits(planted[at]) {
					t.Fatalf("value %d was updated from %v to %v", at, planted[at], value)
				}
			}
			must.Do(t, run.Close())
			if last := filepath.Base(must.Get(train.ResolveCheckpoint(folder, false))(t)); last != "step-00000002" {
				t.Errorf("the last checkpoint is %s", last)
			}
			trainRun(t, must.Get(train.ResumeRun(ctx, folder, data, data, nil))(t), 0)
			if used := must.Get(ctx.BytesUsed())(t); used != 0 {
				t.Errorf("%d bytes are still used", used)
			}
		})
	}
}

// TestFaultsAreNamedIn16Bits: in the weights that the model computes with, where the largest f32 is infinite.
func TestFaultsAreNamedIn16Bits(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	options := runOptions()
	options.Precision = model.BF16
	run := startRun(t, ctx, folder, data, options)
	defer run.Close()
	run.OnProgress = func(progress train.Progress) {
		if progress.Step == 4 {
			plant(t, run.Trainer.Model, "lm_head.weight", func(values []float32) { values[33] = math.MaxFloat32 })
		}
	}
	err := run.Train(context.Background())
	if words := "the loss is NaN at step 5: lm_head.weight is not finite, first at [1, 9] (inf); "; err == nil ||
		!strings.HasPrefix(err.Error(), words) {
		t.Errorf("%v\nis not %s", err, words)
	}
}

// TestDivergenceThatCannotBeExplained: the data is gone when the step is to be run again.
func TestDivergenceThatCannotBeExplained(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	run := startRun(t, ctx, folder, data, runOptions())
	defer run.Close()
	run.OnProgress = func(train.Progress) {
		plant(t, run.Trainer.Model, "lm_head.weight", func(values []float32) {
			values[0] = float32(math.NaN())
		})
	}
	run.OnRecord = func(record *formats.Object) error {
		if record.Get("step") == 2 {
			for _, name := range []string{"a.tokens", "b.tokens"} {
				must.Do(t, os.Truncate(filepath.Join(data, name), 64))
			}
		}
		return nil
	}
	err := run.Train(context.Background())
	words := `^the loss is NaN at step 2: where it began could not be found \(\S+: was cut to 64 bytes while it was in ` +
		`use; it had 664\); the last checkpoint is from before`
	if !errors.Is(err, train.ErrDiverged) || !regexp.MustCompile(words).MatchString(err.Error()) {
		t.Error(err)
	}
}

// TestARestoredTrainerUpdatesAgain, whatever the steps before were.
func TestARestoredTrainerUpdatesAgain(t *testing.T) {
	trainer := newTrainer(t, newContext(t), tiny(), options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(1, 2)), tiny(), 4, 16)
	skipped := func() bool {
		return must.Get(must.Get(trainer.TrainStep(inputs, targets, 4))(t).Skipped())(t)
	}
	plant(t, trainer.Model, "model.norm.weight", times(float32(math.Inf(1))))
	if !skipped() {
		t.Error("a step without finite gradients updated something")
	}
	plant(t, trainer.Model, "model.norm.weight", func(values []float32) {
		for at := range values {
			values[at] = 1
		}
	})
	if !skipped() {
		t.Error("the step after it updated something")
	}
	must.Do(t, trainer.Restore(0, nil))
	for step := range 2 {
		if skipped() {
			t.Errorf("step %d after Restore updated nothing", step+1)
		}
	}
}

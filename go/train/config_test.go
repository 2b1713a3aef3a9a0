package train_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

func parse(t testing.TB, text string) *formats.Object {
	t.Helper()
	return must(formats.ParseJSON([]byte(text)))(t).(*formats.Object)
}

func TestOptionsThatAreRefused(t *testing.T) {
	for text, words := range map[string]string{
		`{"speed": 3}`:                  "there is no training option \"speed\"; did you mean seed?",
		`{"steps": 0}`:                  "steps is 0; it must be a whole number, from 1 to 2147483647",
		`{"steps": 2.5}`:                "steps is 2.5; it must be a whole number, from 1 to 2147483647",
		`{"steps": 4294967296}`:         "steps is 4294967296; it must be",
		`{"warmup_steps": -1}`:          "warmup_steps is -1; it must be a whole number, from 0 to 2147483647",
		`{"micro_batch_size": 0}`:       "micro_batch_size is 0; it must be a whole number, from 1 to 2147483647",
		`{"micro_batch_size": -2}`:      "micro_batch_size is -2; it must be a whole number, from 1 to 2147483647",
		`{"learning_rate": "fast"}`:     "learning_rate is \"fast\"; it must be a number, from 0 to 1e+30",
		`{"learning_rate": Infinity}`:   "learning_rate is not finite; it must be a number, from 0 to 1e+30",
		`{"min_rate_share": 1.1}`:       "min_rate_share is 1.1; it must be a number, from 0 to 1",
		`{"beta1": 1}`:                  "beta1 is 1.0; it must be a number, from 0 to 0.999999",
		`{"eps": 0}`:                    "eps is 0.0; it must be a number, from 1e-30 to 1",
		`{"weight_decay": -0.1}`:        "weight_decay is -0.1; it must be a number, from 0 to 1e+30",
		`{"clip_norm": 0}`:              "clip_norm is 0; it must be a number, from 1e-30 to 1e+30, or none",
		`{"seed": 9223372036854775808}`: "seed is 9223372036854775808; it must be a whole number of 64 bits",
		`{"seed": 1.0}`:                 "seed is 1.0; it must be a whole number of 64 bits",
		`{"keep_checkpoints": 0}`:       "keep_checkpoints is 0; it must be a whole number, from 1 to 2147483647",

		`{"activation_checkpointing": -1}`:                           "activation_checkpointing is -1; it must be a whole",
		`{"activation_checkpointing": true}`:                         "activation_checkpointing is true; it must be a",
		`{"recompute_experts": 1}`:                                   "recompute_experts is 1; it must be true or false",
		`{"recompute_experts": true, "activation_checkpointing": 1}`: "1 leaves none",

		`{"precision": "f8"}`: "precision is \"f8\"; it must be one of f32, bf16, f16",
		`{"precision": null}`: "precision is null; it must be one of f32, bf16, f16",
		`{"precision": 16}`:   "precision is 16; it must be one of f32, bf16, f16",

		`{"loss_scale": 2}`: "loss_scale is given, but the precision is f32",
		`{"precision": "bf16", "loss_scale_interval": 5}`: "loss_scale_interval is given, but the precision is bf16",
		`{"precision": "f16", "loss_scale": 33554432}`:    "loss_scale is 33554432.0; it must be a number, from 5.96046e-08",
		`{"precision": "f16", "loss_scale_growth": 0.5}`:  "loss_scale_growth is 0.5; it must be a number, from 1",
		`{"precision": "f16", "loss_scale_backoff": 0}`:   "loss_scale_backoff is 0.0; it must be a number, from 5.9",
		`{"precision": "f16", "loss_scale_backoff": 1.5}`: "loss_scale_backoff is 1.5; it must be a number, from 5.9",
		`{"precision": "f16", "loss_scale_interval": 0}`:  "loss_scale_interval is 0; it must be a whole number",
	} {
		config := train.DefaultConfig()
		err := config.Assign(parse(t, text))
		if err == nil {
			err = config.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, not %q", text, err, words)
		}
	}
	config := train.DefaultConfig()
	check(
		t,
		config.Assign(parse(t, `{"seed": -9223372036854775808, "clip_norm": null, "micro_batch_size": 3, "beta1": 0}`)),
	)
	check(t, config.Validate())
	again := train.DefaultConfig()
	check(t, again.Assign(config.Object()))
	config.WarmupSteps = 500 // a twentieth of the steps
	if again != config || config.ClipNorm != 0 || config.MicroBatchSize != 3 {
		t.Errorf("%+v, not %+v", again, config)
	}
}

const stateText = `{"format": "nncuda training state", "version": 1, "step": 3, "data_position": 12, "data_windows": 7,
"seconds": 1.5, "train": {"steps": 9}, "held_out_loss": null}`

func TestStates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "training.json")
	read := func(text string) (train.State, error) {
		check(t, os.WriteFile(path, []byte(text), 0o666))
		return train.ReadState(path)
	}
	state := must(read(stateText))(t)
	if state.Step != 3 || state.DataPosition != 12 || state.DataWindows != 7 || state.Train.Steps != 9 ||
		state.HeldOutLoss != nil {
		t.Errorf("%+v", state)
	}
	state = must(read(strings.Replace(stateText, `"held_out_loss": null`, `"held_out_loss": NaN`, 1)))(t)
	if state.HeldOutLoss == nil || !math.IsInf(*state.HeldOutLoss, 0) {
		t.Errorf("the held-out loss is %v, not one that is not finite", state.HeldOutLoss)
	}
	for change, words := range map[[2]string]string{
		{`"nncuda training state"`, `"notes"`}:                       "is not a training state of nncuda",
		{`"nncuda training state"`, `["x"]`}:                         "is not a training state of nncuda",
		{`"version": 1`, `"version": 2`}:                             "of version 2; this program reads version 1",
		{`"version": 1`, `"version": {}`}:                            "is a training state of version {}",
		{`"step": 3, `, ``}:                                          "held_out_loss, seconds, train; some",
		{`"step": 3`, `"step": 3, "more": 1`}:                        "some are missing, or should not be there",
		{`"step": 3`, `"step": -3`}:                                  "step is -3; it must be a whole number, from 0 to 2147483647",
		{`"step": 3`, `"step": 3.0`}:                                 "step is 3.0; it must be a whole number",
		{`"step": 3`, `"step": 1e999`}:                               "step is not finite; it must be a whole number",
		{`"data_windows": 7`, `"data_windows": 0`}:                   "data_windows is 0; it must be",
		{`"data_windows": 7`, `"data_windows": 9223372036854775807`}: "data_windows is 9223372036854775807",
		{`"seconds": 1.5`, `"seconds": "x"`}:                         "seconds is \"x\"; it must be a number",
		{`{"steps": 9}`, `[]`}:                                       "train is not an object",
		{`{"steps": 9}`, `{"steps": 0}`}:                             "steps is 0; it must be a whole number, from 1 to 2147483647",
		{`{"steps": 9}`, `{"pace": 0}`}:                              "there is no training option \"pace\"",
	} {
		_, err := read(strings.Replace(stateText, change[0], change[1], 1))
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %q", err, words)
		}
	}
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte(stateText))
	f.Add([]byte(strings.NewReplacer(`"steps": 9`, `"steps": 9, "precision": "f16"`, `null}`,
		`null, "loss_scaling": {"scale": 1024, "good_steps": 2, "skipped": 1}}`).Replace(stateText)))
	path := filepath.Join(f.TempDir(), "training.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, os.WriteFile(path, data, 0o666))
		state, err := train.ReadState(path)
		if err != nil {
			return
		}
		check(t, state.Train.Validate())
		_ = must(formats.JSONLine(state.Object()))(t)
	})
}

// TestUsualWarmup: a twentieth of the steps, and never all of them.
func TestUsualWarmup(t *testing.T) {
	for steps, warmup := range map[int]int64{1: 0, 2: 1, 39: 1, 40: 2, 2000: 100, 40019: 2000, 50000: 2000} {
		config := train.DefaultConfig()
		config.Steps = steps
		check(t, config.Validate())
		check(t, config.CheckSchedule())
		if found := config.Object().Get("warmup_steps"); found != warmup {
			t.Errorf("of %d steps %v are warm-up, not %d", steps, found, warmup)
		}
		config.WarmupSteps = steps
		words := fmt.Sprintf("warmup_steps is %d, but there are %d steps: ", steps, steps)
		if err := config.CheckSchedule(); err == nil || !strings.HasPrefix(err.Error(), words) {
			t.Error(err)
		}
	}
}

// TestPresetsHaveTrainingOptions: each preset of models.
func TestPresetsHaveTrainingOptions(t *testing.T) {
	for _, name := range model.Presets() {
		config := must(train.Preset(name))(t)
		check(t, config.Validate())
		check(t, config.CheckSchedule())
	}
	if small := must(train.Preset(model.UsualPreset))(t); small.Steps != 2000 || small.LearningRate != 2e-3 {
		t.Errorf("%+v", small)
	}
	if _, err := train.Preset("huge"); err == nil {
		t.Error("there is a preset 'huge'")
	}
}

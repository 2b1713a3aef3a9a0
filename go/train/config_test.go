package train_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

func parse(t testing.TB, text string) *formats.Object {
	t.Helper()
	return must.Get(formats.ParseJSON([]byte(text)))(t).(*formats.Object)
}

// TestOptionsAndBack: what a file says of options comes back as it was.
func TestOptionsAndBack(t *testing.T) {
	config := train.DefaultConfig()
	must.Do(
		t,
		config.Assign(parse(t, `{"seed": -9223372036854775808, "clip_norm": null, "micro_batch_size": 3, "beta1": 0}`)),
	)
	must.Do(t, config.Validate())
	again := train.DefaultConfig()
	must.Do(t, again.Assign(config.Object()))
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
		must.Do(t, os.WriteFile(path, []byte(text), 0o666))
		return train.ReadState(path)
	}
	state := must.Get(read(stateText))(t)
	if state.Step != 3 || state.DataPosition != 12 || state.DataWindows != 7 || state.Train.Steps != 9 ||
		state.HeldOutLoss != nil {
		t.Errorf("%+v", state)
	}
	state = must.Get(read(strings.Replace(stateText, `"held_out_loss": null`, `"held_out_loss": NaN`, 1)))(t)
	if state.HeldOutLoss == nil || !math.IsInf(*state.HeldOutLoss, 0) {
		t.Errorf("the held-out loss is %v, not one that is not finite", state.HeldOutLoss)
	}
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte(stateText))
	f.Add([]byte(strings.NewReplacer(`"steps": 9`, `"steps": 9, "precision": "f16"`, `null}`,
		`null, "loss_scaling": {"scale": 1024, "good_steps": 2, "skipped": 1}}`).Replace(stateText)))
	path := filepath.Join(f.TempDir(), "training.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		must.Do(t, os.WriteFile(path, data, 0o666))
		state, err := train.ReadState(path)
		if err != nil {
			return
		}
		must.Do(t, state.Train.Validate())
		_ = must.Get(formats.JSONLine(state.Object()))(t)
	})
}

// TestUsualWarmup: a twentieth of the steps, and never all of them.
func TestUsualWarmup(t *testing.T) {
	for steps, warmup := range map[int]int64{1: 0, 2: 1, 39: 1, 40: 2, 2000: 100, 40019: 2000, 50000: 2000} {
		config := train.DefaultConfig()
		config.Steps = steps
		must.Do(t, config.Validate())
		must.Do(t, config.CheckSchedule())
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
		config := must.Get(train.Preset(name))(t)
		must.Do(t, config.Validate())
		must.Do(t, config.CheckSchedule())
	}
	if small := must.Get(train.Preset(model.UsualPreset))(t); small.Steps != 2000 || small.LearningRate != 2e-3 {
		t.Errorf("%+v", small)
	}
	if _, err := train.Preset("huge"); err == nil {
		t.Error("there is a preset 'huge'")
	}
}

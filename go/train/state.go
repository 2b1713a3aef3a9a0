package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
)

const (
	stateFormat  = "nncuda training state"
	stateVersion = 1
)

// State is what a run needs beside weights and moments to go on.
type State struct {
	Step         int
	DataPosition int     // windows visited
	DataWindows  int     // windows that the data had
	Seconds      float64 // time spent training
	Train        Config
	HeldOutLoss  *float64     // nil when this moment was not evaluated
	LossScaling  *LossScaling // nil in another precision than f16
	Base         *Base        // of a run that trains an adapter; nil of others
}

// Base is the model beside which an adapter is trained: where it lies, and SHA-256 of its weights, as of stored.FrozenBase.
type Base struct{ Folder, WeightsSHA256 string }

// updates counts the steps that were not skipped.
func (s State) updates() int {
	if s.LossScaling == nil {
		return s.Step
	}
	return s.Step - s.LossScaling.Skipped
}

// document is the content of training.json.
func (s State) document() *formats.Object {
	object := formats.NewObject("format", stateFormat, "version", stateVersion, "train", s.Train.Object())
	object.Update(s.Object())
	return object
}

// Object gives step, position, time, held-out loss and loss scaling by name, without the options.
func (s State) Object() *formats.Object {
	object := formats.NewObject("step", int64(s.Step), "data_position", int64(s.DataPosition),
		"data_windows", int64(s.DataWindows), "seconds", s.Seconds, "held_out_loss", nil)
	if s.HeldOutLoss != nil {
		object.Set("held_out_loss", *s.HeldOutLoss)
	}
	if s.Base != nil {
		object.Set("base", formats.NewObject("folder", s.Base.Folder, "weights_sha256", s.Base.WeightsSHA256))
	}
	if scaling := s.LossScaling; scaling != nil {
		object.Set("loss_scaling", formats.NewObject("scale", scaling.Scale,
			"good_steps", int64(scaling.GoodSteps), "skipped", int64(scaling.Skipped)))
	}
	return object
}

// ReadState reads and checks a training.json.
func ReadState(path string) (State, error) {
	values, err := formats.ReadJSON(path)
	if err != nil {
		return State{}, err
	}
	state, err := stateFrom(values)
	return state, formats.Wrap(path, err)
}

func stateFrom(values *formats.Object) (State, error) {
	state := State{Train: DefaultConfig()}
	if values.Delete("format") != any(stateFormat) {
		return state, fmt.Errorf("is not a training state of nncuda")
	}
	if version := values.Delete("version"); version != any(int64(stateVersion)) {
		found := formats.Shown(version)
		return state, fmt.Errorf("is a training state of version %s; this program reads version %d", found, stateVersion)
	}
	scaling, base := values.Delete("loss_scaling"), values.Delete("base")
	wanted := []string{"data_position", "data_windows", "held_out_loss", "seconds", "step", "train"}
	if found := values.SortedNames(); !slices.Equal(found, wanted) {
		names := strings.Join(found, ", ")
		return state, fmt.Errorf("has the entries %s; some are missing, or should not be there", names)
	}
	const mostWindows = 1<<62 - 1
	for _, whole := range []struct {
		name        string
		least, most int64
		into        *int
	}{
		{"step", 0, formats.MaxCount, &state.Step},
		{"data_position", 0, mostWindows, &state.DataPosition},
		{"data_windows", 1, mostWindows, &state.DataWindows},
	} {
		value, ok := values.Get(whole.name).(int64)
		if !ok || value < whole.least || value > whole.most {
			rule := fmt.Sprintf("a whole number, from %d to %d", whole.least, whole.most)
			return state, fmt.Errorf("%s is %s; it must be %s", whole.name, formats.Shown(values.Get(whole.name)), rule)
		}
		*whole.into = int(value)
	}
	var err error
	if state.Seconds, err = number(values, "seconds"); err != nil {
		return state, err
	}
	loss, isFloat := values.Get("held_out_loss").(float64)
	switch {
	case values.Get("held_out_loss") == nil:
	case isFloat && (math.IsNaN(loss) || math.IsInf(loss, 0)): // which a loss may become
		state.HeldOutLoss = &loss
	default:
		if loss, err = number(values, "held_out_loss"); err != nil {
			return state, err
		}
		state.HeldOutLoss = &loss
	}
	given, ok := values.Get("train").(*formats.Object)
	if !ok {
		return state, fmt.Errorf("train is not an object")
	}
	if err := state.Train.Assign(given); err != nil {
		return state, err
	}
	if err := state.Train.Validate(); err != nil {
		return state, err
	}
	if state.LossScaling, err = scalingFrom(scaling, state); err != nil {
		return state, err
	}
	state.Base, err = baseFrom(base, state.Train.LoraRank)
	return state, err
}

// baseFrom checks the base of a state; `value` is nil where the file has none.
func baseFrom(value any, rank int) (*Base, error) {
	switch {
	case value == nil && rank > 0:
		return nil, fmt.Errorf("has no base; its lora_rank is %d", rank)
	case value == nil:
		return nil, nil
	case rank == 0:
		return nil, fmt.Errorf("has a base; its lora_rank is %d", rank)
	}
	if values, ok := value.(*formats.Object); ok && slices.Equal(values.SortedNames(), []string{"folder", "weights_sha256"}) {
		folder, isText := values.Get("folder").(string)
		hash, alsoText := values.Get("weights_sha256").(string)
		if isText && alsoText {
			return &Base{folder, hash}, nil
		}
	}
	return nil, fmt.Errorf("base is %s; it must have folder and weights_sha256, as text", formats.Shown(value))
}

// scalingFrom checks the loss scaling of a state of which all else was read; `value` is nil where the file has none.
func scalingFrom(value any, state State) (*LossScaling, error) {
	precision := state.Train.Precision
	switch {
	case value == nil && precision == model.F16:
		return nil, fmt.Errorf("has no loss_scaling; its precision is %s", precision)
	case value == nil:
		return nil, nil
	case precision != model.F16:
		return nil, fmt.Errorf("has a loss_scaling; its precision is %s", precision)
	}
	values, ok := value.(*formats.Object)
	if !ok || !slices.Equal(values.SortedNames(), []string{"good_steps", "scale", "skipped"}) {
		found := formats.Shown(value)
		return nil, fmt.Errorf("loss_scaling is %s; it must have scale, good_steps and skipped", found)
	}
	scale, err := number(values, "scale")
	if err != nil {
		found := formats.Shown(values.Get("scale"))
		return nil, fmt.Errorf("the scale of loss_scaling is %s; it must be a number, 2^-24 to 2^24", found)
	}
	scaling := &LossScaling{Scale: scale}
	for _, whole := range []struct {
		name string
		most int
		into *int
	}{
		{"good_steps", math.MaxInt32, &scaling.GoodSteps},
		{"skipped", min(state.Step, math.MaxInt32), &scaling.Skipped},
	} {
		count, ok := values.Get(whole.name).(int64)
		if !ok || count < 0 || count > int64(whole.most) {
			found := formats.Shown(values.Get(whole.name))
			return nil, fmt.Errorf("%s of loss_scaling is %s; it must be a whole number, 0 to %d", whole.name, found, whole.most)
		}
		*whole.into = int(count)
	}
	return scaling, nil
}

// stateBounds are the least and the largest value of the numbers of a state; tests/bounds.json has the reasons.
var stateBounds = options.Bounds{
	"seconds": {0, 1e12}, "held_out_loss": {-1, 1e38}, "scale": {leastLossScale, largestLossScale},
}

// number gives a number that is within its bounds.
func number(values *formats.Object, name string) (float64, error) {
	return stateBounds.Number(name, name, values.Get(name))
}

// ListCheckpoints gives the checkpoint folders of a run, oldest first; none when `root` does not exist.
func ListCheckpoints(root string) []string { return formats.ListCheckpoints(root) }

// bestCheckpoint is the checkpoint with the lowest held-out loss, the earliest of equals; "" when none has one.
func bestCheckpoint(root string) (string, error) {
	best, lowest := "", 0.0
	for _, folder := range ListCheckpoints(root) {
		state, err := ReadState(filepath.Join(folder, "training.json"))
		if err != nil {
			return "", err
		}
		if loss := state.HeldOutLoss; loss != nil && !math.IsNaN(*loss) && !math.IsInf(*loss, 0) &&
			(best == "" || *loss < lowest) {
			best, lowest = folder, *loss
		}
	}
	return best, nil
}

// pruneCheckpoints removes all but the `keep` newest checkpoints and the best.
func pruneCheckpoints(root string, keep int) error {
	best, err := bestCheckpoint(root)
	if err != nil {
		return err
	}
	folders := ListCheckpoints(root)
	for _, folder := range folders[:max(0, len(folders)-keep)] {
		if folder != best {
			if err := formats.RemoveFolder(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// ResolveCheckpoint gives a checkpoint folder from the path of one, or of a run, of which the last is taken, or, with
// `best`, the one with the lowest held-out loss.
func ResolveCheckpoint(path string, best bool) (string, error) {
	root := filepath.Join(path, "checkpoints")
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return path, nil
	}
	if best {
		folder, err := bestCheckpoint(root)
		if err == nil && folder == "" {
			err = formats.Missing(root, "holds no evaluated checkpoint yet")
		}
		return folder, err
	}
	return formats.LastCheckpoint(path)
}

package train

import (
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
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
	HeldOutLoss  *float64 // nil when this moment was not evaluated
}

// document is the content of training.json.
func (s State) document() string {
	return formats.JSONDocument(formats.NewObject(
		"format", stateFormat, "version", stateVersion, "step", s.Step, "data_position", s.DataPosition,
		"data_windows", s.DataWindows, "seconds", s.Seconds, "train", s.Train.Object(), "held_out_loss", s.loss(),
	))
}

// Object gives step, position, time and held-out loss by name, without the options.
func (s State) Object() *formats.Object {
	return formats.NewObject("step", int64(s.Step), "data_position", int64(s.DataPosition),
		"data_windows", int64(s.DataWindows), "seconds", s.Seconds, "held_out_loss", s.loss())
}

func (s State) loss() any {
	if s.HeldOutLoss == nil {
		return nil
	}
	return *s.HeldOutLoss
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
		found := formats.Repr(version)
		return state, fmt.Errorf("is a training state of version %s; this program reads version %d", found, stateVersion)
	}
	wanted := []string{"data_position", "data_windows", "held_out_loss", "seconds", "step", "train"}
	if found := values.SortedNames(); !slices.Equal(found, wanted) {
		names := strings.Join(found, ", ")
		return state, fmt.Errorf("has the entries %s; some are missing or too many", names)
	}
	for _, whole := range []struct {
		name  string
		least int64
		into  *int
	}{{"step", 0, &state.Step}, {"data_position", 0, &state.DataPosition}, {"data_windows", 1, &state.DataWindows}} {
		value, ok := values.Get(whole.name).(int64)
		if !ok || value < whole.least || value >= 1<<62 {
			found := formats.Repr(values.Get(whole.name))
			return state, fmt.Errorf("%s is %s; it must be a whole number, at least %d", whole.name, found, whole.least)
		}
		*whole.into = int(value)
	}
	var err error
	if state.Seconds, err = number(values, "seconds"); err != nil {
		return state, err
	}
	if values.Get("held_out_loss") != nil {
		loss, err := number(values, "held_out_loss")
		if err != nil {
			return state, err
		}
		state.HeldOutLoss = &loss
	}
	options, ok := values.Get("train").(*formats.Object)
	if !ok {
		return state, fmt.Errorf("train is not an object")
	}
	if err := state.Train.Assign(options); err != nil {
		return state, err
	}
	return state, state.Train.Validate()
}

func number(values *formats.Object, name string) (float64, error) {
	switch value := values.Get(name).(type) {
	case float64:
		return value, nil
	case int64:
		return float64(value), nil
	case *big.Int:
		decimal, _ := new(big.Float).SetInt(value).Float64()
		return decimal, nil
	default:
		return 0, fmt.Errorf("%s is %s; it must be a number", name, formats.Repr(value))
	}
}

var stepFolder = regexp.MustCompile(`^step-(\d{8,})$`)

// ListCheckpoints gives the checkpoint folders of a run, oldest first; none when `root` does not exist.
func ListCheckpoints(root string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	type numbered struct {
		step   int
		folder string
	}
	var found []numbered
	for _, entry := range entries {
		match := stepFolder.FindStringSubmatch(entry.Name())
		folder := filepath.Join(root, entry.Name())
		if info, err := os.Stat(folder); match == nil || err != nil || !info.IsDir() {
			continue
		}
		if step, err := strconv.Atoi(match[1]); err == nil {
			found = append(found, numbered{step, folder})
		}
	}
	slices.SortStableFunc(found, func(a, b numbered) int { return a.step - b.step })
	folders := make([]string, len(found))
	for at, entry := range found {
		folders[at] = entry.folder
	}
	return folders
}

// bestCheckpoint is the checkpoint with the lowest held-out loss, the earliest of equals; "" when none has one.
func bestCheckpoint(root string) (string, error) {
	best, lowest := "", 0.0
	for _, folder := range ListCheckpoints(root) {
		state, err := ReadState(filepath.Join(folder, "training.json"))
		if err != nil {
			return "", err
		}
		if loss := state.HeldOutLoss; loss != nil && (best == "" || *loss < lowest) {
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
			err = &formats.Error{Path: root, Problem: "holds no evaluated checkpoint yet"}
		}
		return folder, err
	}
	folders := ListCheckpoints(root)
	if len(folders) == 0 {
		return "", &formats.Error{Path: root, Problem: "holds no checkpoint yet"}
	}
	return folders[len(folders)-1], nil
}

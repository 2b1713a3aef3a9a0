package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tensor"
)

// Runs become longer than they were begun by an entry of `extensions` in their run.json: the schedule that holds after
// a step.
//
//	"extensions": [{"from_step": 1000, "steps": 3000, "learning_rate": 0.002, "min_rate_share": 0.1,
//	                "warmup_steps": 50}]
//
// Checkpoints after that step have it in their options; the one of the step does not, so a run that is resumed there is
// given it again. What a kill leaves is therefore an extended run.

// Schedule lists the options that a run may be extended with other values of, beside those that are Changeable: together
// they are the learning rate of each step.
func Schedule() []string {
	return []string{"steps", "learning_rate", "min_rate_share", "warmup_steps"}
}

// extended gives the options of a run whose last checkpoint is of `step` and has `options`: with an extension from there,
// if any.
func extended(folder string, step int, options Config) (Config, error) {
	path := filepath.Join(folder, recordFile)
	if !formats.Present(path) {
		return options, nil
	}
	record, err := formats.ReadJSON(path)
	if err != nil {
		return options, err
	}
	found, err := applied(record, step, options)
	return found, formats.Wrap(path, err)
}

func applied(record *formats.Object, step int, options Config) (Config, error) {
	entries, err := extensions(record)
	found := options
	for _, entry := range entries {
		from := entry.Delete("from_step")
		changed := options
		if err := changed.Assign(entry); err != nil {
			return options, fmt.Errorf("extensions: %w", err)
		}
		if err := changed.Validate(); err != nil {
			return options, fmt.Errorf("extensions: %w", err)
		}
		if from == any(int64(step)) {
			found = changed
		}
	}
	return found, err
}

// extensions are the entries of a record.
func extensions(record *formats.Object) ([]*formats.Object, error) {
	value := record.Get("extensions")
	list, ok := value.([]any)
	if !ok && record.Has("extensions") {
		return nil, fmt.Errorf("extensions is %s; it must be a list", formats.Shown(value))
	}
	wanted := append([]string{"from_step"}, Schedule()...)
	slices.Sort(wanted)
	entries := make([]*formats.Object, len(list))
	for at, value := range list {
		entry, ok := value.(*formats.Object)
		if !ok || !slices.Equal(entry.SortedNames(), wanted) {
			return nil, fmt.Errorf("extensions has %s; an entry must have from_step, %s",
				formats.Shown(value), strings.Join(Schedule(), ", "))
		}
		if step, ok := entry.Get("from_step").(int64); !ok || step < 0 || step > formats.MaxCount {
			return nil, fmt.Errorf("extensions: from_step is %s; it must be a whole number, from 0 to %d",
				formats.Shown(entry.Get("from_step")), formats.MaxCount)
		}
		entries[at] = entry
	}
	return entries, nil
}

// checkExtension refuses options that are not longer than those before, or than their own warm-up.
func checkExtension(before, after Config) error {
	if after.Steps <= before.Steps {
		return fmt.Errorf("steps is %d; this run has %d already: extend it to more", after.Steps, before.Steps)
	}
	return after.CheckSchedule()
}

// recordExtension adds to a run's record that `options` hold after `step`.
func recordExtension(folder string, step int, options Config) error {
	path := filepath.Join(folder, recordFile)
	if !formats.Present(path) {
		return formats.Missing(path, "is not there, where an extension is recorded")
	}
	record, err := formats.ReadJSON(path)
	if err != nil {
		return err
	}
	if _, err := extensions(record); err != nil {
		return formats.Wrap(path, err)
	}
	values, entry := options.Object(), formats.NewObject("from_step", int64(step))
	for _, name := range Schedule() {
		entry.Set(name, values.Get(name))
	}
	list, _ := record.Get("extensions").([]any)
	record.Set("extensions", append(list, entry))
	return formats.WriteJSON(path, record)
}

// extensionText says what an extension does to the schedule of a run.
func extensionText(ctx *cuda.Context, step, updates int, before, after Config) (string, error) {
	var rates [2]string
	for at, config := range []Config{before, after} {
		rate, err := rateOf(ctx, config, updates)
		if err != nil {
			return "", err
		}
		rates[at] = fmt.Sprintf("%.3g", rate)
	}
	return fmt.Sprintf("extended at step %d from %d to %d steps: the cosine is stretched to the new end, and the rate at "+
		"step %d changes from %s to %s", step, before.Steps, after.Steps, step, rates[0], rates[1]), nil
}

// rateOf is the rate of an update.
func rateOf(ctx *cuda.Context, config Config, update int) (float32, error) {
	step, err := tensor.New(ctx, cuda.I32, 1)
	if err != nil {
		return 0, err
	}
	rate, err := tensor.New(ctx, cuda.F32, 1)
	if err != nil {
		return 0, errors.Join(err, step.Close())
	}
	err = tensor.Write(step, []int32{int32(max(update, 1) - 1)})
	if err == nil {
		err = config.advance(nil, step, rate)
	}
	var found []float32
	if err == nil {
		found, err = tensor.Read[float32](rate)
	}
	if err = errors.Join(err, rate.Close(), step.Close()); err != nil {
		return 0, err
	}
	return found[0], nil
}

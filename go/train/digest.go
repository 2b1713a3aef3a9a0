package train

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// stateNames are the tensors that a step depends on, in the order of their digests: parameters and moments as checkpoints
// name them, the number of updates, and the loss scaling of f16.
func stateNames(layout *model.Layout, config Config) []string {
	var names []string
	for _, spec := range layout.Specs {
		names = append(names, spec.Name)
	}
	for _, spec := range momentSpecs(layout, config.Moments) {
		names = append(names, spec.name)
	}
	names = append(names, "updates")
	if config.Precision == model.F16 {
		names = append(names, "loss_scale", "good_steps", "skipped_steps")
	}
	return names
}

// digests gives those of the state, both sums of tensor.Digest of each tensor in 32 digits, the same with any number of
// ranks; all of them call it.
func (t *Trainer) digests() (string, error) {
	var text string
	err := t.Model.Exclusive(func() (err error) {
		text, err = t.addDigests(stateNames(t.Model.Layout, t.Config))
		return err
	})
	return text, TellFailure(t.replicas.comm, err)
}

func (t *Trainer) addDigests(names []string) (string, error) {
	rank, ranks := t.replicas.place()
	sums, err := tensor.Zeros(t.Model.Context(), cuda.I64, ranks*len(names), 2)
	if err != nil {
		return "", err
	}
	places := map[string]int{}
	for at, name := range names {
		places[name] = rank*len(names) + at
	}
	err = t.eachPart(rank == 0, func(name string, first int, own *tensor.Tensor) error {
		flat, err := own.View(own.Size())
		if err != nil {
			return err
		}
		bytes, err := flat.AsBytes()
		if err != nil {
			return err
		}
		place, err := sums.Narrow(0, places[name], 1)
		if err == nil {
			place, err = place.View(2)
		}
		if err != nil {
			return err
		}
		return tensor.Digest(bytes, place, int64(first))
	})
	if comm := t.replicas.comm; err == nil && comm != nil {
		err = comm.AllGather(sums.Memory(), sums.Bytes(), sums.Bytes()/int64(ranks))
	}
	var values []int64
	if err == nil {
		values, err = tensor.Read[int64](sums)
	}
	if err = errors.Join(err, sums.Close()); err != nil {
		return "", err
	}
	var text strings.Builder
	for at := range 2 * len(names) {
		total := uint64(0)
		for of := range ranks {
			total += uint64(values[of*2*len(names)+at])
		}
		fmt.Fprintf(&text, "%016x", total)
	}
	return text.String(), nil
}

// eachPart calls `do` with what this rank has of the state, and with the numbers that all have where `small` says so.
func (t *Trainer) eachPart(small bool, do func(name string, first int, own *tensor.Tensor) error) error {
	for _, span := range t.Moments.own {
		own, err := span.Of(t.Model.Parameters.Data)
		if err == nil {
			err = eachParameter(t.Model.Layout, span, own, do)
		}
		if err != nil {
			return err
		}
	}
	if err := t.Moments.each(do); err != nil || !small {
		return err
	}
	err := do("updates", 0, t.step)
	if scaling := t.scaling; scaling != nil {
		err = errors.Join(err, do("loss_scale", 0, scaling.next), do("good_steps", 0, scaling.goodSteps),
			do("skipped_steps", 0, scaling.skipped))
	}
	return err
}

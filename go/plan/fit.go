package plan

import (
	"errors"
	"iter"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// Change is an option with another value: an int64, a bool or a text.
type Change struct {
	Option string
	Value  any
}

// Way is options to change, and the memory that the run then needs.
type Way struct {
	Changes []Change
	Held    int
}

// WaysToFit gives up to three ways to need at most `free` bytes, the cheapest in time first; and, when none does, what
// needs least (nil when there is nothing to change).
//
// One option of each kind is tried alone, with as little of it as will do, then they are tried together; none of these
// changes what is trained, up to rounding and what micro-batches balance. Shorter sequences, which do, come last.
func WaysToFit(
	config model.Config, options train.Config, machine cuda.Machine, seat Seat, free int, heldOut bool,
) (ways []Way, least *Way, err error) {
	for kind := range changesToTry(config, options) {
		for _, changes := range kind {
			if slices.ContainsFunc(ways, func(way Way) bool { return within(way.Changes, changes) }) {
				continue // less is enough
			}
			changed, values := options, formats.NewObject()
			for _, change := range changes {
				values.Set(change.Option, change.Value)
			}
			if err := changed.Assign(values); err != nil {
				return nil, nil, err
			}
			planned, err := training(config, changed, machine, seat, heldOut, true)
			if errors.Is(err, ErrTooLarge) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			way := Way{changes, planned.Held}
			if least == nil || way.Held < least.Held {
				least = &way
			}
			if way.Held <= free {
				ways = append(ways, way)
				break
			}
		}
		if len(ways) == 3 {
			break
		}
	}
	return ways, least, nil
}

func within(few, many []Change) bool {
	return !slices.ContainsFunc(few, func(change Change) bool { return !slices.Contains(many, change) })
}

// changesToTry yields options of one kind after the other, and of a kind what costs less first: each alone,
// combinations of them, then those with smaller moments, then shorter sequences.
func changesToTry(config model.Config, options train.Config) iter.Seq[[][]Change] {
	every, experts := int64(options.ActivationCheckpointing), options.RecomputeExperts
	micro := smallerMicroBatches(options)
	none := []Change{{"recompute_experts", false}}
	if options.KeepExperts > 0 { // where every block is computed again, none has experts of its own to keep
		none = append(none, Change{"keep_experts", int64(0)})
	}
	again := slices.Concat([]Change{{"activation_checkpointing", int64(1)}}, none)
	bf16 := []Change{{"precision", string(model.BF16)}}
	wide := options.Precision == model.F32 && !config.Ternary
	return func(yield func([][]Change) bool) {
		tries := [][][]Change{micro}
		if every != 1 && !experts {
			tries = append(tries, [][]Change{{{"recompute_experts", true}}})
		}
		if every != 1 {
			var counts [][]Change
			for _, count := range []int64{3, 2, 1} {
				if count <= int64(config.NumLayers) && (every == 0 || count < every) {
					rest := none
					if count > 1 {
						rest = []Change{{"recompute_experts", experts}}
					}
					counts = append(counts, slices.Concat([]Change{{"activation_checkpointing", count}}, rest))
				}
			}
			tries = append(tries, counts)
		}
		if wide {
			tries = append(tries, [][]Change{bf16})
		}
		smaller := smallerMoments(options)
		tries = append(tries, smaller, each(micro, again))
		most := slices.Concat([]Change{{"micro_batch_size", int64(1)}}, again)
		if wide {
			tries = append(tries, [][]Change{slices.Concat(again, bf16)}, each(micro, bf16), each(micro, again, bf16))
			most = slices.Concat(most, bf16)
		}
		for _, moments := range smaller {
			all := slices.Concat(again, moments)
			tries = append(tries, [][]Change{all}, each(micro, all))
			if wide { // bf16 keeps a second copy of the weights, so it is tried both ways
				all = slices.Concat(again, bf16, moments)
				tries = append(tries, [][]Change{all}, each(micro, all))
			}
		}
		if len(smaller) > 0 {
			most = slices.Concat(most, smaller[len(smaller)-1])
		}
		var alone, together [][]Change
		for length := int64(options.SequenceLength) / 2; length > 0; length /= 2 {
			shorter := Change{"sequence_length", length}
			alone = append(alone, []Change{shorter})
			together = append(together, slices.Concat(most, []Change{shorter}))
		}
		for _, kind := range append(tries, alone, together) {
			if !yield(kind) {
				return
			}
		}
	}
}

// smallerMoments are moments of fewer bits.
func smallerMoments(options train.Config) [][]Change {
	var kinds [][]Change
	all := train.MomentsKinds()
	for _, kind := range all[slices.Index(all, options.Moments)+1:] {
		kinds = append(kinds, []Change{{"moments", string(kind)}})
	}
	return kinds
}

// each adds the same changes to each of some.
func each(some [][]Change, more ...[]Change) [][]Change {
	added := make([][]Change, len(some))
	for at, changes := range some {
		added[at] = slices.Concat(changes, slices.Concat(more...))
	}
	return added
}

// smallerMicroBatches are half the micro-batch, half of that, and so on.
func smallerMicroBatches(options train.Config) [][]Change {
	size := options.BatchSize
	if options.MicroBatchSize > 0 {
		size = min(options.MicroBatchSize, size)
	}
	var sizes [][]Change
	for size > 1 {
		size = (size + 1) / 2
		sizes = append(sizes, []Change{{"micro_batch_size", int64(size)}})
	}
	return sizes
}

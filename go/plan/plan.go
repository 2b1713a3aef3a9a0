// Package plan says what a run needs before there is one: its own model and trainer take their steps on a context that
// measures (cuda.NewMeasuring). It gives addresses and runs nothing, so what is planned is what is then called: no
// allocation and no kernel is described here a second time.
//
// Bytes are those that [cuda.Context.BytesPeak] counts: memory of tensors as it was asked for, and the chunks of scratch.
// A captured step keeps each piece of memory that it ever took, and needs more than the same calls one by one.
package plan

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// ErrTooLarge is the error of sizes that no machine has memory for.
var ErrTooLarge = errors.New("the sizes make a run of more memory than any machine has")

const (
	// microBatches are run for the memory of a step; those between the second and the last find all in place.
	microBatches = 3
	// mostTokens go through the layers at once, each as often as it has experts; no machine has memory for more.
	mostTokens = 1 << 27
)

// Memory is the bytes by kind, which add up to Peak. Held is what a device gives for the same memory: a GPU gives whole
// pages. Where a step is captured, memory that it keeps for itself counts as what is left: as transient.
type Memory struct {
	Bytes      [kinds]int
	Peak, Held int
}

// Training is what a run needs on one machine, `heldOut` with evaluation. An error for what cannot be trained.
func Training(config model.Config, options train.Config, machine cuda.Machine, heldOut bool) (Memory, error) {
	return TrainingAt(Alone, config, options, machine, heldOut)
}

// TrainingAt is what a rank of a run needs.
func TrainingAt(
	seat Seat, config model.Config, options train.Config, machine cuda.Machine, heldOut bool,
) (Memory, error) {
	return training(config, options, machine, seat, heldOut, true)
}

func training(
	config model.Config, options train.Config, machine cuda.Machine, seat Seat, heldOut, capture bool,
) (Memory, error) {
	steps, err := newSteps(config, options, seat)
	if err != nil {
		return Memory{}, err
	}
	var found Memory
	err = measured(machine, func(ctx *cuda.Context) error {
		trainer, err := newTrainer(ctx, config, options, steps.rows, seat)
		if err != nil {
			return err
		}
		trainer.NoCapture = !capture
		made := trainer.Model
		found.Bytes[Weights] = made.Weights.Bytes()
		if made.Weights != made.Parameters {
			found.Bytes[Master] = made.Parameters.Bytes()
		}
		later, err := seat.laterSums(config, options, steps)
		if err != nil {
			return err
		}
		found.Bytes[Gradients] = trainer.GradientBytes() + later
		found.take(Moments, trainer.Moments.Tensors()...)
		if err := trainer.Rehearse(steps.rows, steps.length); err != nil {
			return err
		}
		// Of the sequences that are left out: ids, targets, and the losses and factors of their micro-batches.
		factors := 12
		if options.Precision == model.F16 {
			factors = 16
		}
		own, err := seat.replicas(steps.replicas)
		if err != nil {
			return err
		}
		rows := steps.left / steps.replicas * len(own) * steps.micro
		more := 8*rows*steps.length + steps.left*(4*made.LossPieces(steps.micro*steps.length)+factors) + later
		used, err := ctx.BytesUsed()
		if err != nil {
			return err
		}
		found.Bytes[Fixed] = int(used) - found.sum() + more
		if err := trainer.Rehearse(steps.rows, steps.length); err != nil {
			return err
		}
		peak, scratch, err := peakOf(ctx)
		if err != nil {
			return err
		}
		whole := peak
		if heldOut {
			if err := steps.evaluate(trainer); err != nil {
				return err
			}
			if whole, _, err = peakOf(ctx); err != nil {
				return err
			}
		}
		if found.Held, err = heldOf(ctx); err != nil {
			return err
		}
		kept, err := steps.kept(trainer)
		if err != nil {
			return err
		}
		left := peak + more - found.sum()
		found.Bytes[Evaluation] = whole - peak
		found.Bytes[Scratch] = min(scratch, left)
		found.Bytes[Kept] = min(kept, left-found.Bytes[Scratch])
		found.Bytes[Transient] = left - found.Bytes[Scratch] - found.Bytes[Kept]
		found.Peak, found.Held = found.sum(), found.Held+more
		runtime.KeepAlive(trainer) // or its memory is given back in the middle of what is measured
		return nil
	})
	return found, err
}

func (s steps) evaluate(trainer *train.Trainer) error {
	made := trainer.Model
	return trainer.Together(s.micro*s.length, 0, func() error {
		return layer.Run(made.Context(), func(p *layer.Pass) {
			made.EvaluateOn(p, p.Empty(cuda.I32, s.micro, s.length), p.Empty(cuda.I32, s.micro, s.length), nil)
		})
	})
}

// kept is the bytes that a micro-batch keeps for its backward.
func (s steps) kept(trainer *train.Trainer) (bytes int, err error) {
	made := trainer.Model
	ctx := made.Context()
	tokens := s.micro * s.length
	err = trainer.Together(tokens, made.Config.Capacity(tokens), func() error {
		return layer.Run(ctx, func(p *layer.Pass) {
			ids, aux := p.Empty(cuda.I32, tokens), p.Empty(cuda.F32, 1)
			before, err := ctx.BytesUsed()
			p.Check(err)
			_, uses, _ := made.ForwardKeeping(p, ids, s.micro, aux)
			for _, use := range uses {
				p.Check(use.Close())
			}
			after, err := ctx.BytesUsed()
			p.Check(err)
			bytes = int(after - before)
		})
	})
	return bytes, err
}

// Inference is what generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.
// An error when the model does not reach that far.
func Inference(
	config model.Config, precision model.Precision, machine cuda.Machine, batch, capacity, prompt int,
) (Memory, error) {
	if capacity < 1 {
		return Memory{}, fmt.Errorf("context is %d; it must be a whole number, at least 1", capacity)
	}
	if prompt < 1 || prompt > capacity {
		problem := "a prompt has %d tokens; it must have 1 to %d, the tokens of a sequence"
		return Memory{}, fmt.Errorf(problem, prompt, capacity)
	}
	if capacity > mostTokens || batch > 16*mostTokens/capacity {
		return Memory{}, ErrTooLarge
	}
	var found Memory
	err := measured(machine, func(ctx *cuda.Context) error {
		next, err := newToken(ctx, config, precision, batch, capacity)
		if err != nil {
			return err
		}
		found.Bytes[Weights] = next.model.Weights.Bytes()
		found.take(Cache, next.cache.KeysAndValues()...)
		// Prompts come one after the other, and one of them is as long as it may be; then a token of each sequence call by
		// call, and one captured, so far as there is room for them.
		logits, err := next.logits.Narrow(0, 0, 1)
		if err != nil {
			return err
		}
		prompt := max(1, min(prompt, capacity-2))
		if err = next.model.Prefill(make([]int32, prompt), next.cache, 0, logits); err != nil {
			return err
		}
		if prompt < capacity {
			err = next.decode()
		}
		if err == nil && prompt+1 < capacity {
			_, err = ctx.Capture(next.decode)
		}
		if err != nil {
			return err
		}
		if found.Held, err = heldOf(ctx); err == nil {
			found.Peak, found.Bytes[Scratch], err = peakOf(ctx)
		}
		found.Bytes[Transient] = found.Peak - found.sum()
		return err
	})
	return found, err
}

// take counts tensors as memory of a kind.
func (m *Memory) take(kind Kind, tensors ...*tensor.Tensor) {
	for _, each := range tensors {
		m.Bytes[kind] += int(each.Bytes())
	}
}

func (m *Memory) sum() int {
	sum := 0
	for _, bytes := range m.Bytes {
		sum += bytes
	}
	return sum
}

func peakOf(ctx *cuda.Context) (peak, scratch int, err error) {
	bytes, err := ctx.BytesPeak()
	arena, failure := ctx.BytesArena()
	return int(bytes), int(arena), errors.Join(err, failure)
}

func heldOf(ctx *cuda.Context) (int, error) {
	held, err := ctx.BytesHeld()
	return int(held), err
}

// measured runs a program on a context that measures.
func measured(machine cuda.Machine, program func(*cuda.Context) error) error {
	ctx, err := cuda.NewMeasuring(machine)
	if err != nil {
		return err
	}
	err = errors.Join(program(ctx), ctx.Close()) // with all that was made on it
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return ErrTooLarge
	}
	return err
}

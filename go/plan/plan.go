// Package plan says what a run needs before there is one: the real model takes its steps on a context that measures
// (cuda.NewMeasuring), which counts as the device would and runs nothing.
package plan

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// ErrTooLarge is the error of sizes that no machine has memory for.
var ErrTooLarge = errors.New("the sizes make a run of more memory than any machine has")

// What is planned at most: bytes, half of what a process has addresses for, and tokens that run at once, for whose
// positions the host has memory.
const (
	mostBytes  = 1 << 46
	mostTokens = 1 << 25
)

// Memory is the bytes by kind at the moment when the most is in use, which add up to Peak. Held is what a device gives
// for the same memory: a GPU gives whole pages.
type Memory struct {
	Bytes      [kinds]int
	Peak, Held int
}

// Training is what a run needs on one machine, `heldOut` with evaluation. An error for what cannot be trained.
func Training(config model.Config, options train.Config, machine cuda.Machine, heldOut bool) (Memory, error) {
	return training(config, options, machine, heldOut, true)
}

func training(
	config model.Config, options train.Config, machine cuda.Machine, heldOut, capture bool,
) (found Memory, err error) {
	if err := errors.Join(config.Validate(), options.Validate()); err != nil {
		return found, err
	}
	whole, length := options.BatchSize, options.SequenceLength
	micro := whole
	if options.MicroBatchSize > 0 {
		micro = min(options.MicroBatchSize, whole)
	}
	// From the third micro-batch on, each takes what the one before gave back: of many, three and the last will do. The
	// others have their ids and targets, partial sums and factors.
	options.BatchSize = min(whole, 3*micro+whole%micro)
	left := whole - options.BatchSize
	if micro > mostTokens/length || left > mostBytes/(8*length) {
		return found, ErrTooLarge
	}
	pieces := (micro*length + config.LogitsRows() - 1) / config.LogitsRows()
	more := 8*left*length + (left/micro)*(4*pieces+12)
	return measured(machine, more, func(ctx *cuda.Context, take func(Kind, ...*tensor.Tensor)) error {
		made, err := model.New(ctx, config, options.Precision, options.Seed)
		if err != nil {
			return err
		}
		trainer, err := train.NewTrainer(made, options)
		if err != nil {
			return err
		}
		trainer.NoCapture = !capture
		take(Weights, made.Weights.Data)
		if made.Weights != made.Parameters {
			take(Master, made.Parameters.Data)
		}
		take(Gradients, made.Gradients.Data)
		take(Moments, trainer.Moments.Tensors()...)
		for range 2 { // call by call, then captured
			if err := trainer.Rehearse(options.BatchSize, length); err != nil {
				return err
			}
		}
		if !heldOut {
			return nil
		}
		return layer.Run(ctx, func(p *layer.Pass) {
			made.EvaluateOn(p, p.Empty(cuda.I32, micro, length), p.Empty(cuda.I32, micro, length))
		})
	})
}

// Inference is what generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.
// An error when the model does not reach that far.
func Inference(
	config model.Config, precision model.Precision, machine cuda.Machine, batch, capacity, prompt int,
) (Memory, error) {
	if err := errors.Join(config.Validate(), precision.Validate()); err != nil {
		return Memory{}, err
	}
	if capacity > config.ExtendedContext {
		problem := "%d tokens are more than this model takes (%d)"
		return Memory{}, fmt.Errorf(problem, capacity, config.ExtendedContext)
	}
	if capacity < 1 {
		return Memory{}, fmt.Errorf("context is %d; it must be a whole number, at least 1", capacity)
	}
	if prompt < 1 || prompt > capacity {
		problem := "a prompt has %d tokens; it must have 1 to %d, the tokens of a sequence"
		return Memory{}, fmt.Errorf(problem, prompt, capacity)
	}
	if capacity > mostTokens || batch > mostTokens {
		return Memory{}, ErrTooLarge
	}
	return measured(machine, 0, func(ctx *cuda.Context, take func(Kind, ...*tensor.Tensor)) error {
		made, err := model.NewForInference(ctx, config, precision, 0)
		if err != nil {
			return err
		}
		take(Weights, made.Weights.Data)
		cache, err := made.Cache(batch, capacity)
		if err != nil {
			return err
		}
		take(Cache, cache.KeysAndValues()...)
		var ids, logits, row *tensor.Tensor
		err = layer.Run(ctx, func(p *layer.Pass) {
			ids, logits = p.Keep(p.Empty(cuda.I32, batch)), p.Keep(p.Empty(cuda.F32, batch, config.VocabSize))
			row = p.Narrow(logits, 0, 0, 1)
		})
		if err != nil {
			return err
		}
		// A prompt, as the others of the batch; a token of each sequence call by call, and one captured.
		if err := made.Prefill(make([]int32, prompt), cache, 0, row); err != nil || prompt == capacity {
			return err
		}
		decode := func() error {
			return layer.Run(ctx, func(p *layer.Pass) { made.Decode(p, ids, cache, logits) })
		}
		if err := decode(); err != nil || prompt+1 == capacity {
			return err
		}
		_, err = ctx.Capture(decode)
		return err
	})
}

// measured runs a program on a context that measures; `take` is told what its tensors are for. `more` bytes are there
// besides all the while.
func measured(
	machine cuda.Machine, more int, program func(ctx *cuda.Context, take func(Kind, ...*tensor.Tensor)) error,
) (found Memory, err error) {
	ctx, err := cuda.NewMeasuring(machine)
	if err != nil {
		return found, err
	}
	defer func() { // with all its memory
		if err = errors.Join(err, ctx.Close()); errors.Is(err, cuda.ErrOutOfMemory) {
			err = ErrTooLarge
		}
	}()
	err = program(ctx, func(kind Kind, tensors ...*tensor.Tensor) {
		for _, each := range tensors {
			found.Bytes[kind] += int(each.Bytes())
		}
	})
	var counts [4]int64
	for at, read := range []func() (int64, error){ctx.BytesPeak, ctx.BytesUsed, ctx.BytesPooled, ctx.BytesArena} {
		var failure error
		counts[at], failure = read()
		err = errors.Join(err, failure)
	}
	found.Peak, found.Bytes[Scratch] = int(counts[0])+more, int(counts[3])
	found.Held = found.Peak
	if machine.Device == cuda.CUDA {
		found.Held = max(found.Peak, int(counts[1]+counts[2]+counts[3])+more)
	}
	found.Bytes[Activations] = found.Peak
	for kind, bytes := range found.Bytes {
		if Kind(kind) != Activations {
			found.Bytes[Activations] -= bytes
		}
	}
	return found, err
}

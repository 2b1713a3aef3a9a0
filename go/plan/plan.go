// Package plan says what memory a run needs before there is one: every allocation of a step and its end, walked through
// without any memory.
//
// The plan follows the trainer, the model and the layers call by call, so what is kept, what is transient and when the
// most is in use comes out of the shapes; nothing is fitted to measurements. Bytes are those that
// [cuda.Context.BytesPeak] counts: memory of tensors as it was asked for, and the chunks of scratch.
//
// A captured step keeps each piece of memory that it ever took, and takes it again only for what has the same size, so
// it needs more than the same calls one by one.
//
// Python's `nncuda.train.plan` and Rust's `nn_core::plan` come to the same bytes; what changes here changes there.
package plan

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// MachineOf is what of a context decides how much scratch its kernels take.
func MachineOf(ctx *cuda.Context) (Machine, error) {
	if device, _ := ctx.Device(); device != cuda.CPU {
		return Machine{Engine: "cuda"}, nil
	}
	threads, err := ctx.Threads()
	isa, failed := ctx.ISA()
	return Machine{Engine: "cpu", Threads: threads, ISA: isa}, errors.Join(err, failed)
}

// Training is what a run needs on one device, `heldOut` with evaluation. An error for what cannot be trained.
func Training(config model.Config, options train.Config, machine Machine, heldOut bool) (Memory, error) {
	return training(config, options, machine, heldOut, true)
}

func training(config model.Config, options train.Config, machine Machine, heldOut, capture bool) (Memory, error) {
	length, batch := options.SequenceLength, options.BatchSize
	if length > config.Context {
		return Memory{}, fmt.Errorf("sequence_length is %d; this model's context is %d", length, config.Context)
	}
	if every := options.ActivationCheckpointing; every > config.NumLayers {
		problem := "activation_checkpointing is %d; this model has %d blocks"
		return Memory{}, fmt.Errorf(problem, every, config.NumLayers)
	}
	micro := batch
	if options.MicroBatchSize > 0 {
		micro = min(options.MicroBatchSize, batch)
	}
	if err := checkSize(config, float64(micro)*float64(length), float64(batch)*float64(length)); err != nil {
		return Memory{}, err
	}
	memory, count := newLedger(machine), config.NumParameters()
	if options.Precision != model.F32 {
		memory.take(2*count, Weights)
		memory.take(4*count, Master)
	} else {
		memory.take(4*count, Weights)
	}
	memory.take(4*count, Gradients)
	for _, size := range options.Moments.Bytes(count) {
		memory.take(size, Moments)
	}
	var walks []*walk
	for _, size := range pieces(batch, micro) {
		walks = append(walks, newWalk(memory, config, options.Precision, size, size*length, 0))
	}
	// Ids, targets; losses, factors, counters. Cosines and sines, head_dim / 2 each. Positions.
	memory.take(2*4*batch*length+16*ceil(batch, micro)+64, Fixed)
	memory.take(4*length*config.HeadDim, Fixed)
	memory.take(4*micro*length, Fixed)
	watched := make([][]*block, config.NumLayers)
	for _, memory.capturing = range []bool{false, capture} {
		for at, walk := range walks {
			walk.forwardBackward(options, watched, at == 0)
		}
		memory.call(squares(count))
	}
	if capture {
		memory.endCapture()
	}
	if heldOut {
		walks[0].evaluate(watched)
	}
	return memory.found, nil
}

// Inference is what generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.
// An error when the model does not reach that far.
func Inference(
	config model.Config, precision model.Precision, machine Machine, batch, capacity, prompt int,
) (Memory, error) {
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
	words := float64(batch) * float64(capacity+config.VocabSize)
	if err := checkSize(config, float64(batch)*float64(capacity), words); err != nil {
		return Memory{}, err
	}
	memory, width := newLedger(machine), precisionWidth(precision)
	memory.take(width*config.NumParameters(), Weights)
	for range 2 * config.NumLayers {
		memory.take(width*batch*capacity*config.NumKVHeads*config.HeadDim, Cache)
	}
	memory.take(4*capacity*config.HeadDim, Fixed) // cosines and sines
	memory.take(4*capacity, Fixed)                // positions
	memory.take(4*batch*config.VocabSize, Logits)
	memory.take(64*batch, Fixed) // lengths, ids, what sampling counts: less than this
	watched := make([][]*block, config.NumLayers)
	// A prompt after the other, then all sequences together: a token call by call, and one captured.
	for _, part := range []struct {
		rows, tokens, seen int
		captured           bool
	}{{1, min(prompt, model.PrefillPart), 0, false}, {batch, batch, capacity, false}, {batch, batch, capacity, true}} {
		memory.capturing = part.captured
		walk := newWalk(memory, config, precision, part.rows, part.tokens, part.seen)
		if part.seen == 0 {
			walk.shape.length = prompt // a part of a prompt looks at those before it
		}
		x := walk.take(walk.stream, Transient)
		for at := range watched {
			out := walk.forward(&watched[at], false)
			memory.give(x)
			x = out
		}
		memory.give(walk.take(width*batch*config.HiddenSize, Transient), x)
		walk.linear(config.HiddenSize, config.VocabSize, part.rows, true)
	}
	memory.endCapture()
	return memory.found, nil
}

// checkSize refuses sizes whose bytes leave what the arithmetic of sizes can hold: `together` tokens go through the
// layers at once, `all` wait on the device.
func checkSize(config model.Config, together, all float64) error {
	hidden, ffn, chosen := float64(config.HiddenSize), float64(config.FFNSize), float64(config.ExpertsPerToken)
	rows := float64(config.NumHeads+config.NumKVHeads) * float64(config.HeadDim+1)
	token := 8*hidden + 8*rows + 8*float64(config.NumExperts) + chosen*(8+4*hidden+8*ffn)
	bytes := 4*together*token*float64(config.NumLayers+2) + 16*all
	if bytes > 1<<60 {
		return errors.New("the sizes make a run of more memory than any machine has")
	}
	return nil
}

// Count is the parameters of a kind of layer: in all, and those that one token meets.
type Count struct {
	Kind          string
	Total, Active int
}

// Parameters counts the parameters of each kind of layer.
func Parameters(config model.Config) []Count {
	hidden, layers := config.HiddenSize, config.NumLayers
	expert, vocabulary := 3*hidden*config.FFNSize, config.VocabSize*hidden
	attention := layers * hidden * config.HeadDim * (2*config.NumHeads + 2*config.NumKVHeads)
	routers, norms := layers*config.NumExperts*hidden, (2*layers+1)*hidden
	return []Count{
		{"embedding", vocabulary, vocabulary},
		{"attention", attention, attention},
		{"routers", routers, routers},
		{"norms", norms, norms},
		{"head", vocabulary, vocabulary},
		{"experts", layers * config.NumExperts * expert, layers * config.ExpertsPerToken * expert},
	}
}

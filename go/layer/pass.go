// Package layer has the parts of a transformer, each with a forward and a hand-written backward.
//
// A layer holds views of its weights and of their gradients (nil: inference only). ForwardKeeping also returns what
// Backward needs, except the layer's input, which the caller hands in again. Backward gives the gradient of the input
// and frees what was kept; the gradients of weight matrices become `beta` times what they were plus what this call finds,
// so that beta 0 spares the first micro-batch a pass to set them to zero. Gradients of norms' gains and of the embedding
// are always added to what is there.
//
// Activations have the dtype of the weights, f32, bf16 or f16; gradients of weights are f32 always, and so are the
// router's logits and probabilities.
//
// Layers run inside Run, which hands them a Pass: memory for what they compute, and the first error that a call met.
// Each tensor that a layer makes is its caller's to free with Pass.Free.
package layer

import (
	"errors"
	"maps"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Pass is one run through layers: it makes their tensors and keeps the first error of a call, as a bufio.Writer does, so
// that some thirty kernel calls in a row need not each be followed by a return. Once there is an error, the tensors that
// the pass makes have no memory (tensor.Failed), so no kernel runs on them; Run returns the error.
type Pass struct {
	ctx  *cuda.Context
	live map[*tensor.Tensor]int // made here and neither freed nor kept yet, and as which
	made int
	err  error
}

// Run calls `pass` with a Pass on ctx. It returns the first error that the Pass met, and frees on every way out what
// was made and neither freed nor kept.
func Run(ctx *cuda.Context, pass func(*Pass)) (err error) {
	p := &Pass{ctx: ctx, live: make(map[*tensor.Tensor]int)}
	defer func() {
		err = p.err
		left := slices.Collect(maps.Keys(p.live)) // in one order, so that the same pass takes the same memory
		slices.SortFunc(left, func(a, b *tensor.Tensor) int { return p.live[a] - p.live[b] })
		for _, made := range left {
			err = errors.Join(err, made.Close())
		}
	}()
	pass(p)
	return nil
}

// Context is the context that the pass runs on.
func (p *Pass) Context() *cuda.Context { return p.ctx }

// Err is the first error that the pass met; nil while there was none. Whatever changes what outlives the pass must look
// at it before.
func (p *Pass) Err() error { return p.err }

// Check keeps an error, unless there was one before.
func (p *Pass) Check(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Label says what the calls from here on belong to, in a trace if one runs; see cuda.Context.Label.
func (p *Pass) Label(parts ...string) { p.Check(p.ctx.Label(parts...)) }

// Empty makes a tensor, its values not set.
func (p *Pass) Empty(dtype cuda.DType, shape ...int) *tensor.Tensor {
	if p.err == nil {
		made, err := tensor.New(p.ctx, dtype, shape...)
		if err == nil {
			p.made++
			p.live[made] = p.made
			return made
		}
		p.err = err
	}
	return tensor.Failed(p.err, dtype, shape...)
}

// Like makes a tensor of another's shape and dtype, its values not set.
func (p *Pass) Like(other *tensor.Tensor) *tensor.Tensor {
	return p.Empty(other.DType(), other.Shape()...)
}

// Free gives tensors of this pass back. Nil, and what this pass did not make, is left alone.
func (p *Pass) Free(tensors ...*tensor.Tensor) {
	for _, made := range tensors {
		if _, ours := p.live[made]; ours {
			delete(p.live, made)
			p.Check(made.Close())
		}
	}
}

// Keep makes a tensor outlive the pass: from now on it is its holder's to close. A pass that failed keeps nothing.
func (p *Pass) Keep(made *tensor.Tensor) *tensor.Tensor {
	if p.err == nil {
		delete(p.live, made)
	}
	return made
}

// View gives the same elements in another shape; one extent may be -1.
func (p *Pass) View(of *tensor.Tensor, shape ...int) *tensor.Tensor {
	view, err := of.View(shape...)
	if p.Check(err); err != nil {
		return tensor.Failed(p.err, of.DType(), shape...)
	}
	return view
}

// Narrow gives elements start .. start+length-1 of a dimension.
func (p *Pass) Narrow(of *tensor.Tensor, dim, start, length int) *tensor.Tensor {
	view, err := of.Narrow(dim, start, length)
	if p.Check(err); err != nil {
		shape := of.Shape()
		shape[dim] = length
		return tensor.Failed(p.err, of.DType(), shape...)
	}
	return view
}

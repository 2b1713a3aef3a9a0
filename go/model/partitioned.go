package model

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// PassBuffers is how many pieces of a backward pass are there at a time where gradients are partitioned.
const PassBuffers = 3

// PartitionedGradients are where a backward pass puts the gradients of a rank that runs one micro-batch of an update, and
// needs those of a layer only until the ranks that update its parameters have them: so layers share a few buffers, and
// MoETransformer.Gradients has what this rank updates alone, and the gains', to which layers add during the whole pass.
// (Rajbhandari et al. 2020, "ZeRO", section 5.2)
type PartitionedGradients struct {
	layout  *Layout
	pieces  []Span // Layout.BackwardPieces without the gains
	buffers [PassBuffers]*tensor.Tensor
}

// PartitioningSaves says whether that is less memory on so many ranks: not for few layers.
func (l *Layout) PartitioningSaves(ranks int) bool {
	return PassBuffers*largestOf(l.matrixPieces())+l.Size/ranks < l.Size
}

// WithPartitionedGradients makes a model that keeps of the gradients those of what this rank updates alone (see
// PartitionedGradients): of one of several ranks of WithComm, with all experts, that trains one micro-batch of an update.
func WithPartitionedGradients(partition bool) Option {
	return func(m *MoETransformer) { m.partition = partition }
}

func (l *Layout) matrixPieces() []Span {
	pieces := l.BackwardPieces()
	return pieces[:len(pieces)-1]
}

func largestOf(pieces []Span) int {
	largest := 0
	for _, piece := range pieces {
		largest = max(largest, piece.Size())
	}
	return largest
}

func newPartitionedGradients(ctx *cuda.Context, layout *Layout) (*PartitionedGradients, error) {
	p := &PartitionedGradients{layout: layout, pieces: layout.matrixPieces()}
	for at := range p.buffers {
		var err error
		if p.buffers[at], err = tensor.New(ctx, cuda.F32, largestOf(p.pieces)); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// Close frees the buffers.
func (p *PartitionedGradients) Close() error {
	if p == nil {
		return nil
	}
	var err error
	for _, buffer := range p.buffers {
		err = errors.Join(err, buffer.Close())
	}
	return err
}

// Bytes is the memory of the buffers.
func (p *PartitionedGradients) Bytes() int {
	if p == nil {
		return 0
	}
	return PassBuffers * int(p.buffers[0].Bytes())
}

// Buffer gives the gradients of a piece of Layout.BackwardPieces, f32 of its size; nil for the gains', and for all where
// nothing is partitioned. PassBuffers pieces later another has it.
func (p *PartitionedGradients) Buffer(number int) (*tensor.Tensor, error) {
	if p == nil || number == len(p.pieces) {
		return nil, nil
	}
	return p.buffers[number%PassBuffers].Narrow(0, 0, p.pieces[number].Size())
}

// view is where a pass puts the gradient of a tensor of this shape that begins at an element; nil of a gain.
func (p *PartitionedGradients) view(offset int, shape []int) (*tensor.Tensor, error) {
	for number, piece := range p.pieces {
		if piece.Begin <= offset && offset < piece.End {
			part, err := p.buffers[number%PassBuffers].Narrow(0, offset-piece.Begin, Spec{Shape: shape}.Size())
			if err != nil {
				return nil, err
			}
			return part.View(shape...)
		}
	}
	return nil, nil
}

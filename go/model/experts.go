package model

import (
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
)

// WithExperts makes a model of a rank that has a part of the experts, which may be nil: all of them. The model closes it.
// Such a model trains together with those of the other ranks, and does nothing else.
func WithExperts(experts *layer.ExpertParallel) Option {
	return func(m *MoETransformer) { m.Experts = experts }
}

// WithComm makes a model of a rank of a communicator, which may be nil and must outlive it, that trains on it: in 16 bits
// it has the f32 values of Parameters only of what this rank updates.
func WithComm(comm *cuda.Comm) Option { return func(m *MoETransformer) { m.Comm = comm } }

// ExpertParallel is how many ranks share out the experts; 1 where all are here.
func (m *MoETransformer) ExpertParallel() int {
	if m.Experts == nil {
		return 1
	}
	return m.Experts.Size
}

// Serve runs what other ranks send through this rank's experts in a round in which it has no micro-batch of its own: what
// ForwardBackward does for them. It calls `completed`, unless that is nil, where ForwardBackward does.
func (m *MoETransformer) Serve(p *layer.Pass, completed func()) {
	if completed == nil {
		completed = func() {}
	}
	kept := make([]*layer.Served, len(m.blocks))
	for at, block := range m.blocks {
		kept[at] = block.ServeForward(p, true)
	}
	completed()
	for at := range slices.Backward(m.blocks) {
		m.blocks[at].ServeBackward(p, kept[at])
		completed()
	}
	completed()
	completed()
	p.Label()
}

// AddUp carries out what becomes, in a round, of sums of the gradients of the experts that this rank has, by itself.
func (m *MoETransformer) AddUp(p *layer.Pass, event cuda.ExpertEvent) {
	for _, block := range slices.Backward(m.blocks) {
		block.AddUp(p, event)
	}
}

// ServeEvaluation is Serve for a round of Evaluate.
func (m *MoETransformer) ServeEvaluation() error {
	return m.run(func(p *layer.Pass) {
		for _, block := range m.blocks {
			block.ServeForward(p, false)
		}
	})
}

package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Served is what the rows of all ranks of a group become in the own experts of one of them; see ExpertParallel.
type Served struct {
	slots   *tensor.Tensor // [ranks, rows of a slot, hidden]: of each rank
	offsets *tensor.Tensor // i32 [ranks, own + 1]: first row of each own expert in each slot
	inside  []*inside      // of each rank, nil where it has no micro-batch; its rows are the slot
}

func (s *Served) free(p *Pass) {
	if s == nil {
		return
	}
	for _, inside := range s.inside {
		inside.free(p)
	}
	p.Free(s.slots, s.offsets)
}

// of gives the slot of a rank in what has one for each, and the offsets in it.
func (s *Served) of(p *Pass, slots *tensor.Tensor, rank int) (rows, offsets *tensor.Tensor) {
	rows = p.View(p.Narrow(slots, 0, rank, 1), slots.Dim(1), slots.Dim(2))
	return rows, p.View(p.Narrow(s.offsets, 0, rank, 1), s.offsets.Dim(1))
}

// enterAll sends rows in the order of experts to the ranks that have these, and runs what comes from all ranks through
// what lies before W2 of the own experts. Rows and offsets of a guest are nil.
func (m *MoELayer) enterAll(p *Pass, rows, offsets *tensor.Tensor) *Served {
	e := m.Parallel
	round := e.current(p)
	room := e.MostRows(m.Router.K, round.Tokens, round.Capacity)
	served := &Served{
		slots:   p.Empty(m.W2.DType(), e.Size, room, m.W2.Dim(1)),
		offsets: p.Empty(cuda.I32, e.Size, e.Own+1),
		inside:  make([]*inside, e.Size),
	}
	e.dispatch(p, rows, offsets, served.slots, served.offsets)
	for rank, runs := range round.Runs {
		if runs {
			rows, offsets := served.of(p, served.slots, rank)
			served.inside[rank] = m.beforeW2(p, rows, offsets)
		}
	}
	return served
}

// leaveAll gives each rank its rows' outputs of the own experts, and this one its own from all ranks, in `y` in the
// order of experts, which is nil for a guest.
func (m *MoELayer) leaveAll(p *Pass, served *Served, y, offsets *tensor.Tensor) {
	out := p.Like(served.slots)
	for rank, inside := range served.inside {
		if inside != nil {
			rows, offsets := served.of(p, out, rank)
			p.Check(tensor.GroupedGemm(inside.active, m.W2, offsets, rows, 0, true))
		}
	}
	m.Parallel.collect(p, out, served.offsets, y, offsets)
	p.Free(out)
}

// backwardAll makes of the gradient of the outputs in the order of experts, nil for a guest, that of the rows, in its
// place, and adds up the gradients of the own experts. It frees `served`.
func (m *MoELayer) backwardAll(p *Pass, served *Served, gradient, offsets *tensor.Tensor) {
	e := m.Parallel
	dy := p.Like(served.slots)
	e.dispatch(p, gradient, offsets, dy, served.offsets)
	for _, event := range e.current(p).Events {
		switch event.Kind {
		case cuda.ExpertsRun:
			w13, w2 := m.sums(p, event.C)
			from, offsets := served.of(p, dy, event.A)
			m.productsBackward(p, from, served.inside[event.A], offsets, w13, w2, float32(event.Accumulate))
			p.Free(served.inside[event.A].gateUp)
		default:
			m.addUp(p, event)
		}
	}
	p.Free(dy)
	e.collect(p, served.slots, served.offsets, gradient, offsets)
	served.free(p)
}

// addUp carries out what becomes of sums in a round.
func (m *MoELayer) addUp(p *Pass, event cuda.ExpertEvent) {
	switch sum := m.layerSums(p, event.A); event.Kind {
	case cuda.ExpertsAdd:
		p.Check(tensor.Add(sum, m.layerSums(p, event.B), sum))
	case cuda.ExpertsRound:
		if rounded := m.Parallel.rounded; rounded != cuda.F32 {
			p.Check(tensor.Round(sum, sum, rounded))
		}
	}
}

// layerSums is the part of a slot of sums that is this layer's.
func (m *MoELayer) layerSums(p *Pass, slot int) *tensor.Tensor {
	slots, size := m.Parallel.slots, m.W13.Size()+m.W2.Size()
	return p.Narrow(p.View(p.Narrow(slots, 0, slot, 1), slots.Dim(1)), 0, m.Index*size, size)
}

// sums are the places of the own experts' gradients in a slot.
func (m *MoELayer) sums(p *Pass, slot int) (w13, w2 *tensor.Tensor) {
	both := m.layerSums(p, slot)
	w13 = p.View(p.Narrow(both, 0, 0, m.W13.Size()), m.W13.Shape()...)
	return w13, p.View(p.Narrow(both, 0, m.W13.Size(), m.W2.Size()), m.W2.Shape()...)
}

// serveForward runs what other ranks send through the own experts; with `keep` it gives what the backward needs.
func (m *MoELayer) serveForward(p *Pass, keep bool) *Served {
	served := m.enterAll(p, nil, nil)
	m.leaveAll(p, served, nil, nil)
	if keep {
		return served
	}
	served.free(p)
	return nil
}

// serveBackward is the backward of serveForward; nil was not kept, and is found again.
func (m *MoELayer) serveBackward(p *Pass, served *Served) {
	if served == nil {
		served = m.enterAll(p, nil, nil)
	}
	m.backwardAll(p, served, nil, nil)
}

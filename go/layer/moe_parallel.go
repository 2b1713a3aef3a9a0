package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Served is what the rows of all ranks of a group become in the own experts of one of them; see ExpertParallel.
type Served struct {
	slots   *tensor.Tensor // [ranks, rows of a slot, hidden]: of each rank
	offsets *tensor.Tensor // i32 [ranks, own + 1]: first row of each own expert in each slot
	inside  []*inside      // of each rank, nil where it has no micro-batch and until found; its rows are the slot

	underWay bool           // rows, for whose end nobody has waited
	sent     *tensor.Tensor // those of this rank, nil of a guest
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

// arrive sends rows in the order of experts to the ranks that have these; those for the own experts are on the way. Rows
// and offsets of a guest are nil.
func (m *MoELayer) arrive(p *Pass, rows, offsets *tensor.Tensor) *Served {
	e := m.Parallel
	round := e.current(p)
	room := e.MostRows(m.Router.K, round.Tokens, round.Capacity)
	served := &Served{
		slots:    p.Empty(m.W2.DType(), e.Size, room, m.W2.Dim(1)),
		offsets:  p.Empty(cuda.I32, e.Size, e.Own+1),
		inside:   make([]*inside, e.Size),
		underWay: true,
		sent:     rows,
	}
	e.dispatch(p, rows, offsets, served.slots, served.offsets, false)
	return served
}

// enter runs the rows of a rank through what lies before W2 of the own experts.
func (m *MoELayer) enter(p *Pass, served *Served, rank int) *inside {
	rows, offsets := served.of(p, served.slots, rank)
	served.inside[rank] = m.beforeW2(p, rows, offsets)
	return served.inside[rank]
}

// leave puts the outputs for the rows of a rank into its slot of out.
func (m *MoELayer) leave(p *Pass, served *Served, rank int, out *tensor.Tensor) {
	rows, offsets := served.of(p, out, rank)
	m.outputs(p, served.inside[rank].active, offsets, rows)
}

// runAll sends `home`, rows in the order of experts, nil of a guest, to the ranks that have these; their outputs take the
// place of the rows. With `keep` it gives what the backward needs.
//
// While rows travel the own ones are multiplied, then those of one rank after the other as they come, whose outputs go
// back meanwhile; the last product of the own rows runs while the last of these do.
func (m *MoELayer) runAll(p *Pass, home, offsets *tensor.Tensor, keep bool) *Served {
	e := m.Parallel
	served := m.arrive(p, home, offsets)
	out := served.slots
	if keep {
		out = p.Like(out)
	}
	for _, rank := range e.sources(p) {
		if rank == e.Position {
			m.enter(p, served, rank)
			continue
		}
		e.await(p, served.slots, rank)
		inside := m.enter(p, served, rank)
		m.leave(p, served, rank, out)
		e.sendBack(p, out, home, rank)
		if !keep {
			p.Free(inside.gateUp, inside.active)
		}
	}
	if served.inside[e.Position] != nil {
		m.leave(p, served, e.Position, out)
	}
	e.collect(p, out, home)
	served.underWay, served.sent = false, nil
	if keep {
		p.Free(out)
		return served
	}
	served.free(p)
	return nil
}

// backwardAll makes of the gradient of the outputs in the order of experts, nil for a guest, that of the rows, in its
// place, and adds up the gradients of the own experts. It frees `served`. What travels does so as in runAll.
func (m *MoELayer) backwardAll(p *Pass, served *Served, gradient, offsets *tensor.Tensor) {
	e := m.Parallel
	round := e.current(p)
	dy := p.Like(served.slots)
	e.dispatch(p, gradient, offsets, dy, served.offsets, true)
	if round.Runs[e.Position] {
		m.innerBackward(p, served, dy, e.Position)
	}
	if served.underWay {
		e.await(p, served.slots, (e.Position+1)%e.Size) // the last one to come
		p.Free(served.sent)
	}
	for _, event := range round.Events {
		if event.Kind != cuda.ExpertsRun {
			m.addUp(p, event)
			continue
		}
		rank := event.A
		if rank != e.Position {
			e.await(p, dy, rank)
			m.innerBackward(p, served, dy, rank)
		}
		m.outerBackward(p, served, dy, event)
		if rank != e.Position {
			e.sendBack(p, served.slots, gradient, rank)
		}
	}
	p.Free(dy)
	e.collect(p, served.slots, gradient)
	served.free(p)
}

// innerBackward puts the gradient of what lies before SwiGLU into its place, of the rows of a rank.
func (m *MoELayer) innerBackward(p *Pass, served *Served, dy *tensor.Tensor, rank int) {
	inside := served.inside[rank]
	if inside == nil {
		inside = m.enter(p, served, rank)
	}
	from, offsets := served.of(p, dy, rank)
	m.innerGradient(p, from, offsets, inside.gateUp)
}

// outerBackward gives the gradients of the own experts' matrices and, in their place, that of the rows of a rank, behind
// innerBackward. It frees what is inside.
func (m *MoELayer) outerBackward(p *Pass, served *Served, dy *tensor.Tensor, event cuda.ExpertEvent) {
	w13, w2 := m.sums(p, event.C)
	from, offsets := served.of(p, dy, event.A)
	inside, beta := served.inside[event.A], float32(event.Accumulate)
	m.weightGradient(p, from, inside.active, offsets, w2, beta)
	p.Free(inside.active)
	m.weightGradient(p, inside.gateUp, inside.rows, offsets, w13, beta)
	m.rowsGradient(p, inside.gateUp, offsets, inside.rows)
	p.Free(inside.gateUp)
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
	return m.runAll(p, nil, nil, keep)
}

// serveBackward is the backward of serveForward; nil was not kept, and is found again.
func (m *MoELayer) serveBackward(p *Pass, served *Served) {
	if served == nil {
		served = m.arrive(p, nil, nil)
	}
	m.backwardAll(p, served, nil, nil)
}

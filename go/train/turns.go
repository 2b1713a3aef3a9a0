package train

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// turn is what a step runs at once: a micro-batch of this rank, or of a guest none, in a round of the ranks that share out
// the experts, where there are any. It stands for these micro-batches and for so many turns; for one, unless of each kind
// of turns only one is run.
type turn struct {
	own   []int
	round *layer.Round // nil where all experts are here
	times int
	sums  bool // whether sums over the ranks are begun in its backward
}

// lateSum is what becomes of sums of experts' gradients in so many rounds.
type lateSum struct {
	event cuda.ExpertEvent
	times int
}

// Repeated is a part of a step, and how many times more a step does it than it was done.
type Repeated struct {
	Run   func() error
	Times int
}

// takeTurns lists the turns of a step; with `eachKind` of those that make the same calls the first alone.
func (s *capturedStep) takeTurns(eachKind bool) error {
	rounds, err := s.replicas.experts.roundsOf(s.sizes, s.length)
	if err != nil {
		return err
	}
	for _, at := range s.replicas.inOrder(len(s.sizes)) {
		s.turns = append(s.turns, turn{own: []int{at}, times: 1})
		s.last = at
	}
	for at := range rounds {
		if at == len(s.turns) { // the other ranks have more micro-batches
			s.turns = append(s.turns, turn{times: 1})
		}
		s.turns[at].round = &rounds[at]
	}
	s.turns[len(s.turns)-1].sums = s.replicas.sums != nil
	if eachKind {
		s.keepEachKind()
	}
	return nil
}

// keepEachKind makes the first turn of a kind stand for all of them. What becomes of sums in rounds is kept apart. The kind
// of the last turn, which leaves something behind, stays the last.
func (s *capturedStep) keepEachKind() {
	var kinds []string // in the order of the last of each
	turns, sums := map[string]turn{}, map[cuda.ExpertEventKind]int{}
	for _, next := range s.turns {
		kind := fmt.Sprint(next.sums)
		for _, at := range next.own {
			kind += fmt.Sprint(s.sizes[at], at >= s.replicas.count)
		}
		if next.round != nil {
			round := *next.round
			round.Events = nil
			kind += fmt.Sprint(":", round.Tokens, round.Capacity)
			for _, event := range next.round.Events {
				if event.Kind == cuda.ExpertsRun {
					round.Events = append(round.Events, event)
					kind += fmt.Sprint(" ", event.Accumulate)
					continue
				}
				place, known := sums[event.Kind]
				if !known {
					place = len(s.sums)
					sums[event.Kind] = place
					s.sums = append(s.sums, lateSum{event: event})
				}
				s.sums[place].times++
			}
			next.round = &round
		}
		if first, known := turns[kind]; known {
			next = turn{append(first.own, next.own...), first.round, first.times + 1, next.sums}
			kinds = slices.DeleteFunc(kinds, func(of string) bool { return of == kind })
		}
		turns[kind], kinds = next, append(kinds, kind)
	}
	s.turns = nil
	for _, kind := range kinds {
		s.turns = append(s.turns, turns[kind])
	}
}

// take runs a turn.
func (s *capturedStep) take(p *layer.Pass, of turn) {
	var completed func()
	if of.sums {
		completed = func() { s.replicas.sums.next(p) }
	}
	run := func() {
		if len(of.own) > 0 {
			s.microBatch(p, of.own[0], completed)
		} else {
			s.model.Serve(p, completed)
		}
	}
	if of.round == nil {
		run()
	} else {
		s.model.Experts.During(*of.round, run)
	}
}

// microBatch adds up the gradients of a micro-batch; `completed` is as of ForwardBackward.
func (s *capturedStep) microBatch(p *layer.Pass, at int, completed func()) {
	p.Check(s.closeUses())
	lossFactor, auxFactors := s.lossFactor, s.auxFactors
	if s.scaling != nil {
		lossFactor, auxFactors = s.scaledLossFactor, s.scaledAuxFactors
	}
	start, piece := s.starts[at], s.pieces[0]*at // only the last micro-batch may be smaller
	var ends *tensor.Tensor
	if s.ends != nil {
		ends = p.Narrow(s.ends, 0, start, s.sizes[at])
	}
	s.uses = s.model.ForwardBackward(
		p, p.Narrow(s.inputs, 0, start, s.sizes[at]), p.Narrow(s.targets, 0, start, s.sizes[at]), ends,
		model.Factors{Loss: lossFactor, Aux: p.Narrow(auxFactors, 0, at, 1)},
		p.Narrow(s.losses, 0, piece, s.pieces[at]), p.Narrow(s.aux, 0, at, 1), at >= s.replicas.count, completed,
	)
}

// sentLater says whether what waits for the gradients behind a micro-batch is added when they are sent to other ranks.
func (s *capturedStep) sentLater(at int) bool { return s.replicas.sums != nil && at == s.last }

// leftOut lists what a step does, and how many times more.
func (s *capturedStep) leftOut() []Repeated {
	var parts []Repeated
	add := func(times int, work func(*layer.Pass)) {
		run := func() error { return layer.Run(s.model.Context(), work) }
		parts = append(parts, Repeated{run, times - 1})
	}
	for _, of := range s.turns {
		add(of.times, func(p *layer.Pass) { s.take(p, of) })
	}
	for _, sum := range s.sums {
		add(sum.times, func(p *layer.Pass) { s.model.AddUp(p, sum.event) })
	}
	return parts
}

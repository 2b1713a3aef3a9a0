package model

import (
	"slices"
	"sort"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Span is elements Begin .. End-1 of the arenas.
type Span struct{ Begin, End int }

// Size is the number of elements.
func (s Span) Size() int { return s.End - s.Begin }

// Of gives those elements of an arena.
func (s Span) Of(arena *tensor.Tensor) (*tensor.Tensor, error) {
	return arena.Narrow(0, s.Begin, s.Size())
}

// Meet gives the elements that both have, none of them from either's beginning on.
func (s Span) Meet(other Span) Span {
	begin := min(max(s.Begin, other.Begin), s.End)
	return Span{begin, max(begin, min(s.End, other.End))}
}

// Experts gives where W13 and W2 of a layer's experts lie: of part `part` of `parts` equal parts of the experts.
func (l *Layout) Experts(layer, part, parts int) [2]Span {
	var found [2]Span
	for at, all := range l.experts[layer] {
		size := all.Size() / parts
		found[at] = Span{all.Begin + part*size, all.Begin + (part+1)*size}
	}
	return found
}

// Dense gives what is no expert's: what lies before, between and after those of the layers.
func (l *Layout) Dense() []Span {
	var dense []Span
	begin := 0
	for _, experts := range l.experts {
		dense = append(dense, Span{begin, experts[0].Begin})
		begin = experts[1].End
	}
	return append(dense, Span{begin, l.Size})
}

// Grain is the elements of the arenas that stay on one rank: a multiple of the pieces in which the norm of the gradients
// is summed up, and of the blocks of moments in 8 bits.
const Grain = 32768

// Held is which elements of the arenas a rank has, and updates, of which `group` neighbouring ones have the experts
// together, each a part of them, and everything else as the others.
type Held struct {
	Shards  []cuda.RankShard // all elements, in ascending order, and who updates them
	Updated []Span           // those of this rank, in ascending order and apart; each begins at a multiple of Grain
	Dense   []Span           // what every rank has: all, or, where the experts are shared out, what is no expert's
	Own     []Span           // of experts that are shared out, its own: of each layer those of W13 and those of W2

	layout      *Layout
	rank, group int
	updated     [][]Span // of each rank
}

// NewHeld is what the rank `rank` of so many holds.
func NewHeld(layout *Layout, rank, ranks, group int) (*Held, error) {
	h := &Held{Dense: []Span{{End: layout.Size}}, layout: layout, group: group, updated: make([][]Span, ranks)}
	if group > 1 {
		h.Dense = layout.Dense()
	}
	var stacks [][2]int64
	for _, both := range layout.experts {
		for _, stack := range both {
			stacks = append(stacks, [2]int64{int64(stack.Begin), int64(stack.End)})
		}
	}
	var err error
	h.Shards, err = cuda.ExpertShards(int64(layout.Size), Grain, int64(ranks), int64(group), stacks)
	if err != nil {
		return nil, err
	}
	for _, shard := range h.Shards {
		h.updated[shard.Rank] = append(h.updated[shard.Rank], Span{int(shard.Begin), int(shard.End)})
	}
	return h.Of(rank), nil
}

// Of is the same of another rank of the job.
func (h *Held) Of(rank int) *Held {
	of := *h
	of.rank, of.Updated, of.Own = rank, joined(h.updated[rank]), nil
	if h.group == 1 {
		return &of
	}
	for at := range h.layout.experts {
		own := h.layout.Experts(at, rank%h.group, h.group)
		of.Own = append(of.Own, own[:]...)
	}
	return &of
}

// Computes is what of weights and gradients is here, in ascending order and apart.
func (h *Held) Computes() []Span { return joined(slices.Concat(h.Dense, h.Own, h.Updated)) }

// Gradients is what of the gradients is here where they are partitioned (PartitionedGradients): of what this rank updates,
// and the gains'.
func (h *Held) Gradients() []Span {
	return joined(append(slices.Clone(h.Updated), Span{h.layout.NumDecayed, h.layout.Size}))
}

// In gives the parts of the shards that lie in a span.
func (h *Held) In(span Span) []cuda.RankShard {
	var parts []cuda.RankShard
	first := sort.Search(len(h.Shards), func(at int) bool { return h.Shards[at].End > int64(span.Begin) })
	for _, shard := range h.Shards[first:] {
		begin, end := max(shard.Begin, int64(span.Begin)), min(shard.End, int64(span.End))
		if begin >= end {
			break
		}
		parts = append(parts, cuda.RankShard{Begin: begin, End: end, Rank: shard.Rank})
	}
	return parts
}

// InAll gives the parts of the shards that lie in spans, one span after the other.
func (h *Held) InAll(spans []Span) []cuda.RankShard {
	var parts []cuda.RankShard
	for _, span := range spans {
		parts = append(parts, h.In(span)...)
	}
	return parts
}

// DenseIn gives what every rank has of a span.
func (h *Held) DenseIn(span Span) []Span {
	var parts []Span
	for _, dense := range h.Dense {
		part := Span{Begin: max(dense.Begin, span.Begin), End: min(dense.End, span.End)}
		if part.Begin < part.End {
			parts = append(parts, part)
		}
	}
	return parts
}

// InDense gives those that every rank has.
func (h *Held) InDense() []cuda.RankShard { return h.InAll(h.Dense) }

// A SlotShard is a part of the own experts' elements, which lie side by side in a slot, there, with the number that the
// owner of them has who is in the group of the rank that updates them; in the arenas it begins at InArena.
type SlotShard struct {
	cuda.RankShard
	InArena int
}

// InSlot gives the parts of the shards that are of the own experts.
func (h *Held) InSlot() []SlotShard {
	var parts []SlotShard
	begin := 0
	for _, span := range h.Own {
		for _, shard := range h.In(span) {
			moved, at := int64(begin-span.Begin), int(shard.Begin)
			shard.Begin, shard.End, shard.Rank = shard.Begin+moved, shard.End+moved, shard.Rank/int64(h.group)
			parts = append(parts, SlotShard{shard, at})
		}
		begin += span.Size()
	}
	return parts
}

// GradientMoves brings the sums of the experts' gradients, which the ranks of a group have of their own experts, to those
// of the same group that update them; of elements of so many bytes. All ranks list moves in the same order, in every
// language.
func (h *Held) GradientMoves(bytes int) []cuda.Move {
	var moves []cuda.Move
	h.eachPosition(func(position int, span Span) {
		for _, shard := range h.In(span) {
			if from := int(shard.Rank)/h.group*h.group + position; from != int(shard.Rank) {
				moves = append(moves, moveOf(shard, bytes, from, int(shard.Rank)))
			}
		}
	})
	return moves
}

// WeightMoves brings the updated weights from the ranks that have updated them to all that compute with them: of these
// moves, which are as many as shards times ranks, those that begin or end here.
func (h *Held) WeightMoves(bytes int) []cuda.Move {
	var moves []cuda.Move
	h.eachWanted(func(shard cuda.RankShard, first, step int) {
		if from := int(shard.Rank); from != h.rank {
			if h.rank%step == first {
				moves = append(moves, moveOf(shard, bytes, from, h.rank))
			}
			return
		}
		for to := first; to < len(h.updated); to += step {
			if to != h.rank {
				moves = append(moves, moveOf(shard, bytes, h.rank, to))
			}
		}
	})
	return moves
}

// WeightsSent is how many elements each rank sends by WeightMoves.
func (h *Held) WeightsSent() []int {
	sent := make([]int, len(h.updated))
	h.eachWanted(func(shard cuda.RankShard, first, step int) {
		receivers := len(h.updated) / step
		if int(shard.Rank)%step == first {
			receivers--
		}
		sent[shard.Rank] += int(shard.End-shard.Begin) * receivers
	})
	return sent
}

// eachWanted calls `do` with each part of the shards that ranks compute with: with the first and all of `step` apart.
func (h *Held) eachWanted(do func(shard cuda.RankShard, first, step int)) {
	for _, shard := range h.InDense() {
		do(shard, 0, 1)
	}
	h.eachPosition(func(position int, span Span) {
		for _, shard := range h.In(span) {
			do(shard, position, h.group)
		}
	})
}

// eachPosition calls `do` with the experts' elements that the ranks of each position in their groups have, where the
// experts are shared out: of each layer those of W13, then of W2.
func (h *Held) eachPosition(do func(position int, span Span)) {
	if h.group == 1 {
		return
	}
	for layer := range h.layout.experts {
		for matrix := range 2 {
			for position := range h.group {
				do(position, h.layout.Experts(layer, position, h.group)[matrix])
			}
		}
	}
}

func moveOf(shard cuda.RankShard, bytes, from, to int) cuda.Move {
	size := int64(bytes)
	return cuda.Move{Begin: size * shard.Begin, End: size * shard.End, From: int64(from), To: int64(to)}
}

// joined gives the same elements in ascending order, without empty spans and without two that touch.
func joined(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return a.Begin - b.Begin })
	joined := []Span{}
	for _, span := range spans {
		last := len(joined) - 1
		switch {
		case span.Size() == 0:
		case last >= 0 && span.Begin <= joined[last].End:
			joined[last].End = max(joined[last].End, span.End)
		default:
			joined = append(joined, span)
		}
	}
	return joined
}

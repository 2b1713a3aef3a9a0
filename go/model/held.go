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
	Dense   []Span           // what is no expert's
	Own     []Span           // its experts', of each layer those of W13 and those of W2

	layout       *Layout
	ranks, group int
}

// NewHeld is what the rank `rank` of so many holds.
func NewHeld(layout *Layout, rank, ranks, group int) (*Held, error) {
	h := &Held{Dense: layout.Dense(), layout: layout, ranks: ranks, group: group}
	var stacks [][2]int64
	for at, both := range layout.experts {
		own := layout.Experts(at, rank%group, group)
		h.Own = append(h.Own, own[:]...)
		for _, stack := range both {
			stacks = append(stacks, [2]int64{int64(stack.Begin), int64(stack.End)})
		}
	}
	var err error
	h.Shards, err = cuda.ExpertShards(int64(layout.Size), Grain, int64(ranks), int64(group), stacks)
	for _, shard := range h.Shards {
		if shard.Rank == int64(rank) {
			h.Updated = append(h.Updated, Span{int(shard.Begin), int(shard.End)})
		}
	}
	h.Updated = joined(h.Updated)
	return h, err
}

// computes is what of weights and gradients is here; nil is all.
func (h *Held) computes() []Span {
	if h.group == 1 {
		return nil
	}
	return joined(slices.Concat(h.Dense, h.Own, h.Updated))
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

// InDense gives those that are no expert's.
func (h *Held) InDense() []cuda.RankShard {
	var parts []cuda.RankShard
	for _, span := range h.Dense {
		parts = append(parts, h.In(span)...)
	}
	return parts
}

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
// of the same group that update them; of elements of so many bytes. All ranks make the same moves, in the same order in
// every language.
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

// WeightMoves brings the updated weights from the ranks that have updated them to all that compute with them.
func (h *Held) WeightMoves(bytes int) []cuda.Move {
	var moves []cuda.Move
	spread := func(span Span, first, step int) {
		for _, shard := range h.In(span) {
			for to := first; to < h.ranks; to += step {
				if to != int(shard.Rank) {
					moves = append(moves, moveOf(shard, bytes, int(shard.Rank), to))
				}
			}
		}
	}
	for _, span := range h.Dense {
		spread(span, 0, 1)
	}
	h.eachPosition(func(position int, span Span) { spread(span, position, h.group) })
	return moves
}

// eachPosition calls `do` with the experts' elements that the ranks of each position in their groups have: of each layer
// those of W13, then of W2.
func (h *Held) eachPosition(do func(position int, span Span)) {
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

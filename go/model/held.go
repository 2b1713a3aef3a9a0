package model

import (
	"slices"

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

// held is which elements of the arenas a rank has memory for, where the experts are shared out: of the weights and
// gradients what is no expert's, its own experts, and what it updates; of f32 values of which the weights are rounded
// copies, only what it updates.
type held struct{ all, updated []Span }

// held gives them; nil spans, which is all, where this rank has all experts.
func (m *MoETransformer) held() (held, error) {
	e := m.Experts
	if e == nil {
		return held{}, nil
	}
	begin, end, err := cuda.Shard(int64(m.Layout.Size), e.Grain, int64(e.Comm.Ranks()), int64(e.Comm.Rank()))
	if err != nil {
		return held{}, err
	}
	updates := Span{int(begin), int(end)}
	spans := append(m.Layout.Dense(), updates)
	for layer := range m.Layout.experts {
		own := m.Layout.Experts(layer, e.Position, e.Size)
		spans = append(spans, own[:]...)
	}
	return held{joined(spans), joined([]Span{updates})}, nil
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

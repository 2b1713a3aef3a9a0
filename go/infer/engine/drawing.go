package engine

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// drawnAhead is the tokens that may be drawn for a row beyond those that anybody asked for: a batch may run a step ahead.
const drawnAhead = 2

// Drawing is how tokens of a sequence are drawn, and what was drawn so far.
type Drawing struct {
	sampling Sampling
	draws    int
	seen     map[int32]int32 // how often each token was, with those of the prompt that were not; nil where nothing counts them
	room     int             // the most tokens that seen may come to have
	mask     []int32         // the tokens that are allowed next, a bit each; nil for all
}

// NewDrawing is one for at most `most` tokens after a prompt.
func NewDrawing(sampling Sampling, prompt []int32, most int) *Drawing {
	d := &Drawing{sampling: sampling}
	if !sampling.penalizes() {
		return d
	}
	d.seen = make(map[int32]int32)
	if sampling.repeats() {
		for _, token := range prompt {
			d.seen[token] = 0
		}
	}
	d.room = len(d.seen) + most + drawnAhead
	return d
}

// drawn counts a token that was drawn.
func (d *Drawing) drawn(token int32) {
	d.draws++
	if d.seen != nil {
		d.seen[token]++
	}
}

// kind is which calls a draw makes: a graph holds those of one kind.
type kind struct {
	greedy                          bool // all rows: then no numbers are drawn at all
	minP, penalized, biased, masked bool
}

// adjusts says whether logits are changed in place.
func (k kind) adjusts() bool { return k.penalized || k.biased || k.masked }

// RowSampler draws a token a row on the device, each row by its own options.
//
// One kernel serves them all, or another where one has a MinP: with the largest top_k, a top_p of 1 and a min_p of 0 it
// draws as those without do, and with a temperature of 0 it takes the most likely token. What a row does not use costs
// nothing: memory is there once a row wants it, and calls are made while one does.
type RowSampler struct {
	rows, vocab             int
	keep                    store
	counts, topK            *tensor.Tensor // i32 [rows]: draws so far, most candidates
	temperature, topP, minP *tensor.Tensor // f32 [rows]
	seeds                   *tensor.Tensor // i64 [rows]
	penalties               *penalties
	biases                  *biases
	masks                   *masks
	kind                    kind // what the rows need
	generation              int  // how often graphs of earlier calls have become invalid, since memory was made anew
}

// NewRowSampler makes one for so many rows, to be closed.
func NewRowSampler(p *layer.Pass, rows, vocab int) *RowSampler {
	s := &RowSampler{rows: rows, vocab: vocab, kind: kind{greedy: true}}
	s.counts, s.topK = s.keep.zeros(p, cuda.I32, rows), s.keep.zeros(p, cuda.I32, rows)
	s.temperature, s.topP = s.keep.zeros(p, cuda.F32, rows), s.keep.zeros(p, cuda.F32, rows)
	s.minP, s.seeds = s.keep.zeros(p, cuda.F32, rows), s.keep.zeros(p, cuda.I64, rows)
	return s
}

// Close frees what the sampler has on the device. Closing twice is fine.
func (s *RowSampler) Close() error {
	if s == nil {
		return nil
	}
	err := s.keep.close()
	if s.penalties != nil {
		err = cmp.Or(err, s.penalties.keep.close())
	}
	if s.biases != nil {
		err = cmp.Or(err, s.biases.keep.close())
	}
	return err
}

// writeFirst writes the first elements of a tensor of one dimension.
func writeFirst[T tensor.Element](p *layer.Pass, target *tensor.Tensor, values []T) {
	place := p.Narrow(target, 0, 0, len(values))
	if p.Err() == nil {
		p.Check(tensor.Write(place, values))
	}
}

// Assign sets the first rows.
func (s *RowSampler) Assign(p *layer.Pass, rows []*Drawing) {
	count := len(rows)
	counts, topK, seeds := make([]int32, count), make([]int32, count), make([]int64, count)
	temperature, topP, minP := make([]float32, count), make([]float32, count), make([]float32, count)
	s.kind = kind{greedy: true}
	room, biased := 0, 0
	for at, row := range rows {
		option := row.sampling
		counts[at], seeds[at] = int32(row.draws), option.Seed
		topK[at], topP[at] = int32(cmp.Or(option.TopK, math.MaxInt32)), float32(cmp.Or(option.TopP, 1))
		temperature[at], minP[at] = float32(option.Temperature), float32(option.MinP)
		s.kind.greedy = s.kind.greedy && option.Temperature == 0
		s.kind.minP = s.kind.minP || option.MinP > 0
		s.kind.penalized = s.kind.penalized || row.seen != nil
		s.kind.biased = s.kind.biased || len(option.LogitBias) > 0
		s.kind.masked = s.kind.masked || row.mask != nil
		room, biased = max(room, row.room), biased+len(option.LogitBias)
	}
	writeFirst(p, s.counts, counts)
	writeFirst(p, s.topK, topK)
	writeFirst(p, s.temperature, temperature)
	writeFirst(p, s.topP, topP)
	writeFirst(p, s.minP, minP)
	writeFirst(p, s.seeds, seeds)
	if s.kind.penalized {
		s.penaltiesFor(p, room).assign(p, rows)
	}
	if s.kind.biased {
		s.biasesFor(p, biased).assign(p, rows)
	}
	if s.kind.masked {
		if s.masks == nil {
			s.masks = &masks{s.keep.zeros(p, cuda.I32, s.rows, maskWords(s.vocab)), s.keep.zeros(p, cuda.I32, s.rows)}
		}
		s.masks.assign(p, rows)
	}
}

// Draw makes the next token of each row of logits [rows, vocab], which it may change, into ids i32 [rows].
func (s *RowSampler) Draw(p *layer.Pass, logits, ids *tensor.Tensor) {
	if p.Err() != nil {
		return
	}
	first := func(of *tensor.Tensor) *tensor.Tensor { return p.Narrow(of, 0, 0, ids.Dim(0)) }
	if s.kind.penalized {
		s.penalties.apply(p, logits)
	}
	if s.kind.biased {
		s.biases.apply(p, logits)
	}
	if s.kind.masked {
		s.masks.apply(p, logits)
	}
	if s.kind.greedy {
		p.Check(tensor.Argmax(logits, ids))
	} else {
		counts, temperature, topK, topP, seeds := first(s.counts), first(s.temperature), first(s.topK), first(s.topP), first(s.seeds)
		if s.kind.minP {
			p.Check(tensor.MinPSample(logits, temperature, topK, topP, first(s.minP), seeds, counts, ids))
		} else {
			p.Check(tensor.TopPSample(logits, temperature, topK, topP, seeds, counts, ids))
		}
		p.Check(tensor.Increment(counts, 1))
	}
	if s.kind.penalized {
		s.penalties.count(p, ids, s.vocab)
	}
}

// renewMasks sets the masks of rows that have been assigned, for their next tokens.
func (s *RowSampler) renewMasks(p *layer.Pass, rows []*Drawing) {
	if s.masks != nil {
		s.masks.renew(p, rows)
	}
}

func (s *RowSampler) penaltiesFor(p *layer.Pass, room int) *penalties {
	room = min(room, s.vocab)
	if s.penalties == nil || s.penalties.capacity < room {
		if s.penalties != nil {
			p.Check(s.penalties.keep.close()) // graphs that use it keep it while they are
		}
		s.penalties = newPenalties(p, s.rows, min(powerOfTwo(room), s.vocab))
		s.generation++
	}
	return s.penalties
}

func (s *RowSampler) biasesFor(p *layer.Pass, count int) *biases {
	if s.biases == nil || s.biases.capacity < count {
		if s.biases != nil {
			p.Check(s.biases.keep.close())
		}
		s.biases = newBiases(p, s.rows, powerOfTwo(count))
		s.generation++
	}
	return s.biases
}

// penalties are lists of tokens, a row each: 8 bytes for each token that a sequence may come to have, and as many to read
// a step as it has. Counts of the whole vocabulary would be 4 bytes of each of its tokens, all of them read in every step.
type penalties struct {
	keep                            store
	capacity                        int
	presence, frequency, repetition *tensor.Tensor // f32 [rows]
	ids, counts                     *tensor.Tensor // i32 [rows, capacity]
	lengths                         *tensor.Tensor // i32 [rows]
}

func newPenalties(p *layer.Pass, rows, capacity int) *penalties {
	n := &penalties{capacity: capacity}
	n.presence, n.frequency = n.keep.zeros(p, cuda.F32, rows), n.keep.zeros(p, cuda.F32, rows)
	n.repetition, n.lengths = n.keep.zeros(p, cuda.F32, rows), n.keep.zeros(p, cuda.I32, rows)
	n.ids, n.counts = n.keep.zeros(p, cuda.I32, rows, capacity), n.keep.zeros(p, cuda.I32, rows, capacity)
	return n
}

func (n *penalties) assign(p *layer.Pass, rows []*Drawing) {
	count := len(rows)
	presence, frequency, repetition := make([]float32, count), make([]float32, count), make([]float32, count)
	lengths := make([]int32, count)
	for at, row := range rows {
		option := row.sampling
		presence[at], frequency[at] = float32(option.PresencePenalty), float32(option.FrequencyPenalty)
		repetition[at] = float32(cmp.Or(option.RepetitionPenalty, 1))
		if lengths[at] = int32(len(row.seen)); row.seen == nil {
			lengths[at] = -1
		}
	}
	writeFirst(p, n.presence, presence)
	writeFirst(p, n.frequency, frequency)
	writeFirst(p, n.repetition, repetition)
	writeFirst(p, n.lengths, lengths)
	for at, row := range rows {
		if len(row.seen) == 0 {
			continue
		}
		ids := slices.Sorted(maps.Keys(row.seen))
		counts := make([]int32, len(ids))
		for i, id := range ids {
			counts[i] = row.seen[id]
		}
		writeFirst(p, p.View(p.Narrow(n.ids, 0, at, 1), n.capacity), ids)
		writeFirst(p, p.View(p.Narrow(n.counts, 0, at, 1), n.capacity), counts)
	}
}

func (n *penalties) apply(p *layer.Pass, logits *tensor.Tensor) {
	rows := logits.Dim(0)
	first := func(of *tensor.Tensor) *tensor.Tensor { return p.Narrow(of, 0, 0, rows) }
	p.Check(tensor.PenalizeLogits(logits, first(n.presence), first(n.frequency), first(n.repetition), first(n.ids),
		first(n.counts), first(n.lengths)))
}

func (n *penalties) count(p *layer.Pass, ids *tensor.Tensor, vocab int) {
	rows := ids.Dim(0)
	first := func(of *tensor.Tensor) *tensor.Tensor { return p.Narrow(of, 0, 0, rows) }
	p.Check(tensor.CountTokens(ids, first(n.ids), first(n.counts), first(n.lengths), vocab))
}

// biases are pairs of an id and what is added to its logit, those of one row after those of another.
type biases struct {
	keep              store
	capacity          int
	offsets, ids, add *tensor.Tensor // i32 [rows + 1], i32 [capacity], f32 [capacity]
}

func newBiases(p *layer.Pass, rows, capacity int) *biases {
	b := &biases{capacity: capacity}
	b.offsets, b.ids = b.keep.zeros(p, cuda.I32, rows+1), b.keep.zeros(p, cuda.I32, capacity)
	b.add = b.keep.zeros(p, cuda.F32, capacity)
	return b
}

func (b *biases) assign(p *layer.Pass, rows []*Drawing) {
	offsets, ids, add := []int32{0}, []int32{}, []float32{}
	for _, row := range rows {
		for _, id := range row.sampling.biased() {
			ids, add = append(ids, id), append(add, float32(row.sampling.LogitBias[id]))
		}
		offsets = append(offsets, int32(len(ids)))
	}
	writeFirst(p, b.offsets, offsets)
	writeFirst(p, b.ids, ids)
	writeFirst(p, b.add, add)
}

func (b *biases) apply(p *layer.Pass, logits *tensor.Tensor) {
	p.Check(tensor.BiasLogits(logits, p.Narrow(b.offsets, 0, 0, logits.Dim(0)+1), b.ids, b.add))
}

// masks are one a row; those of rows that have none are not sent.
type masks struct{ words, of *tensor.Tensor } // i32 [rows, words], i32 [rows]

func (m *masks) assign(p *layer.Pass, rows []*Drawing) {
	of := make([]int32, len(rows))
	for at, row := range rows {
		if of[at] = int32(at); row.mask == nil {
			of[at] = -1
		}
	}
	writeFirst(p, m.of, of)
	m.renew(p, rows)
}

func (m *masks) renew(p *layer.Pass, rows []*Drawing) {
	for at, row := range rows {
		if row.mask != nil && p.Err() == nil {
			p.Check(tensor.Write(p.Narrow(m.words, 0, at, 1), row.mask))
		}
	}
}

func (m *masks) apply(p *layer.Pass, logits *tensor.Tensor) {
	p.Check(tensor.MaskLogits(logits, m.words, p.Narrow(m.of, 0, 0, logits.Dim(0))))
}

// maskWords is the words of 32 bits that a mask of the vocabulary has.
func maskWords(vocab int) int { return (vocab + 31) / 32 }

// powerOfTwo is at least n, so that what grows is made anew seldom.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n-1, 0))) }

package train

import (
	"fmt"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
)

// packed is a sequence of a shard's documents: its tokens start .. stop, the last of which is only a target.
type packed struct {
	start, stop int
}

// pack gives the sequences of `length` pairs, of a token and the one that it should say next, of a shard of documents.
//
// A document of n tokens gives n - 1 pairs. One of more pairs than a sequence has is cut into pieces of as many, where the
// last token of a piece, which is its last target, is the first of the next. Pieces fill sequences in their order; the
// first that does not fit into what is left of one begins another, and what is left stays empty. A sequence in which no
// target counts is left out. (Next fit, Johnson 1974, "Fast algorithms for bin packing".)
func pack(shard *formats.TokenShard, length int) ([]packed, error) {
	var sequences []packed
	var open packed                           // the sequence that is being filled
	used := 0                                 // pairs of it
	begin := 0                                // of the piece that is being read
	openTeaches, pieceTeaches := false, false // whether a target counts in them
	finish := func() {
		if openTeaches {
			sequences = append(sequences, open)
		}
		used, openTeaches = 0, false
	}
	err := shard.Documents(func(at int, ends, target bool) {
		pairs := at - begin
		pieceTeaches = pieceTeaches || target
		if !ends && pairs < length {
			return
		}
		if used+pairs > length {
			finish()
		}
		if used == 0 {
			open.start = begin
		}
		open.stop, used, openTeaches = at, used+pairs, openTeaches || pieceTeaches
		begin, pieceTeaches = at, false
		if ends {
			begin = at + 1
		}
	})
	finish()
	return sequences, err
}

// appendSequence appends a sequence of documents to a batch. What it leaves empty has the token 0, targets that do not
// count, and ends no document.
func (b *Batch) appendSequence(shard *formats.TokenShard, of packed, length int) error {
	ids := make([]int32, of.stop+1-of.start)
	if err := shard.Read(ids, of.start); err != nil {
		return err
	}
	bits, err := shard.Bits(of.start, of.stop+1)
	if err != nil {
		return err
	}
	used := 0
	for at, id := range ids[:len(ids)-1] {
		if bits.Ends[at] {
			continue
		}
		target, end := int32(model.IgnoreIndex), int32(0)
		if bits.Targets[at+1] {
			target = ids[at+1]
		}
		if bits.Ends[at+1] {
			end = 1
		}
		b.Inputs, b.Targets, b.DocumentEnds = append(b.Inputs, id), append(b.Targets, target), append(b.DocumentEnds, end)
		used++
	}
	if used == 0 || used > length {
		problem := fmt.Sprintf("was changed while it was in use: %d tokens of a sequence of %d", used, length)
		return &formats.Error{Path: shard.Path, Problem: problem}
	}
	b.DocumentEnds[len(b.DocumentEnds)-1] = 1 // of a piece that continues elsewhere, too
	for range length - used {
		b.Inputs, b.Targets = append(b.Inputs, 0), append(b.Targets, model.IgnoreIndex)
		b.DocumentEnds = append(b.DocumentEnds, 0)
	}
	return nil
}

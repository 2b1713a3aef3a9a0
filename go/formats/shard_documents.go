package formats

import "fmt"

// TokenBits are what a shard of documents says of some of its tokens, one after the other.
type TokenBits struct {
	Ends    []bool // the last token of its document
	Targets []bool // counts as a target; of a document's first token it says nothing
}

// Bits gives what a shard that HasDocuments says of the tokens start .. stop-1.
func (s *TokenShard) Bits(start, stop int) (TokenBits, error) {
	if start < 0 || start > stop || stop > s.Count || !s.HasDocuments {
		return TokenBits{}, fmt.Errorf("%s: no bits of tokens %d .. %d are among its %d", s.Path, start, stop, s.Count)
	}
	ends, err := s.bits(0, start, stop)
	if err != nil {
		return TokenBits{}, err
	}
	targets, err := s.bits(1, start, stop)
	return TokenBits{ends, targets}, err
}

func (s *TokenShard) bits(kind, start, stop int) ([]bool, error) {
	first := start / 8
	packed := make([]byte, (stop+7)/8-first)
	offset := shardHeaderBytes + int64(s.Count)*int64(s.Width) + int64(kind)*int64((s.Count+7)/8)
	if err := s.read(packed, offset+int64(first)); err != nil {
		return nil, err
	}
	bits := make([]bool, stop-start)
	for at := range bits {
		place := start + at - 8*first
		bits[at] = packed[place/8]>>(place%8)&1 == 1
	}
	return bits, nil
}

// Tokens of which the bits are in memory at a time.
const bitsAtOnce = 1 << 20

// Documents calls `visit` for all tokens of a shard that HasDocuments, in their order: with whether a token is the last of
// its document, and whether it is a target, which is one that counts and not the first of its document. It is an *Error
// when a document has one token, or the last has no end.
func (s *TokenShard) Documents(visit func(at int, ends, target bool)) error {
	begins := true
	for start := 0; start < s.Count; start += bitsAtOnce {
		bits, err := s.Bits(start, min(start+bitsAtOnce, s.Count))
		if err != nil {
			return err
		}
		for at, ends := range bits.Ends {
			if ends && begins {
				problem := fmt.Sprintf("the document at token %d has one token; it must have two", start+at)
				return &Error{Path: s.Path, Problem: problem}
			}
			visit(start+at, ends, bits.Targets[at] && !begins)
			begins = ends
		}
	}
	if !begins {
		return &Error{Path: s.Path, Problem: "its last token does not end a document"}
	}
	return nil
}

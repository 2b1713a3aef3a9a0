package tokenizer

import (
	"fmt"
	"slices"
)

// TextTokenizer turns text into token ids and back, whatever the file it comes from. Many goroutines may use one.
type TextTokenizer interface {
	// VocabSize is one more than the largest id.
	VocabSize() int

	// BeginID is the id that begins a text, -1 when there is none.
	BeginID() int32

	// EndIDs are the ids that end an answer, ascending: the end of the text, of a turn, of a message.
	EndIDs() []int32

	// AddsBegin says whether texts are meant to start with the begin id.
	AddsBegin() bool

	// OrdinaryID is some id of ordinary text.
	OrdinaryID() int32

	// Encode gives the ids of a text. Bytes that are not UTF-8 are read as the replacement character.
	Encode(text string, how Encoding) ([]int32, error)

	// Decode gives the text of ids; control tokens give nothing. An id that is no token is an error.
	Decode(ids []int32) (string, error)

	// Piece is the name of an id in the vocabulary; empty for one that has none.
	Piece(id int32) string
}

// Encoding says how a text becomes ids. The zero value is the text alone, as texts of strangers should be read.
type Encoding struct {
	// Begin puts the begin id first, where there is one.
	Begin bool

	// Special makes names of control tokens in the text, such as </s>, these tokens, as texts made by a chat template
	// need; otherwise they are text like any other.
	Special bool
}

// ends are what an id has to say about how texts begin and end. Files beside a tokenizer may know better than its own.
type ends struct {
	begin int32
	end   []int32 // ascending
	adds  bool
}

func newEnds(begin int32, end []int32, adds bool) ends {
	end = slices.Clone(end)
	slices.Sort(end)
	return ends{begin, slices.Compact(end), adds}
}

// BeginID is the id that begins a text, -1 when this tokenizer has none.
func (e *ends) BeginID() int32 { return e.begin }

// EndIDs are the ids that end an answer, ascending.
func (e *ends) EndIDs() []int32 { return slices.Clone(e.end) }

// AddsBegin says whether texts are meant to start with the begin id.
func (e *ends) AddsBegin() bool { return e.adds && e.begin >= 0 }

// opened puts the begin id before ids where it is asked for.
func (e *ends) opened(ids []int32, how Encoding) []int32 {
	if how.Begin && e.begin >= 0 {
		ids = slices.Insert(ids, 0, e.begin)
	}
	return ids
}

// checkIDs is an error for the first id that is none of `size` tokens.
func checkIDs(ids []int32, size int) error {
	for at, id := range ids {
		if id < 0 || int(id) >= size {
			return fmt.Errorf("ids[%d] is %d; it must be 0 to %d", at, id, size-1)
		}
	}
	return nil
}

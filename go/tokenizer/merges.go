package tokenizer

import (
	"container/heap"
	"fmt"

	"github.com/nncuda/nncuda/go/formats"
)

// mergeModel is a BPE whose merges are listed in their order. (Sennrich, Haddow, Birch 2016, algorithm 1)
type mergeModel struct {
	ids          map[string]int32
	merges       map[[2]int32]ranked
	unknown      string // the token of what the vocabulary lacks; empty for none, and such characters give nothing
	prefix       string // of what does not begin a word
	suffix       string // of what ends a word
	fuseUnknown  bool   // neighbours that the vocabulary lacks are one unknown token
	byteFallback bool   // <0x00> to <0xFF> spell what the vocabulary lacks
	wholeWords   bool   // a word that is in the vocabulary is taken as it is, whatever the merges say
}

// ranked is what two neighbours become, and how early.
type ranked struct {
	rank int
	id   int32
}

// addMerges lists the merges. Each must be of tokens and make a token.
func (m *mergeModel) addMerges(pairs [][2]string) error {
	m.merges = make(map[[2]int32]ranked, len(pairs))
	for rank, pair := range pairs {
		var key [2]int32
		for side, part := range pair {
			id, found := m.ids[part]
			if !found {
				return fmt.Errorf("merge %d has %s, which is no token", rank, formats.Shown(part))
			}
			key[side] = id
		}
		if len(pair[1]) < len(m.prefix) {
			return fmt.Errorf("merge %d has %s, which is shorter than the prefix of parts", rank, formats.Shown(pair[1]))
		}
		made := pair[0] + pair[1][len(m.prefix):]
		id, found := m.ids[made]
		if !found {
			return fmt.Errorf("merge %d makes %s, which is no token", rank, formats.Shown(made))
		}
		m.merges[key] = ranked{rank, id}
	}
	return nil
}

// merging is a token so far; those beside it are found by index, -1 at the ends. One that went into another is gone.
type merging struct {
	id           int32
	before, next int
	gone         bool
}

// mergeOffer is a token that two neighbours make together.
type mergeOffer struct {
	ranked
	at int
}

// mergeOffers is a heap: the earliest merge first, of equals the one further left.
type mergeOffers []mergeOffer

func (m mergeOffers) Len() int { return len(m) }
func (m mergeOffers) Less(i, j int) bool {
	return m[i].rank < m[j].rank || (m[i].rank == m[j].rank && m[i].at < m[j].at)
}
func (m mergeOffers) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *mergeOffers) Push(x any)   { *m = append(*m, x.(mergeOffer)) }
func (m *mergeOffers) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// encode adds the ids of a word.
func (m *mergeModel) encode(ids []int32, word string, _ *effort) ([]int32, error) {
	if id, found := m.ids[word]; found && m.wholeWords {
		return append(ids, id), nil
	}
	symbols, err := m.split(word)
	if err != nil {
		return nil, err
	}
	var waiting mergeOffers
	pair := func(at int) (ranked, bool) {
		if at < 0 || symbols[at].next < 0 {
			return ranked{}, false
		}
		made, found := m.merges[[2]int32{symbols[at].id, symbols[symbols[at].next].id}]
		return made, found
	}
	for at := range symbols {
		if made, found := pair(at); found {
			waiting = append(waiting, mergeOffer{made, at})
		}
	}
	heap.Init(&waiting)
	for waiting.Len() > 0 {
		top := heap.Pop(&waiting).(mergeOffer)
		if symbols[top.at].gone {
			continue
		}
		if made, found := pair(top.at); !found || made.id != top.id {
			continue // one of the two was merged with another meanwhile
		}
		left := &symbols[top.at]
		right := &symbols[left.next]
		left.id, left.next, right.gone = top.id, right.next, true
		if right.next >= 0 {
			symbols[right.next].before = top.at
		}
		for _, at := range []int{left.before, top.at} {
			if made, found := pair(at); found {
				heap.Push(&waiting, mergeOffer{made, at})
			}
		}
	}
	for _, symbol := range symbols {
		if !symbol.gone {
			ids = append(ids, symbol.id)
		}
	}
	return ids, nil
}

// split makes tokens of the characters of a word.
func (m *mergeModel) split(word string) ([]merging, error) {
	symbols := make([]merging, 0, len(word))
	add := func(id int32) {
		symbols = append(symbols, merging{id: id, before: len(symbols) - 1, next: len(symbols) + 1})
	}
	unknown := false // one is seen and not yet added
	unknownID, hasUnknown := m.ids[m.unknown]
	for start := 0; start < len(word); {
		end := start + characterWidth(word, start)
		name := word[start:end]
		if start > 0 {
			name = m.prefix + name
		}
		if end == len(word) {
			name += m.suffix
		}
		start = end
		if id, found := m.ids[name]; found {
			if unknown {
				add(unknownID)
				unknown = false
			}
			add(id)
			continue
		}
		if m.byteFallback {
			if spelled, ok := spellPieces(m.ids, name); ok {
				for _, id := range spelled {
					add(id)
				}
				continue
			}
		}
		if m.unknown == "" {
			continue
		}
		if !hasUnknown {
			return nil, fmt.Errorf("its unknown token %s is no token", formats.Shown(m.unknown))
		}
		if unknown && !m.fuseUnknown {
			add(unknownID)
		}
		unknown = true
	}
	if unknown {
		add(unknownID)
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = -1
	}
	return symbols, nil
}

// spellPieces gives the pieces of a text's bytes, if there are all of them.
func spellPieces(ids map[string]int32, text string) ([]int32, bool) {
	spelled := make([]int32, len(text))
	for at := range len(text) {
		id, found := ids[bytePieceName(text[at])]
		if !found {
			return nil, false
		}
		spelled[at] = id
	}
	return spelled, true
}

// bytePieceName is the name of the piece of a byte, <0x00> to <0xFF>.
func bytePieceName(value byte) string {
	const digits = "0123456789ABCDEF"
	return "<0x" + string([]byte{digits[value>>4], digits[value&15]}) + ">"
}

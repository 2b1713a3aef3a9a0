package tokenizer

import (
	"errors"
	"math"
	"slices"
)

// listedUnigram is a unigram model whose pieces stand in a list with their scores, as a tokenizer.json has it. It adds
// them in float64, takes the first of equals, and joins neighbours that no piece covers. (Kudo 2018, "Subword
// regularization"; Viterbi 1967)
type listedUnigram struct {
	names        []string
	scores       []float64
	ids          map[string]int32
	trie         *trie
	unknown      int32 // -1 for none
	lowest       float64
	byteFallback bool
}

var errUnknown = errors.New("the text has what no piece covers, and there is no unknown piece")

func newListedUnigram(names []string, scores []float64, unknown int32, byteFallback bool) *listedUnigram {
	made := &listedUnigram{
		names: names, scores: scores, ids: make(map[string]int32, len(names)), trie: newTrie(), unknown: unknown,
		lowest: math.Inf(1), byteFallback: byteFallback,
	}
	for id, name := range names {
		made.ids[name] = int32(id)
		made.lowest = min(made.lowest, scores[id])
		if name != "" {
			made.trie.add(name, id)
		}
	}
	return made
}

// listedWay is the best way to a place in the text.
type listedWay struct {
	id    int32
	start int
	score float64
}

// encode adds the ids of a text.
func (u *listedUnigram) encode(ids []int32, text string, left *effort) ([]int32, error) {
	best := make([]listedWay, len(text)+1)
	for at := range best {
		best[at].start = -1
	}
	best[0].start = 0
	offer := func(end, start int, id int32, score float64) {
		if total := score + best[start].score; best[end].start < 0 || total > best[end].score {
			best[end] = listedWay{id, start, total}
		}
	}
	for start := 0; start < len(text); {
		width := characterWidth(text, start)
		single := false
		for node, end := int32(0), start; end < len(text); {
			if err := left.step(1); err != nil {
				return nil, err
			}
			if node = u.trie.step(node, text[end]); node < 0 {
				break
			}
			end++
			if id := u.trie.nodes[node].id; id >= 0 {
				offer(end, start, id, u.scores[id])
				single = single || end-start == width
			}
		}
		if !single {
			if u.unknown < 0 {
				return nil, errUnknown
			}
			offer(start+width, start, u.unknown, u.lowest-unknownPenalty)
		}
		start += width
	}
	var parts []found
	joins := false
	for end := len(text); end > 0; end = best[end].start {
		isUnknown := best[end].id == u.unknown
		if isUnknown && joins {
			parts[len(parts)-1].start = best[end].start
		} else {
			parts = append(parts, found{start: best[end].start, end: end})
		}
		joins = isUnknown
	}
	for _, part := range slices.Backward(parts) {
		var err error
		if ids, err = u.add(ids, text[part.start:part.end]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// add gives a part its id, or those of its bytes, or the unknown one.
func (u *listedUnigram) add(ids []int32, part string) ([]int32, error) {
	if id, found := u.ids[part]; found {
		return append(ids, id), nil
	}
	if u.byteFallback {
		if spelled, ok := spellPieces(u.ids, part); ok {
			return append(ids, spelled...), nil
		}
	}
	if u.unknown < 0 {
		return nil, errUnknown
	}
	return append(ids, u.unknown), nil
}

package tokenizer

import (
	"math"
	"slices"
)

// What a character that no piece covers costs beyond the rarest piece.
const unknownPenalty = 10

// What a user-defined piece gains for each byte after its first, so that it is taken rather than what it consists of:
// scores of other pieces are logarithms of probabilities, thus negative.
const userDefinedGain = 0.1

// unigram cuts text into the most likely run of pieces. (Kudo 2018, "Subword regularization"; Viterbi 1967)
type unigram struct {
	pieces  []piece
	trie    *trie
	unknown int32
	lowest  float32 // score
}

func newUnigram(model *modelFile, unknown int) *unigram {
	made := &unigram{pieces: model.pieces, trie: newTrie(), unknown: int32(unknown), lowest: math.MaxFloat32}
	for id, piece := range model.pieces {
		if piece.kind == normalPiece {
			made.lowest = min(made.lowest, piece.score)
		}
		if piece.isText() {
			made.trie.add(piece.text, id)
		}
	}
	return made
}

// reached is the best way to a place in the text: the piece that ends there, where it begins, the sum of scores.
type reached struct {
	id    int32
	start int
	score float32
}

// encode gives the pieces of normalised text.
func (u *unigram) encode(text string) []span {
	best := make([]reached, len(text)+1)
	for at := range best {
		best[at].start = -1
	}
	offer := func(end, start int, id int32, score float32) {
		// In f32, as SentencePiece adds them: which of several equally good ways is taken hangs on it.
		if total := score + best[start].score; best[end].start < 0 || total > best[end].score {
			best[end] = reached{id, start, total}
		}
	}
	unknownScore := u.lowest - unknownPenalty
	for start := 0; start < len(text); {
		width := characterWidth(text, start)
		single := false
		for node, end := int32(0), start; end < len(text); {
			if node = u.trie.step(node, text[end]); node < 0 {
				break
			}
			end++
			id := u.trie.nodes[node].id
			if id < 0 || u.pieces[id].kind == unusedPiece {
				continue
			}
			score := u.pieces[id].score
			if u.pieces[id].kind == userDefinedPiece {
				score = float32(float64(end-start-1) * userDefinedGain)
			}
			offer(end, start, id, score)
			single = single || end-start == width
		}
		if !single {
			offer(start+width, start, u.unknown, unknownScore)
		}
		start += width
	}
	var spans []span
	for end := len(text); end > 0; {
		spans = append(spans, span{text[best[end].start:end], best[end].id})
		end = best[end].start
	}
	slices.Reverse(spans)
	return spans
}

// characterWidth is the bytes of the character at a place, by its first byte, within the text.
func characterWidth(text string, at int) int {
	width := 1
	switch first := text[at]; {
	case first >= 0xF0:
		width = 4
	case first >= 0xE0:
		width = 3
	case first >= 0xC0:
		width = 2
	}
	return min(width, len(text)-at)
}

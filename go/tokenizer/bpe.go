package tokenizer

import "container/heap"

// bpe merges neighbours, the pair with the best score first. (Sennrich, Haddow, Birch 2016, algorithm 1)
type bpe struct {
	pieces   []piece
	ids      map[string]int32 // of pieces of text
	verbatim *trie            // user-defined pieces, which nothing is merged with
	unknown  int32
}

func newBPE(model *modelFile, unknown int, verbatim *trie) *bpe {
	made := &bpe{pieces: model.pieces, ids: make(map[string]int32), verbatim: verbatim, unknown: int32(unknown)}
	for id, piece := range model.pieces {
		if piece.isText() {
			made.ids[piece.text] = int32(id)
		}
	}
	return made
}

// symbol is a run of text that is one piece so far; those beside it are found by index, -1 at the ends.
type symbol struct {
	text         string
	before, next int
	frozen       bool
}

// merge is two neighbours that make a piece together.
type merge struct {
	left, right int
	score       float32
	size        int
}

// merges is a heap: the best score first, of equals the one further left.
type merges []merge

func (m merges) Len() int { return len(m) }
func (m merges) Less(i, j int) bool {
	return m[i].score > m[j].score || (m[i].score == m[j].score && m[i].left < m[j].left)
}
func (m merges) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merges) Push(x any)   { *m = append(*m, x.(merge)) }
func (m *merges) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// encode gives the pieces of normalised text.
func (b *bpe) encode(text string) []span {
	symbols := b.split(text)
	waiting := &merges{}
	unmerged := make(map[string][2]string) // the halves of pieces that are out of use
	offer := func(left, right int) {
		if left < 0 || right < 0 || symbols[left].frozen || symbols[right].frozen {
			return
		}
		joined := symbols[left].text + symbols[right].text
		id, found := b.ids[joined]
		if !found {
			return
		}
		heap.Push(waiting, merge{left, right, b.pieces[id].score, len(joined)})
		if b.pieces[id].kind == unusedPiece {
			unmerged[joined] = [2]string{symbols[left].text, symbols[right].text}
		}
	}
	for at := 1; at < len(symbols); at++ {
		offer(at-1, at)
	}
	for waiting.Len() > 0 {
		top := heap.Pop(waiting).(merge)
		left, right := &symbols[top.left], &symbols[top.right]
		if left.text == "" || right.text == "" || len(left.text)+len(right.text) != top.size {
			continue // one of them was merged with another meanwhile
		}
		left.text += right.text
		left.next = right.next
		if right.next >= 0 {
			symbols[right.next].before = top.left
		}
		right.text = ""
		offer(left.before, top.left)
		offer(top.left, left.next)
	}
	var spans []span
	for at := 0; at >= 0 && at < len(symbols); at = symbols[at].next {
		spans = b.emit(spans, symbols[at].text, unmerged)
	}
	return spans
}

func (b *bpe) split(text string) []symbol {
	var symbols []symbol
	for start := 0; start < len(text); {
		width := b.verbatim.longest(text[start:])
		frozen := width > 0
		if !frozen {
			width = characterWidth(text, start)
		}
		at := len(symbols)
		symbols = append(symbols, symbol{text[start : start+width], at - 1, at + 1, frozen})
		start += width
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = -1
	}
	return symbols
}

// emit adds a piece or, when it is out of use, those that it was merged from. A character whose piece is out of use is
// unknown.
func (b *bpe) emit(spans []span, text string, unmerged map[string][2]string) []span {
	id, found := b.ids[text]
	if found && b.pieces[id].kind != unusedPiece {
		return append(spans, span{text, id})
	}
	if halves, known := unmerged[text]; known {
		return b.emit(b.emit(spans, halves[0], unmerged), halves[1], unmerged)
	}
	return append(spans, span{text, b.unknown})
}

package tokenizer

import "slices"

// trie finds the pieces that a text begins with.
type trie struct{ nodes []trieNode }

type trieNode struct {
	labels   []byte // ascending
	children []int32
	id       int32 // of the piece that ends here, -1 for none
}

func newTrie() *trie { return &trie{nodes: []trieNode{{id: -1}}} }

// add gives a text an id.
func (t *trie) add(text string, id int) {
	at := int32(0)
	for _, label := range []byte(text) {
		place, found := slices.BinarySearch(t.nodes[at].labels, label)
		if !found {
			t.nodes[at].labels = slices.Insert(t.nodes[at].labels, place, label)
			t.nodes[at].children = slices.Insert(t.nodes[at].children, place, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{id: -1})
		}
		at = t.nodes[at].children[place]
	}
	t.nodes[at].id = int32(id)
}

// step goes from a node along a byte; -1 where nothing continues.
func (t *trie) step(at int32, label byte) int32 {
	place, found := slices.BinarySearch(t.nodes[at].labels, label)
	if !found {
		return -1
	}
	return t.nodes[at].children[place]
}

// longest is the length of the longest text of the trie that `text` begins with; 0 when there is none.
func (t *trie) longest(text string) int {
	_, length, _ := t.find(text)
	return length
}

// find is the longest text of the trie that `text` begins with: its id and length, 0 when there is none; and how many bytes
// it looked at.
func (t *trie) find(text string) (id int32, length, looked int) {
	at := int32(0)
	for position := range len(text) {
		looked++
		if at = t.step(at, text[position]); at < 0 {
			break
		}
		if t.nodes[at].id >= 0 {
			id, length = t.nodes[at].id, position+1
		}
	}
	return id, length, looked
}

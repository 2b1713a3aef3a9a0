package tokenizer

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// Llama 3's expression, as published with the model.
const llama3Expression = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
	`|\s*[\r\n]+|\s+(?!\S)|\s+`

// The expression of o200k, gpt-oss' tokenizer, as published with it.
const o200kExpression = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// namedCut is how text is cut before merging, by a name that GGUF files have for it: an expression after the other, and
// whether a word that is in the vocabulary is taken whole, whatever the merges say.
type namedCut struct {
	name        string
	expressions []string
	wholeWords  bool
}

var namedCuts = []namedCut{
	{"gpt-2", []string{gpt2Expression}, false},
	{"llama-bpe", []string{llama3Expression}, true},
	{"llama3", []string{llama3Expression}, true},
	{"llama-v3", []string{llama3Expression}, true},
	{"smollm", []string{`\p{N}`, gpt2Expression}, false}, // GPT-2's after a cut at every digit
	{"gpt-4o", []string{o200kExpression}, false},
}

// The names of Llama 3's cut.
var llama3Cuts = []string{"llama-bpe", "llama3", "llama-v3"}

// rules gives how byte-level BPE cuts text, what it merges, and whether it puts a space before a text.
func (g ggufTokens) rules(name string) (cut namedCut, merges [][2]string, prefixSpace bool, err error) {
	at := slices.IndexFunc(namedCuts, func(cut namedCut) bool { return cut.name == name })
	if at < 0 {
		return cut, nil, false, fmt.Errorf("cuts text as %s; this program knows gpt-2, llama-bpe, llama3, llama-v3, smollm, gpt-4o",
			formats.Shown(name))
	}
	if merges, err = g.merges(); err != nil {
		return cut, nil, false, err
	}
	prefixSpace, err = g.truth("tokenizer.ggml.add_space_prefix", false)
	return namedCuts[at], merges, prefixSpace, err
}

// byteLevel makes a byte-level BPE of the metadata: token i has id i, control tokens and user-defined ones are those that
// no merging makes.
func (g ggufTokens) byteLevel(tokens []string, kinds []int64, name string, ends ends) (TextTokenizer, error) {
	cut, merges, prefixSpace, err := g.rules(name)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]int32, len(tokens))
	for id, token := range tokens {
		ids[token] = int32(id)
	}
	made := &JSONTokenizer{ends: ends, join: joinByteCharacters, first: -1}
	if err := made.take(ids); err != nil {
		return nil, err
	}
	model := &mergeModel{ids: ids, wholeWords: cut.wholeWords}
	made.model = model
	if err := model.addMerges(merges); err != nil {
		return nil, fmt.Errorf("is not a tokenizer of byte-level BPE: %w", err)
	}
	var steps []cutter
	for _, expression := range cut.expressions {
		compiled, err := newPattern(expression)
		if err != nil {
			return nil, err
		}
		steps = append(steps, cutBy(compiled, "Isolated", false))
	}
	made.cut = cutInTurn(append(steps, byteLevel(prefixSpace, false)))
	var added []addedToken
	for id, kind := range kinds {
		if kind == controlPiece || kind == userDefinedPiece {
			added = append(added, addedToken{ID: int32(id), Content: tokens[id], Special: kind == controlPiece})
		}
	}
	if made.added, err = newAddedTokens(added, nil); err != nil {
		return nil, err
	}
	finished, err := made.finish()
	if err != nil {
		return nil, err
	}
	return finished, nil
}

func (g ggufTokens) merges() ([][2]string, error) {
	lines, err := g.strings("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	merges := make([][2]string, len(lines))
	for at, line := range lines {
		if merges[at], err = mergeOf(at, line); err != nil {
			return nil, err
		}
	}
	return merges, nil
}

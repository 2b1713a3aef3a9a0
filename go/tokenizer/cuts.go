package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/nncuda/nncuda/go/formats"
)

// What the names stand for is what the makers of the models published, in the tokenizer.json of each, with its normaliser,
// since the model learned from normalised text. The names are those that llama.cpp's converter writes; llama.cpp normalises
// nothing, and cuts by expressions of its own where its library lacks a class of characters.
const (
	// Of cl100k, OpenAI's: Llama 3's as well. Qwen's is the same with every digit for itself.
	cl100kExpression = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
		`|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Expression = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
		`|\s*[\r\n]+|\s+(?!\S)|\s+`
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

	// Of o200k, OpenAI's too, which cuts before capitals. Mistral's Tekken is the same with every digit for itself, and without
	// contractions.
	o200kExpression = capitalised + contractions + `?|` + capitals + contractions + `?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenExpression = capitalised + `|` + capitals +
		`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	capitalised = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	capitals    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
)

// namedCut is how text is cut before merging, by the names that GGUF files have for it.
type namedCut struct {
	names       []string
	expressions []string // each cuts what the one before left
	wholeWords  bool     // a word that is in the vocabulary is taken whole, whatever the merges say
	nfc         bool     // text is normalised first, to NFC
	begins      bool     // texts begin with the begin token where a file does not say whether they do
}

var namedCuts = []namedCut{
	{names: []string{"gpt-2"}, expressions: []string{gpt2Expression}},
	{
		names: []string{"llama-bpe", "llama3", "llama-v3"}, expressions: []string{cl100kExpression},
		wholeWords: true, begins: true,
	},
	// The same without whole words: cl100k's tokenizer, which DBRX and Phi-4 have; and Llama 3's as the first models made from
	// it, such as Smaug, have it.
	{names: []string{"dbrx", "smaug-bpe"}, expressions: []string{cl100kExpression}},
	// GPT-2's after a cut at every digit: SmolLM's, and StarCoder's, which Refact and Granite have.
	{names: []string{"smollm", "refact"}, expressions: []string{`\p{N}`, gpt2Expression}},
	{names: []string{"gpt-4o"}, expressions: []string{o200kExpression}}, // gpt-oss, Phi-4-mini
	// Mistral Nemo, Ministral, Mistral Small
	{names: []string{"tekken"}, expressions: []string{tekkenExpression}, wholeWords: true, begins: true},
	// Qwen1.5 to Qwen3; what DeepSeek made from Qwen2.5 has other control tokens.
	{names: []string{"qwen2", "deepseek-r1-qwen"}, expressions: []string{qwen2Expression}, nfc: true},
	// GPT-NeoX's, which OLMo 1 and OLMoE have
	{names: []string{"olmo"}, expressions: []string{gpt2Expression}, nfc: true},
}

// cutNamed is the cut of a file that names it so; an error when there is none, or when the name, empty for none, says
// nothing.
func cutNamed(name string) (namedCut, error) {
	var known []string
	for _, cut := range namedCuts {
		if slices.Contains(cut.names, name) {
			return cut, nil
		}
		known = append(known, cut.names...)
	}
	list := strings.Join(known, ", ")
	if name == "" || name == "default" {
		said := "missing"
		if name != "" {
			said = formats.Shown(name)
		}
		return namedCut{}, fmt.Errorf("does not name how it cuts text (tokenizer.ggml.pre is %s): convert the model anew, or set it "+
			"to one of %s, as gguf_new_metadata.py --pre-tokenizer of llama.cpp does", said, list)
	}
	return namedCut{}, fmt.Errorf("cuts text as %s; this program knows %s", formats.Shown(name), list)
}

// rules gives what byte-level BPE merges, and whether it puts a space before a text.
func (g ggufTokens) rules() (merges [][2]string, prefixSpace bool, err error) {
	if merges, err = g.merges(); err != nil {
		return nil, false, err
	}
	prefixSpace, err = g.truth("tokenizer.ggml.add_space_prefix", false)
	return merges, prefixSpace, err
}

// byteLevel makes a byte-level BPE of the metadata: token i has id i, control tokens and user-defined ones are those that
// no merging makes.
func (g ggufTokens) byteLevel(tokens []string, kinds []int64, cut namedCut, ends ends) (TextTokenizer, error) {
	merges, prefixSpace, err := g.rules()
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
	if cut.nfc {
		made.normalize = normalForm(norm.NFC)
	}
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

package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/nncuda/nncuda/go/formats"
)

// JSONTokenizer is a tokenizer of a Hugging Face folder, from its tokenizer.json, or one made of the same parts:
// BPE whose merges are listed, on bytes or on characters, or unigram; with normalizer, pre-tokenizer and decoder.
// (Sennrich, Haddow, Birch 2016; Kudo 2018; https://huggingface.co/docs/tokenizers/pipeline)
type JSONTokenizer struct {
	ends
	added     *addedTokens
	normalize rewriter // nil for none
	cut       cutter   // nil for none
	join      joiner
	model     interface {
		encode(ids []int32, word string, left *effort) ([]int32, error)
	}
	ids      map[string]int32
	names    map[int32]string
	spoken   map[int32]string // names that decoding has for tokens that are looked for in normalised text
	special  map[string]bool  // names that decoding leaves out
	size     int
	first    int32
	ordinary int32
}

var _ TextTokenizer = (*JSONTokenizer)(nil)

// What every tokenizer must be able to encode.
const probe = "The quick brown fox jumps over the lazy dog. ÄÖÜ, 0123456789, 中文\n"

// OpenJSON reads a tokenizer.json. The error is a *formats.Error.
func OpenJSON(path string) (*JSONTokenizer, error) {
	content, err := formats.ReadRegular(path, formats.TokenizerJSONBytes)
	if err != nil {
		return nil, err
	}
	made, err := NewJSON(content)
	if err != nil {
		problem := fmt.Sprintf("is not a tokenizer that this program can use (%v)", err)
		return nil, &formats.Error{Path: path, Problem: problem, Cause: err}
	}
	return made, nil
}

// finish is the tokenizer with what follows from its parts.
func (t *JSONTokenizer) finish() (*JSONTokenizer, error) {
	t.special, t.spoken = make(map[string]bool), make(map[int32]string)
	for at, token := range t.added.tokens {
		if token.Normalized {
			t.spoken[token.ID] = t.added.contents[at]
		}
		t.ids[token.Content] = token.ID
		t.names[token.ID] = token.Content
		t.special[token.Content] = t.special[token.Content] || token.Special
	}
	for id := range t.names {
		t.size = max(t.size, int(id)+1)
	}
	if t.size == 0 {
		return nil, fmt.Errorf("it has no tokens")
	}
	if _, err := t.Encode(probe, Encoding{}); err != nil {
		return nil, err
	}
	t.ordinary = t.someOrdinary()
	return t, nil
}

func (t *JSONTokenizer) someOrdinary() int32 {
	for _, name := range []string{"a", "e", "▁a", "Ġa"} {
		if id, found := t.ids[name]; found {
			return id
		}
	}
	notWord := func(letter rune) bool { return !unicode.IsLetter(letter) && !unicode.IsNumber(letter) }
	for id := range int32(t.size) {
		if text, err := t.Decode([]int32{id}); err == nil && text != "" && !strings.ContainsFunc(text, notWord) {
			return id
		}
	}
	return 0
}

// VocabSize is one more than the largest id.
func (t *JSONTokenizer) VocabSize() int { return t.size }

// OrdinaryID is some id that stands for text: that of a letter where there is one.
func (t *JSONTokenizer) OrdinaryID() int32 { return t.ordinary }

// FirstID is what the file lets it put before a text, -1 for nothing.
func (t *JSONTokenizer) FirstID() int32 { return t.first }

// IDOf is the id of a name in the vocabulary.
func (t *JSONTokenizer) IDOf(name string) (int32, bool) {
	id, found := t.ids[name]
	return id, found
}

// Piece is the name of an id in the vocabulary; empty for one that has none.
func (t *JSONTokenizer) Piece(id int32) string { return t.names[id] }

// Encode gives the ids of a text. It is an error when the rules of the file take too much of a text of its length.
func (t *JSONTokenizer) Encode(text string, how Encoding) ([]int32, error) {
	text = validText(text)
	ids, err := t.encodeMarked(text, how.Special, newEffort(len(text)))
	if err != nil {
		return nil, fmt.Errorf("cannot encode the text: %w", err)
	}
	return t.opened(ids, how), nil
}

// encodeMarked gives the ids of added tokens and of the text between them.
func (t *JSONTokenizer) encodeMarked(text string, special bool, left *effort) ([]int32, error) {
	var ids []int32
	parts, err := t.added.cut(text, t.added.raw, special, left)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if part.id >= 0 {
			ids = append(ids, part.id)
			continue
		}
		if t.normalize != nil {
			if part.text, err = t.normalize(part.text, left); err != nil {
				return nil, err
			}
		}
		inner, err := t.added.cut(part.text, t.added.normalized, special, left)
		if err != nil {
			return nil, err
		}
		for _, one := range inner {
			if one.id >= 0 {
				ids = append(ids, one.id)
				continue
			}
			if ids, err = t.encode(ids, segment{one.text, part.start == 0 && one.start == 0}, left); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// encode adds the ids of a text without added tokens.
func (t *JSONTokenizer) encode(ids []int32, text segment, left *effort) ([]int32, error) {
	parts := []segment{text}
	var err error
	if t.cut != nil {
		if parts, err = t.cut(text, left); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		if ids, err = t.model.encode(ids, part.text, left); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Decode gives the text of ids; control tokens give nothing.
func (t *JSONTokenizer) Decode(ids []int32) (string, error) {
	if err := checkIDs(ids, t.size); err != nil {
		return "", err
	}
	names := make([]string, 0, len(ids))
	bytes := 0
	for _, id := range ids {
		name, found := t.spoken[id]
		if !found {
			name, found = t.names[id]
		}
		if found && !t.special[name] {
			names = append(names, name)
			bytes += len(name)
		}
	}
	names, err := t.join(names, newEffort(bytes))
	if err != nil {
		return "", fmt.Errorf("cannot decode the ids: %w", err)
	}
	return strings.Join(names, ""), nil
}

package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
)

// Metadata are the entries of a GGUF file by their key, as a reader of such files gives them. Each getter says with `ok`
// whether there is an entry of this key that is of its type.
type Metadata interface {
	// Has says whether there is an entry of this key, of any type.
	Has(key string) bool

	Text(key string) (value string, ok bool)
	Bool(key string) (value, ok bool)

	// Whole is a number of any integer type that 64 bits with a sign hold.
	Whole(key string) (value int64, ok bool)

	// Texts is an array of strings, as the file has them: they need not be UTF-8.
	Texts(key string) (values []string, ok bool)

	// Wholes is an array of numbers of an integer type.
	Wholes(key string) (values []int64, ok bool)

	// Floats is an array of numbers of a floating-point type.
	Floats(key string) (values []float64, ok bool)

	// Shown is the value as messages show it; None for none.
	Shown(key string) string
}

// Control tokens that end an answer wherever they are, since many files name only one end.
var endPieces = []string{
	"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
}

// FromGGUF gives the tokenizer that the GGUF file at `path` has in its metadata, nil when it has none.
// `tokenizer.ggml.model` is "llama" (SentencePiece, merging by score), "t5" (SentencePiece, unigram) or "gpt2"
// (byte-level BPE). The error is a *formats.Error.
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer")
func FromGGUF(metadata Metadata, path string) (TextTokenizer, error) {
	made, err := fromGGUF(ggufTokens{metadata})
	if err != nil {
		return nil, formats.Wrap(path, err)
	}
	return made, nil
}

func fromGGUF(given ggufTokens) (TextTokenizer, error) {
	model, known := given.Text("tokenizer.ggml.model")
	switch {
	case !given.Has("tokenizer.ggml.model") || model == "none":
		return nil, nil
	case !known || !slices.Contains([]string{"llama", "t5", "gpt2"}, model):
		return nil, fmt.Errorf("tokenizer.ggml.model is %s; this program has the tokenizers 'llama', 't5' and 'gpt2'",
			given.Shown("tokenizer.ggml.model"))
	}
	tokens, kinds, err := given.pieces()
	if err != nil {
		return nil, err
	}
	var cut namedCut
	if model == "gpt2" {
		if cut, err = given.cut(); err != nil {
			return nil, err
		}
	}
	ends, err := given.ends(tokens, kinds, model == "llama" || cut.begins)
	if err != nil {
		return nil, err
	}
	if model == "gpt2" {
		return given.byteLevel(tokens, kinds, cut, ends)
	}
	kind := bpeModel
	if model == "t5" {
		kind = unigramModel
	}
	return given.pieceModel(tokens, kinds, kind, ends)
}

// ggufTokens are the metadata of a tokenizer, all of it checked.
type ggufTokens struct{ Metadata }

func (g ggufTokens) text(key, otherwise string) (string, error) {
	value, ok := g.Text(key)
	switch {
	case !g.Has(key):
		return otherwise, nil
	case !ok:
		return "", fmt.Errorf("%s is %s; it must be a string", key, g.Shown(key))
	}
	return value, nil
}

// cut is how byte-level BPE cuts text.
func (g ggufTokens) cut() (namedCut, error) {
	unnamed := ""
	// The converter of bitnet.cpp does not name the pre-tokenizer of its models, which have Llama 3's tokenizer.
	if architecture, _ := g.Text(gguf.ArchitectureKey); architecture == "bitnet-25" || architecture == "bitnet-b1.58" {
		unnamed = "llama-bpe"
	}
	name, err := g.text("tokenizer.ggml.pre", unnamed)
	if err != nil {
		return namedCut{}, err
	}
	return cutNamed(name)
}

func (g ggufTokens) truth(key string, otherwise bool) (bool, error) {
	value, ok := g.Bool(key)
	switch {
	case !g.Has(key):
		return otherwise, nil
	case !ok:
		return false, fmt.Errorf("%s is %s; it must be true or false", key, g.Shown(key))
	}
	return value, nil
}

// id is the id of a token; -1 when the file names none.
func (g ggufTokens) id(key string, size int) (int32, error) {
	value, ok := g.Whole(key)
	switch {
	case !g.Has(key):
		return -1, nil
	case !ok || value < 0 || value >= int64(size):
		return 0, fmt.Errorf("%s is %s; it must be the id of a token, 0 to %d", key, g.Shown(key), size-1)
	}
	return int32(value), nil
}

func (g ggufTokens) ends(tokens []string, kinds []int64, usuallyBegins bool) (ends, error) {
	var end []int32
	for _, name := range []string{"eos", "eot", "eom"} {
		id, err := g.id("tokenizer.ggml."+name+"_token_id", len(tokens))
		if err != nil {
			return ends{}, err
		}
		if id >= 0 {
			end = append(end, id)
		}
	}
	for id, token := range tokens {
		if kinds[id] == controlPiece && slices.Contains(endPieces, token) {
			end = append(end, int32(id))
		}
	}
	begin, err := g.id("tokenizer.ggml.bos_token_id", len(tokens))
	if err != nil {
		return ends{}, err
	}
	adds, err := g.truth("tokenizer.ggml.add_bos_token", usuallyBegins)
	return newEnds(begin, end, adds), err
}

func (g ggufTokens) strings(key string) ([]string, error) {
	values, ok := g.Texts(key)
	switch {
	case !g.Has(key):
		return nil, fmt.Errorf("%s is missing", key)
	case !ok:
		return nil, fmt.Errorf("%s is no array of strings", key)
	}
	for at, value := range values {
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("string %d of %s is not UTF-8", at, key)
		}
	}
	return values, nil
}

// pieces are the tokens by id, and the kinds of them.
func (g ggufTokens) pieces() (tokens []string, kinds []int64, err error) {
	if tokens, err = g.tokens(); err != nil {
		return nil, nil, err
	}
	kinds, err = g.kinds(len(tokens))
	return tokens, kinds, err
}

// tokens are the names by id, none of them empty.
func (g ggufTokens) tokens() ([]string, error) {
	tokens, err := g.strings("tokenizer.ggml.tokens")
	switch at := slices.Index(tokens, ""); {
	case err != nil:
		return nil, err
	case len(tokens) == 0:
		return nil, fmt.Errorf("tokenizer.ggml.tokens is empty")
	case len(tokens) > math.MaxInt32:
		return nil, fmt.Errorf("tokenizer.ggml.tokens has %d entries; it may have %d", len(tokens), math.MaxInt32)
	case at >= 0:
		return nil, fmt.Errorf("token %d of tokenizer.ggml.tokens is empty", at)
	}
	seen := make(map[string]bool, len(tokens))
	for _, token := range tokens {
		seen[token] = true
	}
	if len(seen) != len(tokens) {
		return nil, fmt.Errorf("has duplicate tokens (%d)", len(tokens)-len(seen))
	}
	return tokens, nil
}

// kinds are those of the tokens, as in SentencePiece's files.
func (g ggufTokens) kinds(size int) ([]int64, error) {
	const key = "tokenizer.ggml.token_type"
	kinds, ok := g.Wholes(key)
	if err := g.checkNumbers(key, ok, len(kinds), size); err != nil {
		return nil, err
	}
	for token, kind := range kinds {
		if kind < normalPiece || kind > bytePiece {
			return nil, fmt.Errorf("%s has %d for token %d; it is 1 to %d", key, kind, token, bytePiece)
		}
	}
	return kinds, nil
}

func (g ggufTokens) checkNumbers(key string, ok bool, count, size int) error {
	switch {
	case !g.Has(key):
		return fmt.Errorf("%s is missing; it must be an array of numbers, one a token", key)
	case !ok:
		return fmt.Errorf("%s is of another type; it must be an array of numbers, one a token", key)
	case count != size:
		return fmt.Errorf("%s has %d entries, tokenizer.ggml.tokens %d", key, count, size)
	}
	return nil
}

// pieceModel is a SentencePiece model of the tokens.
func (g ggufTokens) pieceModel(tokens []string, kinds []int64, kind int, ends ends) (TextTokenizer, error) {
	scores, ok := g.Floats("tokenizer.ggml.scores")
	if err := g.checkNumbers("tokenizer.ggml.scores", ok, len(scores), len(tokens)); err != nil {
		return nil, err
	}
	model := modelFile{kind: kind}
	known := make(map[string]bool, len(tokens))
	for _, token := range tokens {
		known[token] = true
	}
	spelled := make(map[byte]bool)
	unknown := -1
	for id, token := range tokens {
		score := scores[id]
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return nil, fmt.Errorf("tokenizer.ggml.scores has %v for token %d; it must be finite", score, id)
		}
		switch kinds[id] {
		case bytePiece:
			value, isByte := byteOf(token)
			if !isByte || spelled[value] {
				return nil, fmt.Errorf("byte token %d is %s; it must be <0x00> to <0xFF>, each once", id, formats.Shown(token))
			}
			spelled[value] = true
		case unknownPiece:
			if unknown >= 0 {
				return nil, fmt.Errorf("has %d unknown tokens; there must be one", count(kinds, unknownPiece))
			}
			unknown = id
		case userDefinedPiece:
			// Files have it as it is in a text; in SentencePiece's it is looked for where spaces are ▁ already.
			if named := strings.ReplaceAll(token, " ", spaceSymbol); !known[named] {
				token = named
			}
		}
		model.pieces = append(model.pieces, piece{token, float32(score), int(kinds[id])})
	}
	if len(spelled) != 0 && len(spelled) != 256 {
		return nil, fmt.Errorf("has %d byte tokens; there must be 256, or none", len(spelled))
	}
	if unknown < 0 {
		return nil, fmt.Errorf("has 0 unknown tokens; there must be one")
	}
	if named, ok := g.Whole("tokenizer.ggml.unknown_token_id"); g.Has("tokenizer.ggml.unknown_token_id") &&
		(!ok || named != int64(unknown)) {
		return nil, fmt.Errorf("tokenizer.ggml.unknown_token_id is %s, but the unknown token is %d",
			g.Shown("tokenizer.ggml.unknown_token_id"), unknown)
	}
	var err error
	if model.normalizer.addDummyPrefix, err = g.truth("tokenizer.ggml.add_space_prefix", true); err != nil {
		return nil, err
	}
	model.normalizer.removeExtraWhitespace, err = g.truth("tokenizer.ggml.remove_extra_whitespaces", false)
	if err != nil {
		return nil, err
	}
	made, err := New(model.encode(unknown, len(spelled) > 0))
	if err != nil {
		return nil, fmt.Errorf("is not a SentencePiece model (%w)", err)
	}
	made.ends = ends
	return made, nil
}

func count(values []int64, value int64) int {
	found := 0
	for _, other := range values {
		if other == value {
			found++
		}
	}
	return found
}

package tokenizer

import (
	"errors"

	"github.com/nncuda/nncuda/go/formats"
)

// CarryGGUF makes the files of a folder of the tokenizer that a GGUF file has, nil for none, and of its metadata:
// tokenizer.json or tokenizer.model, tokenizer_config.json with the chat template, and generation_config.json.
func CarryGGUF(tokens TextTokenizer, metadata Metadata) (*Carried, error) {
	if tokens == nil {
		return CarryNone(), nil
	}
	given := ggufTokens{metadata}
	end, err := given.id("tokenizer.ggml.eos_token_id", tokens.VocabSize())
	if err != nil {
		return nil, err
	}
	pad, name := int32(-1), "tokenizer.model"
	var content []byte
	var described *formats.Object
	switch made := tokens.(type) {
	case *Tokenizer:
		pad, content, described = made.PadID(), made.content, made.described(made.adds, made.begin, end)
	case *JSONTokenizer:
		name = "tokenizer.json"
		if content, err = given.byteLevelFile(made); err != nil {
			return nil, err
		}
		described = formats.NewObject("add_bos_token", made.adds, "add_eos_token", false,
			"bos_token", nameOrNone(made, made.BeginID()), "eos_token", nameOrNone(made, end),
			"tokenizer_class", "PreTrainedTokenizerFast")
	}
	if metadata.Has("tokenizer.chat_template") {
		template, ok := metadata.Text("tokenizer.chat_template")
		if !ok {
			return nil, errors.New("tokenizer.chat_template is not a string")
		}
		described.Set("chat_template", template)
	}
	var ends any
	if ids := tokens.EndIDs(); len(ids) == 1 {
		ends = int64(ids[0])
	} else if len(ids) > 1 {
		ends = ids
	}
	ids := formats.NewObject("bos_token_id", idOrNone(tokens.BeginID()), "eos_token_id", ends, "pad_token_id", idOrNone(pad))
	files, err := filesWith(name, content, described, ids)
	return &Carried{contents: files, ids: ids}, err
}

// byteLevelFile writes a tokenizer.json of a byte-level BPE, as the tokenizers library does, which puts the begin id before a
// text where the tokenizer is to. All of the metadata was checked when the tokenizer was made of them.
func (g ggufTokens) byteLevelFile(made *JSONTokenizer) ([]byte, error) {
	tokens, kinds, err := g.pieces()
	if err != nil {
		return nil, err
	}
	cut, err := g.cut()
	if err != nil {
		return nil, err
	}
	merges, prefixSpace, err := g.rules()
	if err != nil {
		return nil, err
	}
	vocabulary, added := formats.NewObject(), []any{}
	for id, token := range tokens {
		vocabulary.Set(token, int64(id))
		if kinds[id] != controlPiece && kinds[id] != userDefinedPiece {
			continue
		}
		added = append(added, formats.NewObject("id", int64(id), "content", token, "single_word", false, "lstrip", false,
			"rstrip", false, "normalized", false, "special", kinds[id] == controlPiece))
	}
	var steps []any
	for _, expression := range cut.expressions {
		steps = append(steps, formats.NewObject("type", "Split", "pattern", formats.NewObject("Regex", expression),
			"behavior", "Isolated", "invert", false))
	}
	byteLevel := func(prefixSpace, expression bool) *formats.Object {
		return formats.NewObject("type", "ByteLevel", "add_prefix_space", prefixSpace, "trim_offsets", true, "use_regex", expression)
	}
	steps = append(steps, byteLevel(prefixSpace, false))
	var normalizer any
	if cut.nfc {
		normalizer = formats.NewObject("type", "NFC")
	}
	return formats.JSONLine(formats.NewObject(
		"version", "1.0", "truncation", nil, "padding", nil, "added_tokens", added, "normalizer", normalizer,
		"pre_tokenizer", formats.NewObject("type", "Sequence", "pretokenizers", steps),
		"post_processor", beginBefore(made), "decoder", byteLevel(true, true),
		"model", formats.NewObject("type", "BPE", "dropout", nil, "unk_token", nil, "continuing_subword_prefix", nil,
			"end_of_word_suffix", nil, "fuse_unk", false, "byte_fallback", false, "ignore_merges", cut.wholeWords,
			"vocab", vocabulary, "merges", merges)))
}

// beginBefore is the post-processor that puts the begin id before a text; nil where none is to be.
func beginBefore(made *JSONTokenizer) any {
	if !made.AddsBegin() {
		return nil
	}
	name := made.Piece(made.BeginID())
	begin := func(kind int64) *formats.Object {
		return formats.NewObject("SpecialToken", formats.NewObject("id", name, "type_id", kind))
	}
	text := func(which string, kind int64) *formats.Object {
		return formats.NewObject("Sequence", formats.NewObject("id", which, "type_id", kind))
	}
	token := formats.NewObject("id", name, "ids", []any{int64(made.BeginID())}, "tokens", []any{name})
	return formats.NewObject("type", "TemplateProcessing", "single", []any{begin(0), text("A", 0)},
		"pair", []any{begin(0), text("A", 0), begin(0), text("B", 0)}, "special_tokens", formats.NewObject(name, token))
}

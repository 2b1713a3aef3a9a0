package tokenizer

import "github.com/nncuda/nncuda/go/formats"

// SpecialIDs are the ids of begin, end and padding as config.json and generation_config.json have them; nil for none.
func (t *Tokenizer) SpecialIDs() *formats.Object {
	return formats.NewObject(
		"bos_token_id", idOrNone(t.BeginID()), "eos_token_id", idOrNone(t.EndID()), "pad_token_id", idOrNone(t.PadID()))
}

// Files gives what a folder holds of the tokenizer, by the names of its files: tokenizer.model; tokenizer_config.json,
// by which transformers gives a text the ids that it has here, the begin id before them; and generation_config.json.
func (t *Tokenizer) Files() (map[string][]byte, error) {
	described := t.described(t.BeginID() >= 0, t.BeginID(), t.EndID())
	return filesWith("tokenizer.model", t.content, described, t.SpecialIDs())
}

// described is the content of tokenizer_config.json.
func (t *Tokenizer) described(addsBegin bool, begin, end int32) *formats.Object {
	return formats.NewObject(
		"add_bos_token", addsBegin, "add_eos_token", false, "bos_token", nameOrNone(t, begin),
		"eos_token", nameOrNone(t, end), "unk_token", nameOrNone(t, t.unknown), "pad_token", nameOrNone(t, t.PadID()),
		// transformers 4 puts a space before every text unless told otherwise, whatever the model's file says; "legacy"
		// has it begin again after a control token, as SentencePiece does.
		"add_prefix_space", t.model.normalizer.addDummyPrefix, "legacy", true,
		"clean_up_tokenization_spaces", false, "tokenizer_class", "LlamaTokenizer")
}

// filesWith are the files of a folder: that of the tokenizer itself, tokenizer_config.json and generation_config.json.
func filesWith(name string, content []byte, described, ids *formats.Object) (map[string][]byte, error) {
	files := map[string][]byte{name: content}
	for name, content := range map[string]*formats.Object{
		"tokenizer_config.json": described, "generation_config.json": ids,
	} {
		var err error
		if files[name], err = formats.JSONDocument(content); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func nameOrNone(tokens TextTokenizer, id int32) any {
	if id < 0 {
		return nil
	}
	return tokens.Piece(id)
}

func idOrNone(id int32) any {
	if id < 0 {
		return nil
	}
	return int64(id)
}

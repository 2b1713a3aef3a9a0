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
	name := func(id int32) any {
		if id < 0 {
			return nil
		}
		return t.model.pieces[id].text
	}
	described := formats.NewObject(
		"add_bos_token", t.BeginID() >= 0, "add_eos_token", false, "bos_token", name(t.BeginID()),
		"eos_token", name(t.EndID()), "unk_token", name(t.unknown), "pad_token", name(t.PadID()),
		// transformers 4 puts a space before every text unless told otherwise, whatever the model's file says; "legacy"
		// has it begin again after a control token, as SentencePiece does.
		"add_prefix_space", t.model.normalizer.addDummyPrefix, "legacy", true,
		"clean_up_tokenization_spaces", false, "tokenizer_class", "LlamaTokenizer")
	files := map[string][]byte{"tokenizer.model": t.content}
	for name, content := range map[string]*formats.Object{
		"tokenizer_config.json": described, "generation_config.json": t.SpecialIDs(),
	} {
		var err error
		if files[name], err = formats.JSONDocument(content); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func idOrNone(id int32) any {
	if id < 0 {
		return nil
	}
	return int64(id)
}

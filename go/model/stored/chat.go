package stored

import "github.com/nncuda/nncuda/go/tokenizer"

// ChatTemplate is the model's chat template; the plain one when the files have none. An error when the files are wrong;
// what is wrong with the template itself shows when it is rendered.
func (m *Model) ChatTemplate() (*tokenizer.ChatTemplate, error) { return m.chatTemplate() }

func (m *Model) readChatTemplate() (*tokenizer.ChatTemplate, error) {
	if m.file == nil {
		return tokenizer.ChatTemplateFromFolder(m.Path)
	}
	tokens, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	var names tokenizer.SpecialNames
	if tokens != nil {
		names.Begin = tokens.Piece(tokens.BeginID())
		if end, ok := m.file.Whole("tokenizer.ggml.eos_token_id"); ok && end >= 0 && end < int64(tokens.VocabSize()) {
			names.End = tokens.Piece(int32(end))
		}
	}
	return tokenizer.ChatTemplateFromGGUF(&m.file.Metadata, m.Path, names)
}

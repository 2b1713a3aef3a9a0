package serve

import (
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// tokens is the tokenizer of one model: /tokenize, /detokenize and /tokenizer_info.
type tokens struct {
	*served
	tokenizing, detokenizing *checker
}

func newTokens(of *served) *tokens {
	return &tokens{of, newChecker("tokenize", "/tokenize"), newChecker("detokenize", "/detokenize")}
}

// tokenize gives the ids of a text, with the room of the model's context.
func (t *tokens) tokenize(body *formats.Object) (object, error) {
	v, err := t.tokenizing.check(body)
	if err != nil {
		return nil, err
	}
	if _, err := t.find(v["model"]); err != nil {
		return nil, err
	}
	made := t.model.Tokenizer()
	if made == nil {
		return nil, noTokenizer("prompt")
	}
	ids, err := made.Encode(v.text("prompt"), tokenizer.Encoding{Begin: made.AddsBegin() && v.flag("add_special_tokens")})
	if err != nil {
		return nil, err
	}
	shown, names := make(list, len(ids)), make(list, len(ids))
	for at, id := range ids {
		shown[at], names[at] = id, made.Piece(id)
	}
	found := object{{"count", len(ids)}, {"max_model_len", t.model.Context()}, {"tokens", shown}}
	if v.flag("return_token_strs") {
		found = append(found, member{"token_strs", names})
	}
	return found, nil
}

// detokenize gives the text of ids.
func (t *tokens) detokenize(body *formats.Object) (object, error) {
	v, err := t.detokenizing.check(body)
	if err != nil {
		return nil, err
	}
	if _, err := t.find(v["model"]); err != nil {
		return nil, err
	}
	if t.model.Tokenizer() == nil {
		return nil, noTokenizer("tokens")
	}
	ids, err := t.checkedIDs(v["tokens"].([]any), "tokens")
	if err != nil {
		return nil, err
	}
	text, err := t.decode(ids)
	return object{{"prompt", text}}, err
}

// info is what the tokenizer_config.json of a folder says: names and ids of special tokens, the chat template (null for a
// model without), the class of transformers that such a tokenizer has. `eos_token` is the end that the template knows,
// else the first of the ids that end a text.
func (t *tokens) info() (object, error) {
	made := t.model.Tokenizer()
	if made == nil {
		return nil, noTokenizer("/tokenizer_info")
	}
	template, err := t.model.Stored().ChatTemplate()
	if err != nil {
		return nil, err
	}
	begin, ends, pad := made.BeginID(), made.EndIDs(), int32(-1)
	class := "PreTrainedTokenizerFast"
	if pieces, ok := made.(*tokenizer.Tokenizer); ok {
		class, pad = "LlamaTokenizer", pieces.PadID()
	}
	name := func(id int32) any {
		if id < 0 {
			return nil
		}
		return made.Piece(id)
	}
	id := func(id int32) any {
		if id < 0 {
			return nil
		}
		return id
	}
	var endName, endID, text any
	if len(ends) > 0 {
		endName, endID = made.Piece(ends[0]), ends[0]
	}
	if len(ends) > 1 {
		several := make(list, len(ends))
		for at, id := range ends {
			several[at] = id
		}
		endID = several
	}
	if known := template.Names().End; known != "" {
		endName = known
	}
	if !template.Plain() {
		text = template.Text()
	}
	return object{
		{"tokenizer_class", class}, {"vocab_size", made.VocabSize()}, {"model_max_length", t.model.Context()},
		{"add_bos_token", made.AddsBegin()}, {"add_eos_token", false}, {"bos_token", name(begin)},
		{"eos_token", endName}, {"pad_token", name(pad)}, {"bos_token_id", id(begin)}, {"eos_token_id", endID},
		{"pad_token_id", id(pad)}, {"chat_template", text},
	}, nil
}

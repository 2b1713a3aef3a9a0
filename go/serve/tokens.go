package serve

import (
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// tokens is the tokenizer of one model: /tokenize and /detokenize.
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
	if err := t.checkModel(v["model"]); err != nil {
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
	if err := t.checkModel(v["model"]); err != nil {
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

package serve

import (
	"errors"
	"math"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// chatForm has texts as messages of an assistant.
type chatForm struct{}

func (chatForm) idPrefix() string                    { return "chatcmpl" }
func (chatForm) wholeObject() string                 { return "chat.completion" }
func (chatForm) chunkObject() string                 { return "chat.completion.chunk" }
func (chatForm) logprobs(names *tokenNames) logprobs { return &chatLogprobs{names} }

func (chatForm) choice(index int, text, finish string, scores any) object {
	message := object{{"role", "assistant"}, {"content", text}, {"refusal", nil}}
	return object{{"index", index}, {"message", message}, {"logprobs", scores}, {"finish_reason", finish}}
}

func (chatForm) begin(index int) object {
	return delta(index, object{{"role", "assistant"}, {"content", ""}}, nil, nil)
}

func (chatForm) piece(index int, text string, scores any) object {
	return delta(index, object{{"content", text}}, nil, scores)
}

func (chatForm) end(index int, finish string) object { return delta(index, object{}, finish, nil) }

func delta(index int, change object, finish, scores any) object {
	return object{{"index", index}, {"delta", change}, {"logprobs", scores}, {"finish_reason", finish}}
}

// chat makes answers of the bodies of /v1/chat/completions.
type chat struct {
	*served
	checker *checker
}

const chatPath = "/v1/chat/completions"

func newChat(of *served) *chat { return &chat{of, newChecker("chat", chatPath)} }

// prepare gives the answers that a body asks for, not submitted yet.
func (c *chat) prepare(body *formats.Object) (*answer, error) {
	v, err := c.checker.check(body)
	if err != nil {
		return nil, err
	}
	wanted, usage, err := c.shared(v, 1)
	if err != nil {
		return nil, err
	}
	messages, err := plainMessages(v["messages"].([]any))
	if err != nil {
		return nil, err
	}
	tokens := c.model.Tokenizer()
	if tokens == nil {
		return nil, noTokenizer("messages")
	}
	template, err := c.model.Stored().ChatTemplate()
	if err != nil {
		return nil, err
	}
	ids, err := template.IDs(tokens, messages, tokenizer.Rendering{})
	if failed := (*formats.Error)(nil); errors.As(err, &failed) {
		return nil, refusal("template_failed", "messages", named{"why": failed})
	}
	if err != nil {
		return nil, err
	}
	if err := c.checkLength(len(ids), "messages"); err != nil {
		return nil, err
	}
	most, err := mostTokens(v)
	if err != nil {
		return nil, err
	}
	if template.Plain() {
		wanted.Stop = append(append([]string{}, wanted.Stop...), infer.PlainStops()...)
	}
	if err := askLogprobs(v, &wanted); err != nil {
		return nil, err
	}
	rules, err := c.formats.grammar(v[formatField])
	if err != nil {
		return nil, err
	}
	made := &answer{
		form: chatForm{}, model: c.name, generations: c.texts(wanted, v, ids, most, rules), promptTokens: len(ids),
		stream: v.flag("stream"), usage: usage, user: v.text("user"),
	}
	if wanted.Logprobs {
		made.names = c.names
	}
	return made, nil
}

// askLogprobs asks for log-probabilities where a body does.
func askLogprobs(v values, wanted *infer.Generation) error {
	alternatives, given := v["top_logprobs"].(int64)
	if given && !v.flag("logprobs") {
		return refusal("needs_field", "top_logprobs", named{"name": "top_logprobs", "other": "logprobs"})
	}
	wanted.Logprobs, wanted.TopLogprobs = v.flag("logprobs"), int(alternatives)
	return nil
}

// mostTokens is the most tokens of an answer, by either of the names.
func mostTokens(v values) (int64, error) {
	newer, hasNewer := v["max_completion_tokens"].(int64)
	older, hasOlder := v["max_tokens"].(int64)
	switch {
	case hasNewer && hasOlder:
		return 0, refusal("both_fields", "max_completion_tokens",
			named{"name": "max_completion_tokens", "other": "max_tokens"})
	case hasNewer:
		return newer, nil
	case hasOlder:
		return older, nil
	}
	return math.MaxInt64, nil
}

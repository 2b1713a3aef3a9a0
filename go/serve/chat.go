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
func (chatForm) begins(string)                       {}
func (chatForm) mark(int32) string                   { return "" }
func (chatForm) logprobs(names *tokenNames) logprobs { return &chatLogprobs{names} }

func (chatForm) choice(index int, text, finish string, scores any) object {
	return messageChoice(index, object{{"role", "assistant"}, {"content", text}, {"refusal", nil}}, finish, scores)
}

func messageChoice(index int, message object, finish string, scores any) object {
	return object{{"index", index}, {"message", message}, {"logprobs", scores}, {"finish_reason", finish}}
}

func (chatForm) begin(index int) object {
	return delta(index, object{{"role", "assistant"}, {"content", ""}}, nil, nil)
}

func (chatForm) pieces(index int, text string, scores any) []object {
	return []object{delta(index, object{{"content", text}}, nil, scores)}
}

func (chatForm) end(index int, finish string) []object {
	return []object{delta(index, object{}, finish, nil)}
}

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
func (c *chat) prepare(body *formats.Object) (reply, error) {
	v, err := c.checker.check(body)
	if err != nil {
		return nil, err
	}
	of, err := c.find(v["model"])
	if err != nil {
		return nil, err
	}
	wanted, counted, err := c.shared(v, 1)
	if err != nil {
		return nil, err
	}
	format, _ := v[formatField].(*formats.Object)
	wantedTools, err := requestedTools(v, formatField, format, false)
	if err != nil {
		return nil, err
	}
	messages, err := plainMessages(v["messages"].([]any))
	if err != nil {
		return nil, err
	}
	read, err := c.conversation(messages, "messages", wantedTools, placeOfTools(messages))
	if err != nil {
		return nil, err
	}
	ids := read.ids
	wanted.Stop = append(append([]string{}, wanted.Stop...), read.stops...)
	most, err := mostTokens(v)
	if err != nil {
		return nil, err
	}
	if err := askLogprobs(v, &wanted); err != nil {
		return nil, err
	}
	rules, err := c.formats.of(v[formatField])
	if err != nil {
		return nil, err
	}
	var written form = chatForm{}
	if wantedTools != nil {
		marks, err := read.calls.controlTokens(c.model.Tokenizer(), c.names)
		if err != nil {
			return nil, err
		}
		if rules, err = c.formats.ofCalls(wantedTools, v["tool_choice"], read.calls, marks); err != nil {
			return nil, err
		}
		written = newCallingForm(wantedTools, read.calls, marks)
	}
	made := &answer{
		form: written, model: of.name, generations: c.texts(wanted, v, of.prompt(ids), most, rules), promptTokens: len(ids),
		stream: v.flag("stream"), usage: counted, user: v.text("user"),
	}
	if wanted.Logprobs {
		made.names = c.names
	}
	return made, nil
}

// conversation is one as the model reads it.
type conversation struct {
	ids   []int32
	stops []string  // end an answer: those of the next turn, where the model has no template
	calls *callForm // in which the model calls tools; nil for none
}

// conversation reads messages, whose field has that name; `place` is where they first have something of tools, "" for
// nowhere.
func (s *served) conversation(
	messages []*formats.Object, name string, wanted *tools, place string,
) (*conversation, error) {
	tokens := s.model.Tokenizer()
	if tokens == nil {
		return nil, noTokenizer(name)
	}
	template, err := s.model.Stored().ChatTemplate()
	if err != nil {
		return nil, err
	}
	read, rendering := &conversation{calls: callFormOf(template.Text())}, tokenizer.Rendering{}
	if wanted != nil {
		rendering.Variables, place = formats.NewObject("tools", wanted.shown()), "tools"
	}
	if read.calls == nil && place != "" {
		return nil, refusal("no_tools", place, named{"name": place})
	}
	read.ids, err = template.IDs(tokens, messages, rendering)
	if failed := (*formats.Error)(nil); errors.As(err, &failed) {
		return nil, refusal("template_failed", name, named{"why": failed})
	}
	if err != nil {
		return nil, err
	}
	if template.Plain() {
		read.stops = infer.PlainStops()
	}
	return read, s.checkLength(len(read.ids), name)
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

package infer

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// plainStops are where the next turn would begin in a conversation without a chat template.
var plainStops = []string{"\nUser:", "\nAssistant:"}

// PlainStops are the strings that end an answer of a model without a chat template: where the next turn would begin.
func PlainStops() []string { return slices.Clone(plainStops) }

// Chat gives the answer to a conversation, piece by piece, in the form that the model's chat template gives it.
//
// Messages have "role" (system, user, assistant) and "content", as of tokenizer.Message. The part of the conversation that
// is still in the cache is not computed again. A model without a template sees each turn on a line of its own, after its
// role, and the answer ends where it would begin the next. Of `wanted`, all but the prompts counts; errors are those of
// Generate, and a *formats.Error of a template that fails.
func (m *LanguageModel) Chat(
	ctx context.Context, messages []*formats.Object, wanted Generation,
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := m.ChatIDs(messages)
		if err != nil {
			yield("", err)
			return
		}
		wanted.Prompts = []Prompt{{IDs: ids}}
		if template, err := m.stored.ChatTemplate(); err == nil && template.Plain() && wanted.Stop == nil {
			wanted.Stop = plainStops
		}
		m.Stream(ctx, wanted)(yield)
	}
}

// ChatIDs are the ids of a conversation up to where the answer begins.
func (m *LanguageModel) ChatIDs(messages []*formats.Object) ([]int32, error) {
	for number, message := range messages {
		if !message.Has("role") || !message.Has("content") {
			return nil, &engine.OptionError{Option: "messages", Problem: fmt.Sprintf(
				`messages[%d] has %s; it must have "role" and "content"`, number, formats.Shown(message.SortedNames()))}
		}
	}
	tokens, err := m.textTokenizer()
	if err != nil {
		return nil, err
	}
	template, err := m.stored.ChatTemplate()
	if err != nil {
		return nil, err
	}
	ids, err := template.IDs(tokens, messages, tokenizer.Rendering{})
	if err != nil {
		return nil, err
	}
	return ids, engine.CheckIDs(ids, m.Config().VocabSize, "ids")
}

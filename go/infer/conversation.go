package infer

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Conversation has turns of a user and a model in the form of the model's chat template.
//
// A turn costs the tokens that are new in it, since the model's cache holds the others, as long as the template gives them
// back unchanged. Only one goroutine may use a conversation at a time.
type Conversation struct {
	Model *LanguageModel
	// System is the system's message; "" for none.
	System string
	// Generation says how answers are generated; prompts do not count. Turn n draws with Sampling.Seed + n.
	Generation Generation
	// Messages are the whole history.
	Messages []*formats.Object
	// LeftOut counts how many messages, the oldest but that of the system, the model does not see any more, since the
	// history no longer fits into the context.
	LeftOut int

	turns int
}

// Check puts a short question into the model's template, as the first one would be: a *formats.Error when the template
// cannot be used, so that a conversation need not begin to find it out.
func (c *Conversation) Check() error {
	_, err := c.Model.ChatIDs(append(c.head(), tokenizer.Message("user", "Hello")))
	return err
}

// Clear forgets all turns; the system's message stays.
func (c *Conversation) Clear() {
	c.Messages, c.LeftOut = nil, 0
}

// Answer gives the answer to a text, piece by piece. Both become part of the history, an answer that ctx or the caller
// stopped as far as it came; without an answer neither does. An *engine.OptionError when the text alone is too long, and
// what Chat may give.
func (c *Conversation) Answer(ctx context.Context, text string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		c.Messages = append(c.Messages, tokenizer.Message("user", text))
		var answer strings.Builder
		defer func() {
			// Without the space that begins most answers: templates write it themselves, or the model does again.
			if kept := strings.TrimSpace(answer.String()); kept != "" {
				c.Messages = append(c.Messages, tokenizer.Message("assistant", kept))
			} else {
				c.Messages = c.Messages[:len(c.Messages)-1]
			}
		}()
		visible, err := c.visible()
		if err != nil {
			yield("", err)
			return
		}
		wanted := c.Generation
		wanted.Sampling.Seed += int64(c.turns)
		c.turns++
		for piece, err := range c.Model.Chat(ctx, visible, wanted) {
			answer.WriteString(piece)
			if !yield(piece, err) || err != nil {
				return
			}
		}
	}
}

// visible are the messages that the model sees: the system's and the newest exchanges that leave room for an answer.
func (c *Conversation) visible() ([]*formats.Object, error) {
	context := c.Model.Context()
	room := c.Generation.MaxNewTokens
	if room == 0 {
		room = context / 8 // where the history could fill it all
	}
	for {
		visible := append(c.head(), c.Messages[c.LeftOut:]...)
		ids, err := c.Model.ChatIDs(visible)
		switch {
		case err != nil:
			return nil, err
		case len(ids)+max(room, 0) <= context:
			return visible, nil
		case c.LeftOut+2 < len(c.Messages):
			c.LeftOut += 2 // a question and its answer
		case len(ids) <= context:
			return visible, nil // with what room there is
		default:
			return nil, &engine.OptionError{Option: "messages", Problem: fmt.Sprintf(
				"the message and the system message have %d tokens; the context has room for %d", len(ids), context)}
		}
	}
}

func (c *Conversation) head() []*formats.Object {
	if c.System == "" {
		return nil
	}
	return []*formats.Object{tokenizer.Message("system", c.System)}
}

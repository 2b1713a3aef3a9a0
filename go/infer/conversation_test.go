package infer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// answerOf is the whole answer to a text.
func answerOf(t *testing.T, talk *infer.Conversation, text string) string {
	t.Helper()
	var answer strings.Builder
	for piece, err := range talk.Answer(context.Background(), text) {
		must.Do(t, err)
		answer.WriteString(piece)
	}
	return answer.String()
}

// written are messages as text.
func written(messages []*formats.Object) string {
	var out strings.Builder
	for _, message := range messages {
		fmt.Fprintf(&out, "%s: %q\n", message.Get("role"), message.Get("content"))
	}
	return out.String()
}

func TestAConversationKeepsItsTurns(t *testing.T) {
	model := loadWithText(t)
	talk := &infer.Conversation{Model: model, System: "be brief", Generation: infer.Generation{MaxNewTokens: 10}}
	must.Do(t, talk.Check())
	first := answerOf(t, talk, "hello")
	second := answerOf(t, talk, "and more")
	wanted := []*formats.Object{
		tokenizer.Message("user", "hello"), tokenizer.Message("assistant", strings.TrimSpace(first)),
		tokenizer.Message("user", "and more"), tokenizer.Message("assistant", strings.TrimSpace(second)),
	}
	if written(talk.Messages) != written(wanted) {
		t.Errorf("%s", written(talk.Messages))
	}
	var again strings.Builder
	messages := append([]*formats.Object{tokenizer.Message("system", "be brief")}, wanted[:3]...)
	for piece, err := range model.Chat(context.Background(), messages, infer.Generation{MaxNewTokens: 10}) {
		must.Do(t, err)
		again.WriteString(piece)
	}
	if again.String() != second {
		t.Errorf("%q, not %q", again.String(), second)
	}
	talk.Clear()
	if answer := answerOf(t, talk, "hello"); answer != first { // greedy: as in the beginning
		t.Errorf("%q, not %q", answer, first)
	}
}

func TestTurnsDrawWithSeedsOfTheirOwn(t *testing.T) {
	model := loadWithText(t)
	wanted := infer.Generation{MaxNewTokens: 12, Sampling: infer.Sampling{Temperature: 1, Seed: 3}}
	talk := &infer.Conversation{Model: model, Generation: wanted}
	first := answerOf(t, talk, "hello")
	talk.Clear()
	if answerOf(t, talk, "hello") == first {
		t.Error("both turns have one seed")
	}
	if again := answerOf(t, &infer.Conversation{Model: model, Generation: wanted}, "hello"); again != first {
		t.Errorf("%q, not %q", again, first)
	}
}

func TestTheOldestTurnsAreLeftOutWhenTheContextIsFull(t *testing.T) {
	model := loadWithText(t)
	room := model.Context() / 8
	talk := &infer.Conversation{Model: model, System: "s", Generation: infer.Generation{MaxNewTokens: room}}
	for turn := range 8 {
		answerOf(t, talk, fmt.Sprintf("turn %d ", turn)+strings.Repeat("word ", 6))
		last := len(talk.Messages)
		if talk.Messages[last-1].Get("role") == "assistant" {
			last--
		}
		messages := append([]*formats.Object{tokenizer.Message("system", "s")}, talk.Messages[talk.LeftOut:last]...)
		if ids := must.Get(model.ChatIDs(messages))(t); len(ids)+room > model.Context() {
			t.Errorf("%d tokens and room for %d in %d", len(ids), room, model.Context())
		}
	}
	if talk.LeftOut == 0 || talk.LeftOut%2 != 0 || talk.LeftOut >= len(talk.Messages) {
		t.Errorf("%d of %d are left out", talk.LeftOut, len(talk.Messages))
	}
	before := written(talk.Messages)
	var wrong *engine.OptionError
	for _, err := range talk.Answer(context.Background(), strings.Repeat("word ", 300)) {
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "the context has room for") {
			t.Error(err)
		}
	}
	if wrong == nil || written(talk.Messages) != before { // as if it had not been asked
		t.Errorf("%s", written(talk.Messages))
	}
}

func TestAnAnswerThatIsStoppedStaysAsFarAsItCame(t *testing.T) {
	model := loadWithText(t)
	talk := &infer.Conversation{Model: model}
	ctx, cancel := context.WithCancel(context.Background())
	var answer strings.Builder
	for piece, err := range talk.Answer(ctx, "hello") {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if answer.WriteString(piece); len(strings.TrimSpace(answer.String())) > 3 {
			cancel()
		}
	}
	cancel()
	last := talk.Messages[len(talk.Messages)-1]
	if last.Get("role") != "assistant" || last.Get("content") != strings.TrimSpace(answer.String()) {
		t.Errorf("%s", written(talk.Messages))
	}
	idle(t, model)
	for piece, err := range talk.Answer(ctx, "go on") { // still done: nothing is written
		if piece != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", piece, err)
		}
	}
	if len(talk.Messages) != 2 {
		t.Errorf("%s", written(talk.Messages))
	}
}

func TestATemplateThatCannotBeUsed(t *testing.T) {
	model := loadWithText(t)
	path := filepath.Join(model.Stored().Path, "chat_template.jinja")
	must.Do(t, os.WriteFile(path, []byte("{{ raise_exception('never') }}"), 0o600))
	talk := &infer.Conversation{Model: must.Get(infer.Load(model.Stored().Path, infer.LoadOptions{}))(t)}
	defer talk.Model.Close()
	if err := talk.Check(); err == nil || !strings.Contains(err.Error(), "the chat template fails: TemplateError: never") {
		t.Error(err)
	}
	_, err := model.ChatIDs([]*formats.Object{formats.NewObject("role", "user")})
	if err == nil || !strings.Contains(err.Error(), `it must have "role" and "content"`) {
		t.Error(err)
	}
}

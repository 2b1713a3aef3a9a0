package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
)

// echo writes the words of a prompt, and after "wait" nothing until it is cancelled.
type echo struct{}

func (echo) Generate(ctx context.Context, wanted infer.Generation) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		words := strings.Fields(wanted.Prompts[0].Text)
		for at, word := range words {
			switch {
			case word == "wait":
				<-ctx.Done()
				yield(infer.Event{}, ctx.Err())
				return
			case word == "fail":
				yield(infer.Event{}, errors.New("it failed"))
				return
			case at == len(words)-1 || at+1 == wanted.MaxNewTokens:
				yield(infer.Event{Text: word, Finish: engine.Length}, nil)
				return
			case !yield(infer.Event{Text: word}, nil):
				return
			}
		}
	}
}

// started is a service on pipes: what gives it a line, what reads one, and what ends its input and waits for its end.
func started(t *testing.T, ctx context.Context) (give func(string), read func() answer, end func()) {
	t.Helper()
	in, input := io.Pipe()
	output, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := newService(echo{}, out).run(ctx, in)
		out.Close()
		done <- err
	}()
	lines := bufio.NewScanner(output)
	give = func(line string) {
		if _, err := io.WriteString(input, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	read = func() (found answer) {
		if !lines.Scan() {
			t.Fatal("there is no further line")
		}
		if err := json.Unmarshal(lines.Bytes(), &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	return give, read, func() {
		input.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func expect(t *testing.T, found, wanted answer) {
	t.Helper()
	if found != wanted {
		t.Errorf("%+v, not %+v", found, wanted)
	}
}

func TestTexts(t *testing.T) {
	give, read, end := started(t, t.Context())
	give(`{"id": "a", "prompt": "the <sea> is wide", "max_tokens": 3}`)
	expect(t, read(), answer{ID: "a", Text: "the"})
	expect(t, read(), answer{ID: "a", Text: "<sea>"})
	expect(t, read(), answer{ID: "a", Text: "is", Finish: engine.Length})
	give(`{"id": "a", "prompt": "fail"}`)
	expect(t, read(), answer{ID: "a", Error: "it failed"})
	end()
}

func TestOneThatIsCancelled(t *testing.T) {
	give, read, end := started(t, t.Context())
	give(`{"id": "a", "prompt": "the wait"}`)
	expect(t, read(), answer{ID: "a", Text: "the"})
	give(`{"id": "a", "prompt": "the"}`)
	expect(t, read(), answer{ID: "a", Error: "another request of this id is under way"})
	give(`{"id": "b", "prompt": "waves"}`)
	expect(t, read(), answer{ID: "b", Text: "waves", Finish: engine.Length})
	give(`{"id": "nobody", "cancel": true}`)
	give(`{"id": "a", "cancel": true}`)
	expect(t, read(), answer{ID: "a", Finish: engine.Cancelled})
	end()
}

func TestWhatIsNoRequest(t *testing.T) {
	give, read, end := started(t, t.Context())
	for _, line := range []string{"hello", "{}{", `{"id": "a", "volume": 3}`, `{"id": 3}`, `[]`} {
		give(line)
		if found := read(); !strings.HasPrefix(found.Error, "the line is no request: ") {
			t.Errorf("%s: %+v", line, found)
		}
	}
	end()
}

func TestAnEndWhileTextsAreWritten(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	give, read, end := started(t, ctx)
	give(`{"id": "a", "prompt": "the wait"}`)
	expect(t, read(), answer{ID: "a", Text: "the"})
	cancel()
	expect(t, read(), answer{ID: "a", Finish: engine.Cancelled})
	end()
}

func TestManyAtOnce(t *testing.T) {
	give, read, end := started(t, t.Context())
	for at := range mostOpen + 1 {
		line, _ := json.Marshal(request{ID: string(rune('a' + at)), Prompt: "wait"})
		give(string(line))
	}
	if found := read(); found.Error != "256 requests are under way; wait for one of them" {
		t.Errorf("%+v", found)
	}
	for at := range mostOpen {
		line, _ := json.Marshal(request{ID: string(rune('a' + at)), Cancel: true})
		give(string(line))
		expect(t, read(), answer{ID: string(rune('a' + at)), Finish: engine.Cancelled})
	}
	end()
}

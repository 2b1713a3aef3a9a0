package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
)

const (
	longestLine = 1 << 20
	mostOpen    = 256 // requests that are answered at once
	usualTokens = 128
)

// request is a line of the input: a prompt to continue, or the end of an earlier request.
type request struct {
	ID          string   `json:"id"`
	Cancel      bool     `json:"cancel"`
	Prompt      string   `json:"prompt"`
	MaxTokens   int      `json:"max_tokens"`
	Temperature float64  `json:"temperature"`
	TopP        float64  `json:"top_p"`
	Seed        int64    `json:"seed"`
	Stop        []string `json:"stop"`
}

// answer is a line of the output. The last of a request has a finish or an error.
type answer struct {
	ID     string        `json:"id"`
	Text   string        `json:"text"`
	Finish engine.Finish `json:"finish,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// writer is the part of an infer.LanguageModel that the service needs.
type writer interface {
	Generate(ctx context.Context, wanted infer.Generation) iter.Seq2[infer.Event, error]
}

// service answers requests, each in a goroutine of its own; the model decodes their texts together.
type service struct {
	model writer
	open  sync.Map // from the ids of requests to what cancels them
	count chan struct{}
	done  sync.WaitGroup

	mu  sync.Mutex
	out *json.Encoder
}

func newService(model writer, out io.Writer) *service {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return &service{model: model, count: make(chan struct{}, mostOpen), out: encoder}
}

// run answers lines until they end or ctx does, and returns when all requests have their last line.
func (s *service) run(ctx context.Context, in io.Reader) error {
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() { // its read cannot be ended, so nobody waits for it
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, longestLine)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		failed <- scanner.Err()
		close(lines)
	}()
	defer s.done.Wait()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return <-failed
			}
			s.take(ctx, line)
		case <-ctx.Done():
			return nil
		}
	}
}

// take begins what a line asks for.
func (s *service) take(ctx context.Context, line []byte) {
	asked := request{MaxTokens: usualTokens}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&asked)
	if err == nil && decoder.More() {
		err = errors.New("it has more than one value")
	}
	if err != nil {
		s.write(answer{Error: fmt.Sprintf("the line is no request: %v", err)})
		return
	}
	if asked.Cancel {
		if cancel, found := s.open.Load(asked.ID); found {
			cancel.(context.CancelFunc)()
		}
		return // what has ended meanwhile needs no answer
	}
	ctx, cancel := context.WithCancel(ctx)
	if _, taken := s.open.LoadOrStore(asked.ID, cancel); taken {
		cancel()
		s.write(answer{ID: asked.ID, Error: "another request of this id is under way"})
		return
	}
	end := func(last answer) {
		s.open.Delete(asked.ID) // first: who has read the last line may use the id again
		cancel()
		s.write(last)
	}
	select {
	case s.count <- struct{}{}:
	default:
		end(answer{ID: asked.ID, Error: fmt.Sprintf("%d requests are under way; wait for one of them", mostOpen)})
		return
	}
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		last := s.answer(ctx, asked)
		<-s.count
		end(last)
	}()
}

// answer writes what comes of a request, but for its last line, which it returns.
func (s *service) answer(ctx context.Context, asked request) answer {
	if asked.MaxTokens == 0 {
		asked.MaxTokens = infer.NoNewTokens
	}
	wanted := infer.Generation{
		Prompts:      []infer.Prompt{{Text: asked.Prompt}},
		MaxNewTokens: asked.MaxTokens,
		Sampling:     infer.Sampling{Temperature: asked.Temperature, TopP: asked.TopP, Seed: asked.Seed},
		Stop:         asked.Stop,
	}
	last := answer{ID: asked.ID}
	for event, err := range s.model.Generate(ctx, wanted) {
		switch {
		case errors.Is(err, context.Canceled):
			last.Finish = engine.Cancelled
		case err != nil:
			last.Error = err.Error()
		case event.Finish != "":
			last.Text, last.Finish = event.Text, event.Finish
		case event.Text != "":
			s.write(answer{ID: asked.ID, Text: event.Text})
		}
	}
	return last
}

func (s *service) write(line answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(line) // who does not read any more wants no answer
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
)

const (
	largestBody = 1 << 20
	// A client that sends or takes nothing for so long is cut off: others wait for its turn to end.
	patience = 30 * time.Second
)

// service is one model and its tokenizer, which may be nil. The model serves one goroutine at a time, so requests
// generate in turn.
type service struct {
	config   model.Config
	tokens   *tokenizer.Tokenizer
	queue    *queue
	generate func(
		ctx context.Context, prompt []int32, count int, sampling infer.Sampling, end int32,
	) iter.Seq2[int32, error]
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /generate", s.answer)
	mux.HandleFunc("GET /model", s.describe)
	mux.HandleFunc("GET /health", s.health)
	return mux
}

// answer streams a continuation: plain text, each piece as soon as it is certain, or ids between spaces.
func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	// Not every writer has deadlines; without them a client that sends or takes nothing is waited for.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	pieces, err := s.prepare(r.Context(), http.MaxBytesReader(w, r.Body, largestBody))
	_ = connection.SetReadDeadline(time.Time{})
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	leave, err := s.queue.enter(r.Context())
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	begun, err := send(w, connection, pieces)
	switch {
	case err == nil:
	case !begun && r.Context().Err() == nil:
		refuse(w, http.StatusInternalServerError, err)
	case r.Context().Err() == nil:
		log.Print(err)
		fallthrough
	default: // what was sent is not whole, and must not look so
		panic(http.ErrAbortHandler)
	}
}

// send writes pieces as they come, and says whether any was.
func send(w io.Writer, connection *http.ResponseController, pieces iter.Seq2[string, error]) (begun bool, err error) {
	for piece, err := range pieces {
		if err != nil {
			return begun, err
		}
		begun = true
		_ = connection.SetWriteDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(w, piece); err != nil {
			return begun, err
		}
		_ = connection.Flush()
	}
	return begun, nil
}

// prepare reads a request, and gives what is to be sent, piece by piece. The model computes nothing yet.
func (s *service) prepare(ctx context.Context, body io.Reader) (iter.Seq2[string, error], error) {
	asked, err := readRequest(body)
	if err != nil {
		return nil, err
	}
	sampling, err := asked.sampling()
	if err != nil {
		return nil, err
	}
	prompt, err := s.prompt(asked)
	if err != nil {
		return nil, err
	}
	count, err := asked.count(len(prompt), s.config)
	if err != nil {
		return nil, err
	}
	if asked.Prompt == nil {
		return numbers(s.generate(ctx, prompt, count, sampling, infer.NoToken)), nil
	}
	return s.texts(s.generate(ctx, prompt, count, sampling, s.tokens.EndID())), nil
}

// prompt is the ids of the prompt.
func (s *service) prompt(asked request) ([]int32, error) {
	switch {
	case (asked.Prompt == nil) == (asked.IDs == nil):
		return nil, errors.New(`give either "prompt" or "ids"`)
	case asked.Prompt != nil && s.tokens == nil:
		return nil, errors.New(`this model has no tokenizer; give "ids"`)
	case asked.Prompt != nil:
		return s.tokens.Encode(*asked.Prompt, tokenizer.Encoding{Begin: true})
	case len(asked.IDs) == 0:
		return nil, errors.New("ids is empty; it must have at least one token")
	}
	for at, id := range asked.IDs {
		if id < 0 || int(id) >= s.config.VocabSize {
			return nil, fmt.Errorf("ids[%d] is %d; it must be 0 to %d", at, id, s.config.VocabSize-1)
		}
	}
	return asked.IDs, nil
}

// texts turns tokens into text.
func (s *service) texts(tokens iter.Seq2[int32, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		decoder, err := tokenizer.NewStreamDecoder(s.tokens)
		if err != nil {
			yield("", err)
			return
		}
		for token, err := range tokens {
			text := ""
			if err == nil && token != s.tokens.EndID() {
				text, err = decoder.Push(token)
			}
			if (err != nil || text != "") && !yield(text, err) {
				return
			}
		}
		if rest, err := decoder.Flush(); err != nil || rest != "" {
			yield(rest, err)
		}
	}
}

// numbers writes tokens as numbers between spaces.
func numbers(tokens iter.Seq2[int32, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		space := ""
		for token, err := range tokens {
			if !yield(space+strconv.Itoa(int(token)), err) {
				return
			}
			space = " "
		}
	}
}

// describe says what is served.
func (s *service) describe(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"parameters": s.config.NumParameters(), "vocabulary": s.config.VocabSize,
		"context": s.config.ExtendedContext, "text": s.tokens != nil,
	})
}

// health says that requests are taken, and how many wait of those that may. Who shuts down does not answer at all.
func (s *service) health(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"status": "ok", "waiting": s.queue.waiting(), "queue": cap(s.queue.places) - 1,
	})
}

func reply(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content) // a client that went away needs no answer
}

func refuse(w http.ResponseWriter, status int, err error) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, status, map[string]string{"error": err.Error()})
}

// statusOf is the status of a request that was not begun.
func statusOf(err error) int {
	var full errFull
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &full), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

// Command serve-go answers HTTP requests with what a model writes, as it writes it. The model is a checkpoint of any of
// nncuda's languages; see README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
)

const (
	usualTokens = 128
	largestBody = 1 << 20
)

func main() {
	folder := flag.String("model", "", "a checkpoint, or the folder of a run, whose last checkpoint is taken")
	address := flag.String("listen", "127.0.0.1:8080", "where to listen")
	device := flag.String("device", "cpu", "cpu, cuda, cuda:INDEX, or auto")
	flag.Parse()
	if err := run(*folder, *address, *device); err != nil {
		log.Fatal(err)
	}
}

func run(folder, address, device string) error {
	hardware, err := cuda.New(device)
	if err != nil {
		return err
	}
	defer hardware.Close()
	path, err := train.ResolveCheckpoint(folder, false)
	if err != nil {
		return err
	}
	checkpoint, err := train.OpenCheckpoint(path)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	transformer, err := checkpoint.Model(hardware, model.F32, false)
	if err != nil {
		return err
	}
	defer transformer.Close()

	handler := &service{model: transformer, tokens: checkpoint.Tokenizer, turn: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /generate", handler.generate)
	mux.HandleFunc("GET /model", handler.describe)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("%s at http://%s\n", path, listener.Addr())
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// The model may be freed only when no request uses it any more: Serve returns at once, Shutdown when they are done.
	done := make(chan error, 1)
	go func() {
		<-stop.Done()
		done <- server.Shutdown(context.Background())
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

// service is one model and its tokenizer, which may be nil. A model belongs to one goroutine at a time: a request holds
// the only place in turn while it generates.
type service struct {
	model  *model.MoETransformer
	tokens *tokenizer.Tokenizer
	turn   chan struct{}
}

// request is the body of POST /generate. Either a prompt as text or ids; what is left out has the command's defaults.
type request struct {
	Prompt      *string  `json:"prompt"`
	IDs         []int32  `json:"ids"`
	MaxTokens   *int     `json:"max_tokens"`
	Temperature *float64 `json:"temperature"`
	TopK        int      `json:"top_k"`
	TopP        float64  `json:"top_p"`
	Seed        int64    `json:"seed"`
}

func (s *service) generate(w http.ResponseWriter, r *http.Request) {
	var asked request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		refuse(w, err)
		return
	}
	prompt, pieces, err := s.prepare(asked)
	if err != nil {
		refuse(w, err)
		return
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	begun := false
	for piece, err := range pieces(s.stream(r.Context(), prompt, asked)) {
		switch {
		case err != nil && !begun:
			refuse(w, err)
			return
		case err != nil:
			panic(http.ErrAbortHandler) // what was sent is not whole, and must not look so
		}
		begun = true
		if _, err := w.Write([]byte(piece)); err != nil {
			return
		}
		http.NewResponseController(w).Flush()
	}
}

// prepare gives the ids of the prompt, and how tokens become what is sent: text or numbers.
func (s *service) prepare(asked request) ([]int32, func(iter.Seq2[int32, error]) iter.Seq2[string, error], error) {
	switch {
	case (asked.Prompt == nil) == (asked.IDs == nil):
		return nil, nil, errors.New(`give either "prompt" or "ids"`)
	case asked.Prompt == nil:
		return asked.IDs, numbers, nil
	case s.tokens == nil:
		return nil, nil, errors.New(`this model has no tokenizer; give "ids"`)
	}
	ids := s.tokens.Encode(*asked.Prompt)
	if begin := s.tokens.BeginID(); begin >= 0 {
		ids = append([]int32{begin}, ids...)
	}
	return ids, s.texts, nil
}

// stream is the tokens behind a prompt. It ends when the client goes away.
func (s *service) stream(ctx context.Context, prompt []int32, asked request) iter.Seq2[int32, error] {
	sampling := infer.Sampling{Temperature: 1, TopK: asked.TopK, TopP: asked.TopP, Seed: asked.Seed}
	if asked.Temperature != nil {
		sampling.Temperature = *asked.Temperature
	}
	// The last token is not read again, so it needs no room.
	count := min(usualTokens, max(0, s.model.Config.ExtendedContext-len(prompt)+1))
	if asked.MaxTokens != nil {
		count = *asked.MaxTokens
	}
	end := int32(infer.NoToken)
	if asked.Prompt != nil {
		end = s.tokens.EndID()
	}
	return infer.Tokens(ctx, s.model, prompt, count, sampling, end)
}

// texts turns tokens into text, each piece as soon as it is certain.
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
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"parameters": s.model.Config.NumParameters(), "vocabulary": s.model.Config.VocabSize,
		"context": s.model.Config.ExtendedContext, "text": s.tokens != nil,
	})
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

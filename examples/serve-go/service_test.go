package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
)

// writer is a model that writes one token for each step it is allowed, and counts how far it came.
type writer struct {
	steps   chan struct{}
	started chan []int32 // the prompt of each generation, when it begins
	ended   chan error   // why each ended; nil when all was written
	fails   error        // instead of the third token
}

func newWriter() *writer {
	return &writer{steps: make(chan struct{}), started: make(chan []int32, 16), ended: make(chan error, 16)}
}

func (m *writer) generate(
	ctx context.Context, prompt []int32, count int, _ infer.Sampling, _ int32,
) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		m.started <- prompt
		m.ended <- func() error {
			for at := range count {
				select {
				case <-m.steps:
				case <-ctx.Done():
					yield(infer.NoToken, ctx.Err())
					return ctx.Err()
				}
				if at == 2 && m.fails != nil {
					yield(infer.NoToken, m.fails)
					return m.fails
				}
				if !yield(int32(at), nil) {
					return errors.New("nobody takes them")
				}
			}
			return nil
		}()
	}
}

// step lets the model write so many tokens more.
func (m *writer) step(t *testing.T, count int) {
	t.Helper()
	for range count {
		select {
		case m.steps <- struct{}{}:
		case <-time.After(10 * time.Second):
			t.Fatal("the model does not go on")
		}
	}
}

// within gives what comes from a channel, or ends the test.
func within[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(10 * time.Second):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// start serves a model, and gives the address, what stops the server, and how it ended.
func start(t *testing.T, m *writer, waiting int, grace time.Duration) (string, context.CancelFunc, <-chan error) {
	t.Helper()
	config := model.Default()
	config.VocabSize, config.ExtendedContext = 100, 64
	handler := &service{config: config, queue: newQueue(waiting), generate: m.generate}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(stop, listener, handler, grace) }()
	t.Cleanup(cancel)
	return "http://" + listener.Addr().String(), cancel, done
}

func post(ctx context.Context, address, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/generate", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// answer is what a request came to.
type answer struct {
	status int
	text   string
	err    error
}

// ask asks in a goroutine of its own.
func ask(address, body string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		response, err := post(context.Background(), address, body)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answers <- answer{response.StatusCode, string(text), err}
	}()
	return answers
}

// waiting is how many requests wait.
func waiting(t *testing.T, address string) int {
	t.Helper()
	response, err := http.Get(address + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var content struct{ Waiting int }
	if err := json.NewDecoder(response.Body).Decode(&content); err != nil {
		t.Fatal(err)
	}
	return content.Waiting
}

// eventually waits for something to be so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it never is: ", what)
		}
	}
}

func TestTokensAreSentAsTheyCome(t *testing.T) {
	m := newWriter()
	address, _, _ := start(t, m, 1, time.Minute)
	steps := make(chan struct{})
	go func() {
		defer close(steps)
		m.step(t, 1)
	}()
	response, err := post(context.Background(), address, `{"ids": [7, 8], "max_tokens": 3}`)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	within(t, steps)
	reader := bufio.NewReader(response.Body)
	for _, piece := range []string{"0", " 1", " 2"} { // each before the next is computed
		got := make([]byte, len(piece))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != piece {
			t.Fatalf("%q, %v", got, err)
		}
		if piece != " 2" {
			m.step(t, 1)
		}
	}
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if prompt := within(t, m.started); fmt.Sprint(prompt) != "[7 8]" {
		t.Error(prompt)
	}
}

func TestRequestsTakeTurns(t *testing.T) {
	m := newWriter()
	address, _, _ := start(t, m, 2, time.Minute)
	var answers []<-chan answer
	for number := range 3 { // one generates, and two wait
		answers = append(answers, ask(address, fmt.Sprintf(`{"ids": [%d], "max_tokens": 2}`, number)))
		if number == 0 {
			within(t, m.started)
		}
		eventually(t, "it waits", func() bool { return waiting(t, address) == number })
	}
	// One more is one too many.
	full := within(t, ask(address, `{"ids": [3], "max_tokens": 2}`))
	if full.status != http.StatusServiceUnavailable || full.text != `{"error":"2 requests are waiting already; ask again later"}`+"\n" {
		t.Errorf("%+v", full)
	}
	for number, asked := range answers {
		if number > 0 {
			if prompt := within(t, m.started); prompt[0] != int32(number) {
				t.Errorf("%v in the place of %d", prompt, number)
			}
		}
		m.step(t, 2)
		if got := within(t, asked); got.status != http.StatusOK || got.text != "0 1" {
			t.Errorf("%+v", got)
		}
	}
}

func TestClientsThatLeave(t *testing.T) {
	m := newWriter()
	address, _, _ := start(t, m, 4, time.Minute)
	var leave [2]context.CancelFunc
	for number := range leave { // one that generates, and one that waits
		var leaving context.Context
		leaving, leave[number] = context.WithCancel(context.Background())
		go func() {
			if response, err := post(leaving, address, `{"ids": [1], "max_tokens": 60}`); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
		if number == 0 {
			within(t, m.started)
		}
	}
	eventually(t, "it waits", func() bool { return waiting(t, address) == 1 })
	m.step(t, 1)
	leave[1]()
	eventually(t, "nobody waits", func() bool { return waiting(t, address) == 0 })
	leave[0]()
	if err := within(t, m.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the generation ended with %v", err)
	}
	next := ask(address, `{"ids": [9], "max_tokens": 1}`)
	if prompt := within(t, m.started); prompt[0] != 9 {
		t.Errorf("%v generates", prompt)
	}
	m.step(t, 1)
	if got := within(t, next); got.text != "0" {
		t.Errorf("%+v", got)
	}
}

func TestAFailureDoesNotLookWhole(t *testing.T) {
	m := newWriter()
	m.fails = errors.New("the device failed")
	address, _, _ := start(t, m, 1, time.Minute)
	asked := ask(address, `{"ids": [1], "max_tokens": 9}`)
	m.step(t, 3)
	if got := within(t, asked); got.err == nil {
		t.Errorf("%+v", got)
	}
}

func TestShutdownLetsRequestsEnd(t *testing.T) {
	m := newWriter()
	address, stop, done := start(t, m, 1, time.Minute)
	first := ask(address, `{"ids": [1], "max_tokens": 2}`)
	within(t, m.started)
	second := ask(address, `{"ids": [2], "max_tokens": 2}`)
	eventually(t, "it waits", func() bool { return waiting(t, address) == 1 })
	stop()
	eventually(t, "no more is taken", func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err == nil {
			connection.Close()
		}
		return err != nil
	})
	m.step(t, 4)
	for _, asked := range []<-chan answer{first, second} {
		if got := within(t, asked); got.text != "0 1" {
			t.Errorf("%+v", got)
		}
	}
	if err := within(t, done); err != nil {
		t.Error(err)
	}
}

func TestShutdownCutsOffWhatTakesTooLong(t *testing.T) {
	m := newWriter()
	address, stop, done := start(t, m, 1, 10*time.Millisecond)
	asked := ask(address, `{"ids": [1], "max_tokens": 2}`)
	within(t, m.started)
	m.step(t, 1)
	stop()
	if err := within(t, done); err != nil {
		t.Error(err)
	}
	if got := within(t, asked); got.err == nil {
		t.Errorf("%+v", got)
	}
	if err := within(t, m.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the generation ended with %v", err)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	address, _, _ := start(t, newWriter(), 1, time.Minute)
	for body, words := range map[string]string{
		``:                                  "the body is empty; it must be a JSON object",
		`{`:                                 "the body is not JSON: unexpected EOF",
		`[1]`:                               "the body is a JSON array; it must be an object",
		`{"ids": [1]} 2`:                    "the body must be one JSON object, and nothing behind it",
		`{"volume": 3}`:                     `there is no field "volume"; the fields are prompt, ids, max_tokens, temperature, top_k, top_p, seed`,
		`{"prompt": 3}`:                     "prompt is a JSON number; it must be text",
		`{"ids": "a"}`:                      "ids is a JSON string; it must be a list of whole numbers",
		`{"ids": [1, "a"]}`:                 "ids is a JSON string; it must be a list of whole numbers",
		`{"ids": [1], "max_tokens": "9"}`:   "max_tokens is a JSON string; it must be a whole number",
		`{"ids": [1], "max_tokens": 1.5}`:   "max_tokens is a JSON number 1.5; it must be a whole number",
		`{"ids": [1], "temperature": true}`: "temperature is a JSON bool; it must be a number",
		`{"ids": [1], "temperature": -1}`:   "temperature is -1; it must be a finite number, at least 0",
		`{"ids": [1], "top_k": 0}`:          "top_k is 0; it must be at least 1",
		`{"ids": [1], "top_p": 0}`:          "top_p is 0; it must be above 0, at most 1",
		`{"ids": [1], "top_p": 2}`:          "top_p is 2; it must be above 0, at most 1",
		`{"ids": [1], "max_tokens": -1}`:    "max_tokens is -1; after a prompt of 1 tokens it may be 0 to 64",
		`{"ids": [1], "max_tokens": 65}`:    "max_tokens is 65; after a prompt of 1 tokens it may be 0 to 64",
		`{"ids": []}`:                       "ids is empty; it must have at least one token",
		`{"ids": [1, 100]}`:                 "ids[1] is 100; it must be 0 to 99",
		`{}`:                                `give either "prompt" or "ids"`,
		`{"prompt": "a", "ids": [1]}`:       `give either "prompt" or "ids"`,
		`{"prompt": "a"}`:                   `this model has no tokenizer; give "ids"`,
		`{"ids": [` + strings.Repeat("1,", 64) + `1]}`: "the prompt has 65 tokens; this model takes 64 at most",
	} {
		got := within(t, ask(address, body))
		var said struct{ Error string }
		if err := json.Unmarshal([]byte(got.text), &said); err != nil || got.status != http.StatusBadRequest || said.Error != words {
			t.Errorf("%s: %d %s, not %q", body, got.status, got.text, words)
		}
	}
	large := within(t, ask(address, `{"prompt": "`+strings.Repeat("a", largestBody)+`"}`))
	if large.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%+v", large)
	}
	for path, status := range map[string]int{"/generate": http.StatusMethodNotAllowed, "/else": http.StatusNotFound} {
		response, err := http.Get(address + path)
		if err != nil || response.StatusCode != status {
			t.Errorf("%s: %v, %v", path, response, err)
		}
	}
}

func TestHealthAndModel(t *testing.T) {
	address, _, _ := start(t, newWriter(), 3, time.Minute)
	for path, wanted := range map[string]string{
		"/health": `{"queue":3,"status":"ok","waiting":0}`,
		"/model":  `{"context":64,"parameters":`,
	} {
		response, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), wanted) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/tokenizer"
)

var fixture = filepath.Join("..", "..", "tests", "tokenizer", "own_unigram.model")

const long = `{"prompt": "the sea", "max_tokens": 400, "ignore_eos": true, "stream": true}`

// running is a server of a small model on a port of its own.
type running struct {
	t       *testing.T
	model   *infer.LanguageModel
	server  *Server
	address string
	log     *safeBuffer
	ended   chan error
}

type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(line)
}

func (b *safeBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(b.String(), "\n")
	return lines[:len(lines)-1]
}

// start runs a server until the test ends, of two texts at once and one that waits unless `options` say more.
func start(t *testing.T, options Options) *running {
	t.Helper()
	return startModel(t, smallModel(t), options)
}

// smallModel is the folder of a small model with a tokenizer.
func smallModel(t *testing.T) string {
	t.Helper()
	tokens := must.Get(tokenizer.Open(fixture))(t)
	folder := storedmodel.Folder(t, "llama", func(config *formats.Object) { config.Set("vocab_size", tokens.VocabSize()) })
	storedmodel.WithTokenizer(t, folder, fixture)
	return folder
}

// startModel is [start] for the model of a folder.
func startModel(t *testing.T, folder string, options Options) *running {
	t.Helper()
	r := &running{t: t, log: &safeBuffer{}, ended: make(chan error, 1)}
	r.model = must.Get(infer.Load(folder, infer.LoadOptions{Options: engine.Options{MaxBatch: 2}}))(t)
	options.Name, options.Log, options.MaxQueue = "small", r.log, 1
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	r.server = must.Get(New(r.model, options))(t)
	on := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	r.address = on.Addr().String()
	go func() { r.ended <- r.server.Serve(on) }()
	t.Cleanup(func() {
		r.server.Stop("test")
		r.server.Stop("test")
		<-r.ended
		must.Do(t, r.model.Close())
	})
	return r
}

// ends waits for the server's end, which the test asked for.
func (r *running) ends() error {
	err := <-r.ended
	r.ended <- err // for the clean-up
	return err
}

// asked is a request with headers, "name: value" each.
func (r *running) asked(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	request := must.Get(http.NewRequestWithContext(ctx, method, "http://"+r.address+path, strings.NewReader(body)))(r.t)
	request.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
		if name == "Host" {
			request.Host = value
		}
	}
	return http.DefaultClient.Do(request)
}

// answer is the status and the body of a request.
func (r *running) answer(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	response := must.Get(r.asked(context.Background(), method, path, body, headers...))(r.t)
	defer response.Body.Close()
	return response.StatusCode, string(must.Get(io.ReadAll(response.Body))(r.t))
}

// codeOf is the code of an error's body.
func codeOf(t *testing.T, body string) string {
	t.Helper()
	var found struct {
		Error struct{ Message, Type, Param, Code string }
	}
	if err := json.Unmarshal([]byte(body), &found); err != nil || found.Error.Message == "" || found.Error.Type == "" {
		t.Errorf("%q is no error: %v", body, err)
	}
	return found.Error.Code
}

// until waits until something is so.
func (r *running) until(holds func() bool) {
	r.t.Helper()
	for range 3000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("it did not come to that")
}

func (r *running) open() int {
	running, waiting := r.server.service.Counts()
	return running + waiting
}

// hold keeps the engine in a step until it is let go; the text of that step is not the server's.
func (r *running) hold() (letGo func()) {
	reached, letGo := r.holdNext()
	<-reached
	return letGo
}

// holdNext is hold of the first step that the engine takes for the text; `reached` tells when it does.
func (r *running) holdNext() (reached <-chan struct{}, letGo func()) {
	hold := storedmodel.NewGate(r.model.Config().VocabSize)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range r.model.Generate(context.Background(), infer.Generation{
			Prompts: []infer.Prompt{{IDs: []int32{1, 2, 3}}}, MaxNewTokens: 2, EndIDs: []int32{},
			Constraints: []engine.Constraint{hold},
		}) {
			if err != nil {
				r.t.Error(err)
			}
		}
	}()
	letGo = sync.OnceFunc(func() {
		close(hold.Open)
		<-done
	})
	r.t.Cleanup(letGo) // before the server's end
	return hold.Reached, letGo
}

var changing = regexp.MustCompile(`"(id|created)":("[a-z]+-[0-9a-f]{32}"|\d+)`)

func TestTheSameBytesAloneAndTogether(t *testing.T) {
	r := start(t, Options{})
	bodies := make([]string, 8)
	ask := func(at int) string {
		body := fmt.Sprintf(`{"prompt": "the sea %d", "seed": %d, "max_tokens": 30, "stream": %v, "logprobs": 2}`, at, at, at%2 == 0)
		for {
			status, found := r.answer(http.MethodPost, completionsPath, body)
			if status == http.StatusOK {
				return changing.ReplaceAllString(found, "")
			}
			if code := codeOf(t, found); code != "queue_full" {
				t.Error(found)
				return ""
			}
		}
	}
	for at := range bodies {
		bodies[at] = ask(at)
	}
	var group sync.WaitGroup
	for at := range bodies {
		group.Add(1)
		go func() {
			defer group.Done()
			if found := ask(at); found != bodies[at] {
				t.Errorf("%s\n%s", found, bodies[at])
			}
		}()
	}
	group.Wait()
	r.until(func() bool { return r.open() == 0 })
}

func TestEmbeddings(t *testing.T) {
	r := start(t, Options{LogFormat: "json"})
	wanted := must.Get(r.model.Embed(context.Background(), infer.Prompt{Text: "the sea"}, infer.Prompt{IDs: []int32{5, 6}}))(t)
	var found struct {
		Data []struct{ Embedding []float32 }
	}
	status, body := r.answer(http.MethodPost, embeddingsPath, `{"input": ["the sea", [5, 6]]}`)
	must.Do(t, json.Unmarshal([]byte(body), &found))
	if status != http.StatusOK || len(found.Data) != 2 {
		t.Fatal(body)
	}
	for at, one := range found.Data {
		if !slices.Equal(one.Embedding, wanted[at]) {
			t.Errorf("input %d has another vector than the model gives", at)
		}
	}
	for body, code := range map[string]string{
		`{"input": "x", "dimensions": 3}`: "unsupported_field", `{"input": []}`: "invalid_value",
		`{"input": "x", "encoding_format": "hex"}`: "invalid_value", `{"input": ["", "", "", ""]}`: "too_many_choices",
	} {
		if status, found := r.answer(http.MethodPost, embeddingsPath, body); status != 400 || codeOf(t, found) != code {
			t.Errorf("%s: %d %s", body, status, found)
		}
	}
	if _, err := (&vectors{}).written([]float32{1, float32(math.Inf(1))}); err == nil {
		t.Error("an infinite number is written")
	}
	// A client that leaves has its places back.
	letGo := r.hold()
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := r.asked(ctx, http.MethodPost, embeddingsPath, `{"input": [[1, 2], [3]]}`)
		left <- err
	}()
	r.until(func() bool { return r.open() == 2 })
	cancel()
	<-left
	letGo()
	r.until(func() bool { return r.open() == 0 })
}

func TestAClientThatLeaves(t *testing.T) {
	r := start(t, Options{LogFormat: "json"})
	letGo := r.hold()
	for _, body := range []string{long, strings.Replace(long, "true}", "false}", 1)} {
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan error)
		go func() {
			_, err := r.asked(ctx, http.MethodPost, completionsPath, body)
			left <- err
		}()
		r.until(func() bool { return r.open() == 1 })
		before := len(r.log.lines())
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.until(func() bool { return len(r.log.lines()) > before })
		letGo() // the step that was under way
		r.until(func() bool { return r.open() == 0 })
		if state := must.Get(r.model.State(context.Background()))(t); state.Running+state.Waiting+state.UsedPages != 0 {
			t.Errorf("%+v", state)
		}
		letGo = r.hold()
	}
	if lines := r.log.lines(); len(lines) != 2 {
		t.Error(lines)
	}
	for _, line := range r.log.lines() {
		var found map[string]any
		must.Do(t, json.Unmarshal([]byte(line), &found))
		if found["gone"] != true || found["tokens"] != 0.0 || found["finish"] != "cancelled" {
			t.Error(line)
		}
	}
}

func TestAFullQueue(t *testing.T) {
	r := start(t, Options{})
	letGo := r.hold()
	var group sync.WaitGroup
	for range 3 {
		group.Add(1)
		go func() {
			defer group.Done()
			if status, body := r.answer(http.MethodPost, completionsPath, `{"prompt": "x", "max_tokens": 3}`); status != http.StatusOK {
				t.Error(body)
			}
		}()
	}
	r.until(func() bool { return r.open() == 3 })
	response := must.Get(r.asked(context.Background(), http.MethodPost, completionsPath, long))(t)
	body := string(must.Get(io.ReadAll(response.Body))(t))
	must.Do(t, response.Body.Close())
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" || codeOf(t, body) != "queue_full" {
		t.Error(body)
	}
	letGo()
	group.Wait()
	r.until(func() bool { return len(r.log.lines()) == 4 }) // what is counted is before its line
	status, text := r.answer(http.MethodGet, "/metrics", "")
	for _, line := range []string{
		`nncuda_http_requests_total{model_name="small",route="/v1/completions",status="429"} 1.0`,
		`nncuda_texts_total{model_name="small",finish="length"} 3.0`, `vllm:generation_tokens_total{model_name="small"} 9.0`,
		`nncuda_time_to_first_token_seconds_count{model_name="small"} 3.0`, `nncuda_requests_running{model_name="small"} 0.0`,
		`nncuda_text_seconds_bucket{model_name="small",le="+Inf"} 3.0`,
	} {
		if status != http.StatusOK || !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}

func TestARequestThatTakesTooLong(t *testing.T) {
	r := start(t, Options{Timeout: 50 * time.Millisecond})
	letGo := r.hold()
	status, body := r.answer(http.MethodPost, completionsPath, long)
	if status != http.StatusGatewayTimeout || !strings.Contains(body, "the request took more than 0.05 s") {
		t.Error(body)
	}
	letGo()
	r.until(func() bool { return r.open() == 0 })
}

// A server that is told to end lets what runs end, and listens no more.
func TestDraining(t *testing.T) {
	r := start(t, Options{Drain: time.Minute})
	letGo := r.hold()
	done := make(chan string)
	go func() {
		_, body := r.answer(http.MethodPost, completionsPath, long)
		done <- body
	}()
	r.until(func() bool { return r.open() == 1 })
	r.server.Stop("test")
	r.until(func() bool {
		made, err := net.Dial("tcp", r.address)
		if err == nil {
			must.Do(t, made.Close())
		}
		return err != nil
	})
	letGo()
	if body := <-done; !strings.HasSuffix(body, `"finish_reason":"length"}]}`+"\n\n"+endOfEvents) {
		t.Error(body)
	}
	must.Do(t, r.ends())
}

// Who comes in the moment before the connections close is told why.
func TestRequestsWhileItDrains(t *testing.T) {
	r := start(t, Options{})
	r.server.app.draining.Store(true)
	if status, body := r.answer(http.MethodPost, completionsPath, long); status != 503 || codeOf(t, body) != "draining" {
		t.Error(body)
	}
	if status, body := r.answer(http.MethodGet, "/health/ready", ""); status != 503 || body != `{"live":true,"ready":false}` {
		t.Error(body)
	}
	if status, _ := r.answer(http.MethodGet, "/health/live", ""); status != http.StatusOK {
		t.Error(status)
	}
}

func TestTheSecondStopCuts(t *testing.T) {
	t.Run("completions", func(t *testing.T) { secondStop(t, completionsPath, long, 0) })
	t.Run("responses", func(t *testing.T) {
		asked := `{"input": "the sea", "max_output_tokens": 400, "ignore_eos": true, "stream": true}`
		secondStop(t, responsesPath, asked, 1) // that it failed comes after the error
	})
}

// secondStop stops a server twice while a stream comes. Its error must stand so many events before the last.
func secondStop(t *testing.T, path, asked string, before int) {
	r := start(t, Options{Drain: time.Minute})
	goOn := r.hold()
	answered := make(chan *http.Response)
	go func() {
		response, err := r.asked(context.Background(), http.MethodPost, path, asked)
		if err != nil {
			t.Error(err)
		}
		answered <- response
	}()
	r.until(func() bool { return r.open() == 1 })
	reached, letGo := r.holdNext()
	time.Sleep(50 * time.Millisecond) // it waits for the engine by now
	goOn()
	<-reached // some steps later: the stream has begun, and goes on for long
	response := <-answered
	defer response.Body.Close()
	r.server.Stop("test")
	r.until(r.server.app.draining.Load)
	r.server.Stop("test")
	r.until(func() bool { return r.server.service.CheckPlaces(0) != nil })
	letGo()
	body := string(must.Get(io.ReadAll(response.Body))(t))
	parts := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	last := parts[max(len(parts)-2-before, 0)]
	if parts[len(parts)-1] != "data: [DONE]" || codeOf(t, last[strings.Index(last, "{"):]) != "draining" ||
		before == 1 && !strings.HasPrefix(parts[len(parts)-2], "event: response.failed\n") {
		t.Error(body)
	}
	must.Do(t, r.ends())
}

func TestADeviceThatFails(t *testing.T) {
	r := start(t, Options{Drain: time.Minute})
	letGo := r.hold()
	done := make(chan string)
	go func() {
		_, body := r.answer(http.MethodPost, completionsPath, strings.Replace(long, "true}", "false}", 1))
		done <- body
	}()
	r.until(func() bool { return r.open() == 1 })
	closed := make(chan error)
	go func() { closed <- r.model.Close() }()
	time.Sleep(20 * time.Millisecond) // it waits for the step by now; if not, the text is a little longer
	letGo()
	must.Do(t, <-closed)
	if body := <-done; codeOf(t, body) != "engine_failed" {
		t.Error(body)
	}
	if err := r.ends(); !errors.Is(err, infer.ErrClosed) {
		t.Error(err)
	}
}

func TestWhoMayAsk(t *testing.T) {
	r := start(t, Options{Keys: []string{"first", "second"}})
	for authorization, wanted := range map[string]int{
		"Bearer first": 200, "bearer  second ": 200, "Bearer third": 401, "first": 401, "Basic first": 401, "Bearer firs": 401, "": 401,
	} {
		status, body := r.answer(http.MethodGet, "/v1/models", "", "Authorization: "+authorization, "Host: example.org")
		if status != wanted {
			t.Errorf("%q: %d %s", authorization, status, body)
		}
	}
	for _, path := range []string{"/", "/health", "/health/live", "/health/ready"} {
		if status, _ := r.answer(http.MethodGet, path, ""); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	open := start(t, Options{NoPage: true})
	for host, wanted := range map[string]int{
		"localhost:80": 200, "a.localhost": 200, "127.0.0.9": 200, "[::1]:9": 200, "example.org": 403, "localhost.example.org:80": 403,
	} {
		if status, body := open.answer(http.MethodGet, "/health", "", "Host: "+host); status != wanted {
			t.Errorf("%s: %d %s", host, status, body)
		}
	}
	if status, _ := open.answer(http.MethodGet, "/", ""); status != http.StatusNotFound {
		t.Error("the page is there")
	}
}

func TestLimits(t *testing.T) {
	r := start(t, Options{})
	if status, body := r.answer(http.MethodPost, completionsPath, strings.Repeat(" ", limit("body_bytes")+1)); status != 413 {
		t.Errorf("%d %s", status, body)
	}
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write(bytes.Repeat([]byte(" "), limit("body_bytes")+1))
		_ = writer.Close()
	}()
	request := must.Get(http.NewRequest(http.MethodPost, "http://"+r.address+completionsPath, reader))(t)
	request.Header.Set("Content-Type", "application/json")
	if response, err := http.DefaultClient.Do(request); err == nil { // which may still have been sending
		if response.StatusCode != 413 {
			t.Error(response.Status)
		}
		must.Do(t, response.Body.Close())
	}
	// What net/http refuses by itself has the form of the other errors.
	for sent, wanted := range map[string]string{
		"hello\r\n\r\n": "400 bad_http", "GET / HTTP/1.1\r\n\r\n": "400 bad_http", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n": "400 bad_http",
		"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + strings.Repeat("y", limit("header_bytes")):                                         "431 headers_too_large",
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n": "400 bad_http",
	} {
		made := must.Get(net.Dial("tcp", r.address))(t)
		must.Get(io.WriteString(made, sent))(t)
		response := must.Get(http.ReadResponse(bufio.NewReader(made), nil))(t)
		body := string(must.Get(io.ReadAll(response.Body))(t))
		if found := strconv.Itoa(response.StatusCode) + " " + codeOf(t, body); found != wanted {
			t.Errorf("%.40q: %s, not %s", sent, found, wanted)
		}
		must.Do(t, made.Close())
	}
	if status, _ := r.answer(http.MethodGet, "/health", ""); status != http.StatusOK {
		t.Error("it suffered")
	}
}

// The answer comes before the end of a body that is not needed, and the client may send all of it.
func TestAnErrorBeforeTheEndOfTheBody(t *testing.T) {
	r := start(t, Options{})
	made := must.Get(net.Dial("tcp", r.address))(t)
	defer made.Close()
	const size = 3 << 20
	must.Get(fmt.Fprintf(made, "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size))(t)
	for range 3 {
		must.Get(made.Write(make([]byte, size/3)))(t)
		time.Sleep(10 * time.Millisecond)
	}
	response := must.Get(http.ReadResponse(bufio.NewReader(made), nil))(t)
	if body := string(must.Get(io.ReadAll(response.Body))(t)); codeOf(t, body) != "route_not_found" {
		t.Error(body)
	}
}

// A head that does not come in time is told so, and a connection that waits for its next request is just closed.
func TestASlowHead(t *testing.T) {
	for _, served := range []bool{false, true} {
		ours, theirs := net.Pipe()
		made := &connection{Conn: ours, from: &listener{}}
		made.idle.Store(served)
		must.Do(t, made.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		go func() {
			_, _ = made.Read(make([]byte, 1))
			if !served {
				_, _ = made.Write(append([]byte("HTTP/1.1 400 Bad Request"), plainError...)) // as net/http does
			}
			_ = made.Close()
		}()
		found := string(must.Get(io.ReadAll(theirs))(t))
		if served != (found == "") || !served && (!strings.HasPrefix(found, "HTTP/1.1 408 ") || strings.Contains(found, "400")) {
			t.Errorf("%v: %q", served, found)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	on := &listener{Listener: must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)}
	defer on.Close()
	on.open.Store(int64(limit("connections")))
	go func() { _, _ = on.Accept() }()
	made := must.Get(net.Dial("tcp", on.Addr().String()))(t)
	defer made.Close()
	found := string(must.Get(io.ReadAll(made))(t))
	if !strings.HasPrefix(found, "HTTP/1.1 503 ") || !strings.Contains(found, "too_many_connections") {
		t.Error(found)
	}
}

func TestLinesOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log := &accessLog{to: &out}
	log.record(object{{"path", "/a b=\"\n"}, {"none", nil}, {"empty", ""}, {"count", 3}, {"plain", "/x-y"}, {"seconds", seconds(1500 * time.Microsecond)}})
	_, found, _ := strings.Cut(out.String(), " ")
	if wanted := `path="/a b=\"\n" empty="" count=3 plain=/x-y seconds=0.0015` + "\n"; found != wanted {
		t.Error(found)
	}
}

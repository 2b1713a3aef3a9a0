package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/grammar"
)

// app answers requests for one model.
type app struct {
	service   *infer.Service
	model     *infer.LanguageModel
	served    *served
	created   int64
	guard     *guard
	log       *accessLog
	metrics   *metrics
	timeout   time.Duration
	draining  atomic.Bool
	failed    atomic.Bool
	preparing atomic.Int64 // requests whose texts become ids
	routes    []route
}

// route is a path and what answers there.
type route struct {
	path, method string
	answer       func(*exchange) error
}

// modelPath is the route of one model, by the name that metrics have for it.
const modelPath, modelPrefix = "/v1/models/{id:path}", "/v1/models/"

// exchange is a request and what became of it, for the log.
type exchange struct {
	*response
	r      *http.Request
	ctx    context.Context
	late   *apiError // what it gets when its time is over
	begun  time.Time
	answer reply
	gone   bool
	failed string // the error's code
}

func newApp(of *served, service *infer.Service, counted *metrics, log *accessLog, options Options) *app {
	made := &app{
		service: service, model: of.model, served: of, created: time.Now().Unix(), metrics: counted, log: log,
		guard: newGuard(options.Keys, options.Anyone), timeout: options.Timeout,
	}
	completions, chat, responses, tokens := newCompletions(of), newChat(of), newResponses(of), newTokens(of)
	made.routes = []route{
		{"/health", http.MethodGet, made.health},
		{"/health/live", http.MethodGet, made.live},
		{"/health/ready", http.MethodGet, made.health},
		{"/metrics", http.MethodGet, made.sendMetrics},
		{"/v1/models", http.MethodGet, made.models},
		{modelPath, http.MethodGet, made.oneModel},
		{completionsPath, http.MethodPost, made.answering(completions.prepare)},
		{chatPath, http.MethodPost, made.answering(chat.prepare)},
		{responsesPath, http.MethodPost, made.answering(responses.prepare)},
		{embeddingsPath, http.MethodPost, made.answering(newEmbeddings(of).prepare)},
		{"/tokenize", http.MethodPost, converting(tokens.tokenize)},
		{"/detokenize", http.MethodPost, converting(tokens.detokenize)},
		{"/tokenizer_info", http.MethodGet, telling(tokens.info)},
	}
	if !options.NoPage {
		made.routes = append(made.routes, route{"/", http.MethodGet, sendPage})
	}
	return made
}

// ServeHTTP answers one request, counts it and writes its line.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer markBusy(r)()
	x := &exchange{response: &response{w: w, control: http.NewResponseController(w)}, r: r, begun: time.Now()}
	path := "other"
	defer func() {
		if problem := recover(); problem != nil {
			a.log.message("error", fmt.Sprintf("a request failed: %v\n%s", problem, debug.Stack()))
			a.sendError(x, refusal("internal_error", nil, nil))
		}
		a.finish(x, path)
	}()
	err := a.guard.check(r)
	if err == nil {
		var found route
		if found, err = a.find(r); err == nil {
			path = found.path
			late := refusal("timeout", nil, named{"seconds": strconv.FormatFloat(a.timeout.Seconds(), 'g', 6, 64)})
			ctx, cancel := context.WithTimeoutCause(r.Context(), a.timeout, late)
			defer cancel()
			x.ctx, x.late = ctx, late
			err = found.answer(x)
		}
	}
	a.end(x, err)
}

// end tells the client of an error, if there is one and it is still there.
func (a *app) end(x *exchange, err error) {
	var refused *apiError
	var broken *grammar.Error
	switch {
	case err == nil:
	case errors.As(err, &refused):
		a.sendError(x, refused)
	case errors.As(err, &broken): // which ended a text, since a limit of llguidance for one step was reached
		a.log.message("warning", fmt.Sprintf("a text ended: %v", broken))
		a.sendError(x, refusal("schema_too_costly", nil, nil))
	case errors.Is(err, errGone), x.r.Context().Err() != nil:
		x.gone = true
		a.giveUp(x)
	case a.failed.Load():
		a.sendError(x, refusal("engine_failed", nil, nil))
	default:
		a.log.message("error", fmt.Sprintf("a request failed: %v", err))
		a.sendError(x, refusal("internal_error", nil, nil))
	}
}

func (a *app) find(r *http.Request) (route, error) {
	var other *route
	for at, one := range a.routes {
		if one.path != r.URL.Path && !(one.path == modelPath && strings.HasPrefix(r.URL.Path, modelPrefix)) {
			continue
		}
		if r.Method == one.method || r.Method == http.MethodHead && one.method == http.MethodGet {
			return one, nil
		}
		other = &a.routes[at]
	}
	if other == nil {
		return route{}, refusal("route_not_found", nil, named{"route": cut(r.URL.Path, 256)})
	}
	allowed := other.method
	if allowed == http.MethodGet {
		allowed = "GET, HEAD"
	}
	return route{}, refusal("method_not_allowed", nil, named{"route": other.path, "method": cut(r.Method, 32)}).
		with("Allow", allowed)
}

// sendError sends an error as the response, or, when one has begun, as its end; after the end there is nobody to tell.
func (a *app) sendError(x *exchange, err *apiError) {
	a.giveUp(x) // at once: a client may take its time to read why
	if x.complete {
		return
	}
	x.failed = err.code
	switch {
	case x.status == 0:
		for name, value := range err.headers {
			x.w.Header().Set(name, value)
		}
		after := linger(x.w, x.r)
		if x.gone = x.respond(err.status, contentJSON, err.body()) != nil; !x.gone {
			after()
		}
	case x.answer != nil && x.answer.streams():
		x.gone = x.answer.sendError(x.response, err) != nil
	}
}

// giveUp ends what is left of an answer.
func (a *app) giveUp(x *exchange) {
	if x.answer != nil {
		a.service.Cancel(x.answer.submitted())
	}
}

// finish counts a request and writes its line.
func (a *app) finish(x *exchange, path string) {
	a.giveUp(x)
	status, statusText := any(nil), "none"
	if x.status != 0 {
		status, statusText = x.status, strconv.Itoa(x.status)
	}
	a.metrics.answered(path, statusText)
	client, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		client = x.r.RemoteAddr
	}
	line := object{
		{"status", status}, {"method", cut(x.r.Method, 32)}, {"path", cut(x.r.URL.Path, 256)}, {"client", client},
		{"seconds", seconds(time.Since(x.begun))}, {"error", given(x.failed)}, {"gone", nil},
	}
	if x.gone {
		line[len(line)-1].value = true
	}
	if x.answer != nil {
		line = append(line, x.answer.logged()...)
	}
	a.log.record(line)
}

// given is a text, nil for an empty one.
func given(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// loggedTexts is what the log says of an answer and its texts.
func loggedTexts(id, user string, promptTokens int, texts []*infer.Text) object {
	shared, tokens := 0, 0
	var queue, first any
	var reasons []string
	earliest := func(known any, from, to time.Time) any {
		if to.IsZero() {
			return known
		}
		spent := seconds(to.Sub(from))
		if known != nil && known.(float32) < spent.(float32) {
			return known
		}
		return spent
	}
	for _, text := range texts {
		done := text.Progress()
		shared, tokens = shared+done.Shared, tokens+done.Tokens
		queue, first = earliest(queue, done.Submitted, done.Admitted), earliest(first, done.Submitted, done.First)
		reason := string(done.Finish)
		if reason == "" {
			reason = "cancelled"
		}
		reasons = append(reasons, reason)
	}
	return object{
		{"id", given(id)}, {"user", given(user)}, {"prompt_tokens", promptTokens}, {"shared_tokens", shared},
		{"tokens", tokens}, {"queue_seconds", queue}, {"first_seconds", first}, {"finish", counted(reasons)},
	}
}

// counted says why texts ended: one word where all have one reason, else how often each was it.
func counted(reasons []string) string {
	slices.Sort(reasons)
	var parts []string
	for start := 0; start < len(reasons); {
		end := start
		for end < len(reasons) && reasons[end] == reasons[start] {
			end++
		}
		if end-start == len(reasons) {
			return reasons[0]
		}
		parts = append(parts, fmt.Sprintf("%s*%d", reasons[start], end-start))
		start = end
	}
	return strings.Join(parts, ",")
}

// answering gives an endpoint that writes texts.
func (a *app) answering(prepare func(*formats.Object) (reply, error)) func(*exchange) error {
	return func(x *exchange) error {
		if a.draining.Load() {
			return refusal("draining", nil, nil).with("Connection", "close")
		}
		body, err := readObject(x)
		if err != nil {
			return err
		}
		// Each has one text at least: what could not be submitted need not be looked into.
		err = a.service.CheckPlaces(int(a.preparing.Add(1)))
		var made reply
		if err == nil {
			made, err = prepare(body)
		}
		a.preparing.Add(-1)
		if err == nil {
			err = made.submit(a.service)
		}
		if errors.Is(err, infer.ErrQueueFull) {
			return refusal("queue_full", nil, named{"places": a.service.Places(), "seconds": 1}).with("Retry-After", "1")
		}
		if err != nil {
			return err
		}
		x.answer = made
		return made.send(x.ctx, x.response)
	}
}

// converting gives an endpoint that needs the tokenizer alone.
func converting(convert func(*formats.Object) (object, error)) func(*exchange) error {
	return func(x *exchange) error {
		body, err := readObject(x)
		if err != nil {
			return err
		}
		found, err := convert(body)
		if err != nil {
			return err
		}
		return x.respond(http.StatusOK, contentJSON, jsonOf(found))
	}
}

// telling gives an endpoint that says what the tokenizer is.
func telling(told func() (object, error)) func(*exchange) error {
	return func(x *exchange) error {
		found, err := told()
		if err != nil {
			return err
		}
		return x.respond(http.StatusOK, contentJSON, jsonOf(found))
	}
}

// described is what there is to say of the model, or of one of its adapters.
func (a *app) described(name string) object {
	found := object{
		{"id", name}, {"object", "model"}, {"created", a.created}, {"owned_by", "nncuda"},
		{"max_model_len", a.model.Context()},
	}
	if name != a.served.name {
		found = append(found, member{"parent", a.served.name})
	}
	return found
}

func (a *app) models(x *exchange) error {
	data := list{}
	for _, name := range a.served.all() {
		data = append(data, a.described(name))
	}
	return x.respond(http.StatusOK, contentJSON, jsonOf(object{{"object", "list"}, {"data", data}}))
}

func (a *app) oneModel(x *exchange) error {
	found, err := a.served.find(strings.TrimPrefix(x.r.URL.Path, modelPrefix))
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, contentJSON, jsonOf(a.described(found.name)))
}

func (a *app) live(x *exchange) error {
	return x.respond(statusOf(!a.failed.Load()), contentJSON, jsonOf(object{{"live", !a.failed.Load()}}))
}

func (a *app) health(x *exchange) error {
	live := !a.failed.Load()
	ready := live && !a.draining.Load()
	return x.respond(statusOf(ready), contentJSON, jsonOf(object{{"live", live}, {"ready", ready}}))
}

func statusOf(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a *app) sendMetrics(x *exchange) error {
	text, err := a.metrics.text(x.ctx, a.service, a.model)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, contentMetrics, text)
}

func sendPage(x *exchange) error {
	x.w.Header().Set("Cache-Control", "no-cache")
	return x.respond(http.StatusOK, "text/html; charset=utf-8", page)
}

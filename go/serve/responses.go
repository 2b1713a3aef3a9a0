package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// responses makes responses of the bodies of /v1/responses, the newer of OpenAI's forms, of which this server keeps
// nothing. (https://www.openresponses.org/specification, whose stateless part this is)
type responses struct {
	*served
	checker *checker
}

const responsesPath = "/v1/responses"

func newResponses(of *served) *responses {
	return &responses{of, newChecker("responses", responsesPath)}
}

// prepare gives the response that a body asks for, not submitted yet.
func (r *responses) prepare(body *formats.Object) (reply, error) {
	v, err := r.checker.check(body)
	if err != nil {
		return nil, err
	}
	wanted, _, err := r.shared(v, 1)
	if err != nil {
		return nil, err
	}
	messages, err := inputMessages(v["input"], v.text("instructions"))
	if err != nil {
		return nil, err
	}
	ids, stops, err := r.conversation(messages, "input", tokenizer.Rendering{})
	if err != nil {
		return nil, err
	}
	wanted.Stop = append(append([]string{}, wanted.Stop...), stops...)
	most := int64(math.MaxInt64)
	if given, ok := v["max_output_tokens"].(int64); ok {
		most = given
	}
	alternatives, given := v["top_logprobs"].(int64)
	wanted.Logprobs, wanted.TopLogprobs = len(v.texts("include")) > 0, int(alternatives)
	if given && !wanted.Logprobs {
		return nil, refusal("needs_field", "top_logprobs", named{"name": "top_logprobs", "other": "include"})
	}
	described, err := formatOfText(v["text"])
	if err != nil {
		return nil, err
	}
	rules, err := r.formats.ofText(described)
	if err != nil {
		return nil, err
	}
	made := &openResponse{
		model: r.name, asked: v, format: shownFormat(described), generation: r.texts(wanted, v, ids, most, rules)[0],
		promptTokens: len(ids), logprobs: list{},
	}
	if wanted.Logprobs {
		made.scores = &chatLogprobs{r.names}
	}
	return made, nil
}

// formatOfText is the `format` of a `text`, nil where there is none; who makes its grammar looks into it.
func formatOfText(value any) (*formats.Object, error) {
	text, ok := value.(*formats.Object)
	if !ok {
		return nil, nil
	}
	for _, key := range text.Names() {
		name, one := cut("text."+key, 256), text.Get(key)
		switch _, isObject := one.(*formats.Object); {
		case key != "format" && key != "verbosity":
			return nil, unknown(name, "text")
		case one != nil && key == "verbosity":
			return nil, refusal("unsupported_field", name,
				named{"name": name, "value": quoted(one), "why": words("short")})
		case one != nil && !isObject:
			return nil, invalid(name, one, words("format"))
		}
	}
	described, _ := text.Get("format").(*formats.Object)
	return described, nil
}

// shownFormat is a format as responses have it: without its schema, as Open Responses wants.
func shownFormat(described *formats.Object) object {
	if described == nil {
		return object{{"type", "text"}}
	}
	kind := described.Get("type")
	if kind != "json_schema" {
		return object{{"type", kind}}
	}
	name, _ := described.Get("name").(string)
	strict, _ := described.Get("strict").(bool)
	return object{
		{"type", kind}, {"name", name}, {"description", described.Get("description")}, {"schema", nil}, {"strict", strict},
	}
}

// openResponse is a response: what was asked for, and the text that is written. Its bytes depend on the request alone,
// but for ids and times.
type openResponse struct {
	model        string
	asked        values
	format       object // of the text, as responses have it
	generation   infer.Generation
	promptTokens int
	scores       *chatLogprobs // where log-probabilities were asked for

	id, itemID string
	created    int64
	under      *infer.Text     // once it is submitted
	events     int             // that were written
	written    int             // tokens
	text       strings.Builder // so far
	logprobs   list
}

func (o *openResponse) submit(service *infer.Service) error {
	texts, err := service.Submit([]infer.Generation{o.generation})
	if err != nil {
		return err
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	o.under, o.created = texts[0], time.Now().Unix()
	o.id, o.itemID = "resp_"+hex.EncodeToString(random[:]), "msg_"+hex.EncodeToString(random[:])
	return nil
}

func (o *openResponse) submitted() []*infer.Text {
	if o.under == nil {
		return nil
	}
	return []*infer.Text{o.under}
}

func (o *openResponse) streams() bool { return o.asked.flag("stream") }

func (o *openResponse) logged() object {
	return loggedTexts(o.id, o.asked.text("user"), o.promptTokens, o.submitted())
}

func (o *openResponse) send(ctx context.Context, to *response) error {
	if o.streams() {
		return o.sendEvents(ctx, to)
	}
	for {
		_, _, finish, err := o.next(ctx)
		if err != nil {
			return err
		}
		if finish != "" {
			return to.respond(http.StatusOK, contentJSON, jsonOf(o.finished(finish)))
		}
	}
}

func (o *openResponse) sendEvents(ctx context.Context, to *response) error {
	for finish := engine.Finish(""); finish == ""; {
		text, scores, reason, err := o.next(ctx)
		if err != nil {
			return err
		}
		var body []byte
		if o.events == 0 {
			body = o.appendBeginning(body)
		}
		if text != "" || len(scores) > 0 {
			delta := append(o.place(), member{"delta", text}, member{"logprobs", scores})
			body = o.appendEvent(body, "response.output_text.delta", delta)
		}
		if finish = reason; finish != "" {
			body = o.appendEnd(body, finish)
		}
		if len(body) == 0 {
			continue
		}
		if err := to.event(body); err != nil {
			return err
		}
	}
	return to.event([]byte(endOfEvents))
}

// sendError ends a stream that has begun.
func (o *openResponse) sendError(to *response, err *apiError) error {
	var param any
	if err.param != "" {
		param = err.param
	}
	whole := object{{"type", err.kind}, {"code", err.code}, {"message", err.sentence}, {"param", param}}
	failed := o.resource("failed", list{}, object{{"code", err.code}, {"message", err.sentence}}, nil)
	body := o.appendEvent(nil, "error", object{{"error", whole}})
	body = o.appendEvent(body, "response.failed", object{{"response", failed}})
	return to.event(append(body, endOfEvents...))
}

// next takes an event: its text, and the log-probabilities of a token that belongs to it.
func (o *openResponse) next(ctx context.Context) (text string, scores list, finish engine.Finish, err error) {
	event, err := o.under.Next(ctx)
	if err != nil {
		return "", nil, "", err
	}
	if event.Token != infer.NoToken {
		o.written++
	}
	scores = list{}
	if o.scores != nil && event.Logprobs != nil && event.Finish != engine.End {
		if scores, err = o.scores.entries([]scored{{event.Token, event.Logprobs}}); err != nil {
			return "", nil, "", err
		}
	}
	o.text.WriteString(event.Text)
	o.logprobs = append(o.logprobs, scores...)
	return event.Text, scores, event.Finish, nil
}

// appendBeginning appends the events before the first of the text.
func (o *openResponse) appendBeginning(to []byte) []byte {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		to = o.appendEvent(to, kind, object{{"response", o.resource("in_progress", list{}, nil, nil)}})
	}
	item := o.item("in_progress", list{})
	to = o.appendEvent(to, "response.output_item.added", object{{"output_index", 0}, {"item", item}})
	return o.appendEvent(to, "response.content_part.added", append(o.place(), member{"part", outputPart("", list{})}))
}

// appendEnd appends the events after the last of the text.
func (o *openResponse) appendEnd(to []byte, finish engine.Finish) []byte {
	status := o.status(finish)
	part := outputPart(o.text.String(), o.logprobs)
	done := append(o.place(), member{"text", o.text.String()}, member{"logprobs", o.logprobs})
	to = o.appendEvent(to, "response.output_text.done", done)
	to = o.appendEvent(to, "response.content_part.done", append(o.place(), member{"part", part}))
	item := o.item(status, list{part})
	to = o.appendEvent(to, "response.output_item.done", object{{"output_index", 0}, {"item", item}})
	return o.appendEvent(to, "response."+status, object{{"response", o.finished(finish)}})
}

func (o *openResponse) appendEvent(to []byte, kind string, more object) []byte {
	value := append(object{{"type", kind}, {"sequence_number", o.events}}, more...)
	o.events++
	return appendEvent(append(to, "event: "+kind+"\n"...), value)
}

// place says what an event is of.
func (o *openResponse) place() object {
	return object{{"item_id", o.itemID}, {"output_index", 0}, {"content_index", 0}}
}

func (o *openResponse) status(finish engine.Finish) string {
	if finishOf(finish) == "stop" {
		return "completed"
	}
	return "incomplete"
}

// finished is the response with all of its text.
func (o *openResponse) finished(finish engine.Finish) object {
	status := o.status(finish)
	item := o.item(status, list{outputPart(o.text.String(), o.logprobs)})
	return o.resource(status, list{item}, nil, object{
		{"input_tokens", o.promptTokens},
		{"input_tokens_details", object{{"cached_tokens", 0}}}, // an answer does not tell what the cache held
		{"output_tokens", o.written},
		{"output_tokens_details", object{{"reasoning_tokens", 0}}},
		{"total_tokens", o.promptTokens + o.written},
	})
}

func (o *openResponse) item(status string, content list) object {
	return object{
		{"type", "message"}, {"id", o.itemID}, {"status", status}, {"role", "assistant"}, {"content", content},
	}
}

func outputPart(text string, logprobs list) object {
	return object{{"type", "output_text"}, {"text", text}, {"annotations", list{}}, {"logprobs", logprobs}}
}

// resource is the response as it is now, with what it was asked for; `failure` and `usage` are nil for none.
func (o *openResponse) resource(status string, output list, failure, usage any) object {
	var completed, details any
	switch status {
	case "completed":
		completed = time.Now().Unix()
	case "incomplete":
		details = object{{"reason", "max_output_tokens"}}
	}
	top, _ := o.asked["top_logprobs"].(int64)
	number := func(name string) float32 { return float32(o.asked.number(name)) }
	return object{
		{"id", o.id},
		{"object", "response"},
		{"created_at", o.created},
		{"completed_at", completed},
		{"status", status},
		{"error", failure},
		{"incomplete_details", details},
		{"instructions", o.asked["instructions"]},
		{"max_output_tokens", o.asked["max_output_tokens"]},
		{"model", o.model},
		{"output", output},
		{"previous_response_id", nil},
		{"reasoning", nil},
		{"text", object{{"format", o.format}}},
		{"tools", list{}},
		{"tool_choice", "none"},
		{"parallel_tool_calls", true},
		{"max_tool_calls", nil},
		{"temperature", number("temperature")},
		{"top_p", number("top_p")},
		{"presence_penalty", number("presence_penalty")},
		{"frequency_penalty", number("frequency_penalty")},
		{"top_logprobs", top},
		{"truncation", "disabled"},
		{"store", false},
		{"background", false},
		{"service_tier", "default"},
		{"metadata", object{}},
		{"user", o.asked["user"]},
		{"safety_identifier", nil},
		{"prompt_cache_key", nil},
		{"usage", usage},
	}
}

package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"net/http"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
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
	of, err := r.find(v["model"])
	if err != nil {
		return nil, err
	}
	wanted, _, err := r.shared(v, 1)
	if err != nil {
		return nil, err
	}
	described, err := formatOfText(v["text"])
	if err != nil {
		return nil, err
	}
	wantedTools, err := requestedTools(v, textFormatField, described, true)
	if err != nil {
		return nil, err
	}
	messages, aboutTools, err := inputMessages(v["input"], v.text("instructions"))
	if err != nil {
		return nil, err
	}
	read, err := r.conversation(messages, "input", wantedTools, aboutTools)
	if err != nil {
		return nil, err
	}
	wanted.Stop = append(append([]string{}, wanted.Stop...), read.stops...)
	most := int64(math.MaxInt64)
	if given, ok := v["max_output_tokens"].(int64); ok {
		most = given
	}
	alternatives, given := v["top_logprobs"].(int64)
	wanted.Logprobs, wanted.TopLogprobs = len(v.texts("include")) > 0, int(alternatives)
	if given && !wanted.Logprobs {
		return nil, refusal("needs_field", "top_logprobs", named{"name": "top_logprobs", "other": "include"})
	}
	rules, err := r.formats.ofText(described)
	if err != nil {
		return nil, err
	}
	made := &openResponse{
		model: of.name, asked: v, format: shownFormat(described), promptTokens: len(read.ids), tools: list{},
		marks: map[int32]string{},
	}
	if wantedTools != nil {
		marks, err := read.calls.controlTokens(r.model.Tokenizer(), r.names)
		if err != nil {
			return nil, err
		}
		if rules, err = r.formats.ofCalls(wantedTools, v["tool_choice"], read.calls, marks); err != nil {
			return nil, err
		}
		for text, token := range marks {
			made.marks[token] = text
		}
		made.output.reader = newToolCallReader(read.calls, wantedTools.names(), wantedTools.parallel)
		for _, one := range wantedTools.offered {
			made.tools = append(made.tools, shownTool(one))
		}
	}
	made.generation = r.texts(wanted, v, of.prompt(read.ids), most, rules)[0]
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

// shownTool is a function as responses have it.
func shownTool(one tool) object {
	var parameters any
	if one.parameters != nil {
		parameters = one.parameters
	}
	return object{
		{"type", "function"}, {"name", one.name}, {"description", one.describes}, {"parameters", parameters},
		{"strict", one.strict},
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
	tools        list             // that the model may call
	marks        map[int32]string // texts of the form of calls that are control tokens
	scores       *chatLogprobs    // where log-probabilities were asked for

	id      string
	created int64
	under   *infer.Text // once it is submitted
	events  int         // that were written
	written int         // tokens
	output  outputItems
}

func (o *openResponse) submit(service *infer.Service) error {
	texts, err := service.Submit([]infer.Generation{o.generation})
	if err != nil {
		return err
	}
	rand.Read(o.output.number[:]) // never fails
	o.under, o.created, o.id = texts[0], time.Now().Unix(), "resp_"+hex.EncodeToString(o.output.number[:])
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
	o.output.begin()
	for {
		_, finish, err := o.next(ctx)
		if err != nil {
			return err
		}
		if finish != "" {
			o.output.end(o.status(finish))
			return to.respond(http.StatusOK, contentJSON, jsonOf(o.finished(finish)))
		}
	}
}

func (o *openResponse) sendEvents(ctx context.Context, to *response) error {
	first := o.output.begin() // which goes out with the first token
	for finish := engine.Finish(""); finish == ""; {
		changes, reason, err := o.next(ctx)
		if err != nil {
			return err
		}
		var body []byte
		if o.events == 0 {
			body = o.appendBeginning(body, first)
		}
		body = o.appendChanges(body, changes)
		if finish = reason; finish != "" {
			body = o.appendChanges(body, o.output.end(o.status(finish)))
			body = o.appendEvent(body, "response."+o.status(finish), object{{"response", o.finished(finish)}})
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
	whole := object{{"type", err.kind}, {"code", err.code}, {"message", err.sentence}, {"param", err.param}}
	failed := o.resource("failed", list{}, object{{"code", err.code}, {"message", err.sentence}}, nil)
	body := o.appendEvent(nil, "error", object{{"error", whole}})
	body = o.appendEvent(body, "response.failed", object{{"response", failed}})
	return to.event(append(body, endOfEvents...))
}

// next takes an event: what it changes by its text, and the log-probabilities of a token that belongs to it.
func (o *openResponse) next(ctx context.Context) ([]change, engine.Finish, error) {
	event, err := o.under.Next(ctx)
	if err != nil {
		return nil, "", err
	}
	if event.Token != infer.NoToken {
		o.written++
	}
	var scores list
	if o.scores != nil && event.Logprobs != nil && event.Finish != engine.End {
		if scores, err = o.scores.entries([]scored{{event.Token, event.Logprobs}}); err != nil {
			return nil, "", err
		}
	}
	return o.output.push(event.Text+o.marks[event.Token], scores), event.Finish, nil
}

// appendBeginning appends the events before the first of the text.
func (o *openResponse) appendBeginning(to []byte, first []change) []byte {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		to = o.appendEvent(to, kind, object{{"response", o.resource("in_progress", list{}, nil, nil)}})
	}
	return o.appendChanges(to, first)
}

func (o *openResponse) appendChanges(to []byte, changes []change) []byte {
	for _, one := range changes {
		to = o.appendEvent(to, one.kind, one.more)
	}
	return to
}

func (o *openResponse) appendEvent(to []byte, kind string, more object) []byte {
	value := append(object{{"type", kind}, {"sequence_number", o.events}}, more...)
	o.events++
	return appendEvent(append(to, "event: "+kind+"\n"...), value)
}

func (o *openResponse) status(finish engine.Finish) string {
	if finishOf(finish) == "stop" {
		return "completed"
	}
	return "incomplete"
}

// finished is the response with all of its items.
func (o *openResponse) finished(finish engine.Finish) object {
	status := o.status(finish)
	return o.resource(status, o.output.done, nil, object{
		{"input_tokens", o.promptTokens},
		{"input_tokens_details", object{{"cached_tokens", 0}}}, // an answer does not tell what the cache held
		{"output_tokens", o.written},
		{"output_tokens_details", object{{"reasoning_tokens", 0}}},
		{"total_tokens", o.promptTokens + o.written},
	})
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
	choice := any("none")
	if len(o.tools) > 0 {
		if choice = o.asked["tool_choice"]; choice == nil {
			choice = "auto"
		}
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
		{"tools", o.tools},
		{"tool_choice", choice},
		{"parallel_tool_calls", o.asked.flag("parallel_tool_calls")},
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

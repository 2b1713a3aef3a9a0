package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
)

// finishes are how OpenAI calls the reasons for which a text ends.
var finishes = map[engine.Finish]string{engine.End: "stop", engine.Stop: "stop", engine.Length: "length"}

func finishOf(reason engine.Finish) string {
	if known := finishes[reason]; known != "" {
		return known
	}
	return string(reason)
}

// form is how a route writes its texts: parts of JSON objects, `index` being that of the text, and `scores` what
// logprobs gives, nil where they were not asked for.
type form interface {
	idPrefix() string
	// begins is told the answer's id before anything else.
	begins(id string)
	// mark is what a token adds to the text that the route reads, beside what it adds to any text.
	mark(token int32) string
	wholeObject() string
	chunkObject() string
	// logprobs are those of one text.
	logprobs(names *tokenNames) logprobs
	// choice is a whole text.
	choice(index int, text, finish string, scores any) object
	// begin is what the stream of a text begins with, if anything.
	begin(index int) object
	// pieces are what comes of a text, which is empty where log-probabilities come alone.
	pieces(index int, text string, scores any) []object
	// end is the last of a text.
	end(index int, finish string) []object
}

// reply is an answer on its way, in the form of some route.
type reply interface {
	// submit hands its texts to the service.
	submit(*infer.Service) error
	// submitted are its texts.
	submitted() []*infer.Text
	// streams says whether it comes as events.
	streams() bool
	// send writes all of it as the engine gives it.
	send(context.Context, *response) error
	// sendError ends a stream that has begun with an error.
	sendError(*response, *apiError) error
	// logged is what the log says of it.
	logged() object
}

// answer is a request for texts on its way: from its fields to the last byte of its answer, whole or as events.
//
// What an answer says depends on the request alone. So texts of one answer take turns in its stream: event t of each
// comes before event t + 1 of any, whichever the engine had first; and nothing in it tells what the cache held.
type answer struct {
	form         form
	model        string
	generations  []infer.Generation
	promptTokens int // of all prompts, each once, however many texts continue it
	stream       bool
	usage        usage
	user         string
	echoes       []string    // what each text begins with; nil for nothing
	names        *tokenNames // where log-probabilities were asked for

	id       string
	created  int64
	texts    []*infer.Text // once they are submitted
	logprobs []logprobs
	written  int // tokens
}

func (a *answer) submit(service *infer.Service) error {
	texts, err := service.Submit(a.generations)
	if err != nil {
		return err
	}
	a.texts = texts
	var random [16]byte
	rand.Read(random[:]) // never fails
	a.id, a.created = a.form.idPrefix()+"-"+hex.EncodeToString(random[:]), time.Now().Unix()
	a.form.begins(a.id)
	if a.echoes == nil {
		a.echoes = make([]string, len(texts))
	}
	if a.names != nil {
		for range texts {
			a.logprobs = append(a.logprobs, a.form.logprobs(a.names))
		}
	}
	return nil
}

func (a *answer) submitted() []*infer.Text { return a.texts }

func (a *answer) streams() bool { return a.stream }

func (a *answer) logged() object { return loggedTexts(a.id, a.user, a.promptTokens, a.texts) }

func (a *answer) sendError(to *response, err *apiError) error {
	return to.event(append(append([]byte("data: "), err.body()...), "\n\n"+endOfEvents...))
}

func (a *answer) send(ctx context.Context, to *response) error {
	if a.stream {
		return a.sendEvents(ctx, to)
	}
	return a.sendWhole(ctx, to)
}

func (a *answer) sendWhole(ctx context.Context, to *response) error {
	choices := list{}
	for index, one := range a.texts {
		var text strings.Builder
		var scores []scored
		text.WriteString(a.echoes[index])
		for finish := engine.Finish(""); finish == ""; {
			event, err := a.next(ctx, one)
			if err != nil {
				return err
			}
			text.WriteString(event.Text)
			text.WriteString(a.form.mark(event.Token))
			scores = append(scores, a.scored(index, event)...)
			finish = event.Finish
			if finish != "" {
				found, err := a.scores(index, scores)
				if err != nil {
					return err
				}
				choices = append(choices, a.form.choice(index, text.String(), finishOf(finish), found))
			}
		}
	}
	whole := append(a.head(a.form.wholeObject(), choices), member{"usage", a.counts()})
	return to.respond(http.StatusOK, contentJSON, jsonOf(whole))
}

func (a *answer) sendEvents(ctx context.Context, to *response) error {
	begun, over, left := make([]bool, len(a.texts)), make([]bool, len(a.texts)), len(a.texts)
	for left > 0 {
		for index, one := range a.texts {
			if over[index] {
				continue
			}
			event, err := a.next(ctx, one)
			if err != nil {
				return err
			}
			parts, err := a.parts(index, event, !begun[index])
			if err != nil {
				return err
			}
			begun[index] = true
			if event.Finish != "" {
				over[index] = true
				left--
			}
			if len(parts) == 0 {
				continue
			}
			var body []byte
			for _, part := range parts {
				body = appendEvent(body, a.chunk(part))
			}
			if err := to.event(body); err != nil {
				return err
			}
		}
	}
	var last []byte
	if a.usage != usageNowhere {
		last = appendEvent(nil, append(a.head(a.form.chunkObject(), list{}), member{"usage", a.counts()}))
	}
	return to.event(append(last, endOfEvents...))
}

func (a *answer) next(ctx context.Context, text *infer.Text) (infer.Event, error) {
	event, err := text.Next(ctx)
	if err == nil && event.Token != infer.NoToken {
		a.written++
	}
	return event, err
}

// parts are what an event adds to the stream.
func (a *answer) parts(index int, event infer.Event, first bool) ([]object, error) {
	var parts []object
	text := event.Text + a.form.mark(event.Token)
	if first {
		if begin := a.form.begin(index); begin != nil {
			parts = append(parts, begin)
		}
		text = a.echoes[index] + text
	}
	if tokens := a.scored(index, event); text != "" || len(tokens) > 0 {
		var found any
		if len(tokens) > 0 {
			var err error
			if found, err = a.scores(index, tokens); err != nil {
				return nil, err
			}
		}
		parts = append(parts, a.form.pieces(index, text, found)...)
	}
	if event.Finish != "" {
		parts = append(parts, a.form.end(index, finishOf(event.Finish))...)
	}
	return parts, nil
}

// scored are the tokens of an event that belong to the text, if their log-probabilities were asked for.
func (a *answer) scored(index int, event infer.Event) []scored {
	if a.names == nil {
		return nil
	}
	var found []scored
	for at, one := range event.PromptLogprobs {
		found = append(found, scored{a.texts[index].PromptIDs()[at], one})
	}
	if event.Logprobs != nil && event.Finish != engine.End {
		found = append(found, scored{event.Token, event.Logprobs})
	}
	return found
}

func (a *answer) scores(index int, tokens []scored) (any, error) {
	if a.names == nil {
		return nil, nil
	}
	return a.logprobs[index].of(tokens)
}

func (a *answer) head(kind string, choices list) object {
	return object{{"id", a.id}, {"object", kind}, {"created", a.created}, {"model", a.model}, {"choices", choices}}
}

func (a *answer) chunk(choice object) object {
	chunk := a.head(a.form.chunkObject(), list{choice})
	switch a.usage {
	case usageAtTheEnd:
		chunk = append(chunk, member{"usage", nil})
	case usageEverywhere:
		chunk = append(chunk, member{"usage", a.counts()})
	}
	return chunk
}

func (a *answer) counts() object {
	return object{
		{"prompt_tokens", a.promptTokens}, {"completion_tokens", a.written}, {"total_tokens", a.promptTokens + a.written},
	}
}

const (
	contentJSON   = "application/json"
	contentEvents = "text/event-stream; charset=utf-8"
)

// response is where an answer goes: it knows what was sent, and gives the client so long to read it.
type response struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	status   int  // 0 before it began
	complete bool // whether all of it was sent
}

// respond sends a whole response.
func (r *response) respond(status int, contentType string, body []byte) error {
	r.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	r.begin(status, contentType)
	err := r.write(body)
	r.complete = err == nil
	return err
}

// event sends a part of a stream, which the first one begins.
func (r *response) event(body []byte) error {
	if r.status == 0 {
		r.w.Header().Set("Cache-Control", "no-cache")
		r.begin(http.StatusOK, contentEvents)
	}
	return r.write(body)
}

func (r *response) begin(status int, contentType string) {
	r.status = status
	r.w.Header().Set("Content-Type", contentType)
	r.w.WriteHeader(status)
}

func (r *response) write(body []byte) error {
	deadline := time.Now().Add(time.Duration(limit("write_seconds")) * time.Second)
	err := r.control.SetWriteDeadline(deadline)
	if err == nil {
		_, err = r.w.Write(body)
	}
	if err == nil {
		err = r.control.Flush()
	}
	if err != nil {
		return errGone // who cannot be written to, or does not read, has left
	}
	return nil
}

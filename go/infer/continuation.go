package infer

import (
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// underWay is a prompt that is being continued.
type underWay struct {
	request *engine.Request
	text    *continuation
	over    bool // its last event was given
}

// eventsOf is what has come of a prompt since it was last asked.
func (m *LanguageModel) eventsOf(number int, one *underWay) ([]Event, error) {
	var events []Event
	request := one.request
	give := func(token int32, text string, finish engine.Finish, logprobs *engine.TokenLogprobs) {
		event := Event{Prompt: number, Token: token, Text: text, Finish: finish, Logprobs: logprobs}
		if request.PromptLogprobs && len(request.PromptScores) == len(request.Prompt) {
			event.PromptLogprobs, request.PromptScores = request.PromptScores, nil
		}
		events = append(events, event)
		one.over = finish != ""
	}
	for len(request.Tokens) > 0 {
		token, logprobs := request.Tokens[0], request.Scores[0]
		request.Tokens, request.Scores = request.Tokens[1:], request.Scores[1:]
		finish := engine.Finish("")
		if len(request.Tokens) == 0 && request.Err == nil {
			finish = request.Finish
		}
		piece, stopped := "", false
		var err error
		if finish != engine.End {
			piece, stopped, err = one.text.push(token)
		}
		if stopped {
			m.scheduler.Cancel(request)
			request.Tokens, request.Scores, finish = nil, nil, engine.Stop
		} else if finish != "" && err == nil {
			var rest string
			rest, err = one.text.rest()
			piece += rest
		}
		if err != nil {
			return events, err
		}
		if give(token, piece, finish, logprobs); one.over {
			return events, nil
		}
	}
	if request.Finish != "" && request.Err == nil { // without a token: cancelled, or none was asked for
		rest, err := one.text.rest()
		if err != nil {
			return events, err
		}
		give(NoToken, rest, request.Finish, nil)
		events[len(events)-1].Embedding = request.Embedding
	}
	return events, nil
}

// continuation is a text on its way from ids.
type continuation struct {
	decoder *tokenizer.StreamDecoder // nil without a tokenizer
	stops   *StopStrings
}

func newContinuation(tokens tokenizer.TextTokenizer, ends []string) (*continuation, error) {
	stops, err := NewStopStrings(ends...)
	if err != nil || tokens == nil {
		return &continuation{nil, stops}, err
	}
	decoder, err := tokenizer.NewStreamDecoder(tokens)
	return &continuation{decoder, stops}, err
}

// push gives the text that is certain now, and whether a stop string ended it. Ids that a model has beyond those of its
// tokenizer have no text.
func (c *continuation) push(token int32) (text string, stopped bool, err error) {
	if c.decoder == nil {
		return "", false, nil
	}
	if text, err = c.decoder.Push(token); err != nil {
		return "", false, err
	}
	text, stopped = c.stops.Push(text)
	return text, stopped, nil
}

// rest gives what was held back, when no more comes.
func (c *continuation) rest() (string, error) {
	if c.decoder == nil {
		return "", nil
	}
	text, err := c.decoder.Flush()
	text, stopped := c.stops.Push(text)
	if !stopped {
		text += c.stops.Flush()
	}
	return text, err
}

package serve

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// change is an event: its type and what it holds beside its number.
type change struct {
	kind string
	more object
}

// outputItems are what a response has written so far: messages with text, and calls of functions. Each is opened, added to
// and closed, one after the other, and every change is an event. Without a reader of calls, all is one message, and begins
// with it; with one, a message or a call begins where it does, and the log-probabilities of a token stand with the text
// that it completes: those of calls are left out.
type outputItems struct {
	number  [16]byte // that ids are made of
	reader  *toolCallReader
	done    list
	open    *openItem
	waiting list // log-probabilities
}

// openItem is a message, or a call of a function by its name.
type openItem struct {
	id, name, callID string
	text             strings.Builder
	logprobs         list
}

func (o *openItem) part() object {
	return object{
		{"type", "output_text"}, {"text", o.text.String()}, {"annotations", list{}},
		{"logprobs", append(list{}, o.logprobs...)},
	}
}

// shown is the item as it is.
func (o *openItem) shown(status string, begins bool) object {
	if o.name != "" {
		return object{
			{"type", "function_call"}, {"id", o.id}, {"status", status}, {"call_id", o.callID}, {"name", o.name},
			{"arguments", o.text.String()},
		}
	}
	content := list{}
	if !begins {
		content = append(content, o.part())
	}
	return object{
		{"type", "message"}, {"id", o.id}, {"status", status}, {"role", "assistant"}, {"content", content},
	}
}

func (o *outputItems) begin() []change {
	if o.reader != nil {
		return nil
	}
	return o.opened(o.message())
}

// push says what a token changes: the text that it adds, and its log-probabilities.
func (o *outputItems) push(text string, logprobs list) []change {
	o.waiting = append(o.waiting, logprobs...)
	if o.reader != nil {
		return o.take(o.reader.push(text))
	}
	if text == "" && len(logprobs) == 0 {
		return nil
	}
	return o.add(text)
}

// end says what is changed when no more text comes; the last item has that status.
func (o *outputItems) end(status string) []change {
	var changes []change
	if o.reader != nil {
		changes = o.take(o.reader.end())
	}
	if o.open == nil {
		changes = append(changes, o.opened(o.message())...)
	}
	return append(changes, o.closed(status)...)
}

func (o *outputItems) take(pieces []textPiece) []change {
	var changes []change
	for _, piece := range pieces {
		switch piece.kind {
		case wordsPiece:
			if o.open == nil || o.open.name != "" {
				changes = append(changes, o.closed("completed")...)
				changes = append(changes, o.opened(o.message())...)
			}
			changes = append(changes, o.add(piece.text)...)
		case callPiece:
			changes = append(changes, o.closed("completed")...)
			id := idOfCall(hex.EncodeToString(o.number[:]), 0, piece.call)
			changes = append(changes, o.opened(&openItem{id: o.id("fc"), name: piece.text, callID: id})...)
			o.waiting = nil
		case argumentsPiece:
			changes = append(changes, o.add(piece.text)...)
			o.waiting = nil
		}
	}
	return changes
}

func (o *outputItems) message() *openItem { return &openItem{id: o.id("msg")} }

// id is that of the next item.
func (o *outputItems) id(prefix string) string {
	number := o.number
	for at, carry := len(number)-1, len(o.done); at >= 0 && carry > 0; at-- {
		carry += int(number[at])
		number[at], carry = byte(carry), carry>>8
	}
	return fmt.Sprintf("%s_%x", prefix, number)
}

func (o *outputItems) opened(item *openItem) []change {
	o.open = item
	added := object{{"output_index", len(o.done)}, {"item", item.shown("in_progress", true)}}
	changes := []change{{"response.output_item.added", added}}
	if item.name == "" {
		part := append(o.place(), member{"part", item.part()})
		changes = append(changes, change{"response.content_part.added", part})
	}
	return changes
}

func (o *outputItems) add(text string) []change {
	o.open.text.WriteString(text)
	delta := append(o.place(), member{"delta", text})
	if o.open.name != "" {
		return []change{{"response.function_call_arguments.delta", delta}}
	}
	added := append(list{}, o.waiting...)
	o.waiting = nil
	o.open.logprobs = append(o.open.logprobs, added...)
	return []change{{"response.output_text.delta", append(delta, member{"logprobs", added})}}
}

func (o *outputItems) closed(status string) []change {
	item := o.open
	if item == nil {
		return nil
	}
	var changes []change
	if item.name != "" {
		done := append(o.place(), member{"name", item.name}, member{"arguments", item.text.String()})
		changes = []change{{"response.function_call_arguments.done", done}}
	} else {
		part := item.part()
		text := append(o.place(), member{"text", item.text.String()}, member{"logprobs", part[3].value})
		changes = []change{
			{"response.output_text.done", text},
			{"response.content_part.done", append(o.place(), member{"part", part})},
		}
	}
	shown := item.shown(status, false)
	changes = append(changes,
		change{"response.output_item.done", object{{"output_index", len(o.done)}, {"item", shown}}})
	o.done, o.open = append(o.done, shown), nil
	return changes
}

// place says what an event of the open item is of.
func (o *outputItems) place() object {
	place := object{{"item_id", o.open.id}, {"output_index", len(o.done)}}
	if o.open.name != "" {
		return place
	}
	return append(place, member{"content_index", 0})
}

package serve

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	callIDDigits = 9
	idsOfText    = 1 << 16 // that each text of an answer has for its calls
)

// callingForm has texts that may call tools, as messages of an assistant.
type callingForm struct {
	chatForm
	tools   *tools
	names   map[string]bool
	calls   *callForm
	marks   map[int32]string // texts of the form that are control tokens
	digits  string           // of the answer's id, which those of calls are made of
	readers map[int]*toolCallReader
}

func newCallingForm(wanted *tools, calls *callForm, marks map[string]int32) *callingForm {
	made := &callingForm{tools: wanted, names: wanted.names(), calls: calls}
	made.marks, made.readers = make(map[int32]string, len(marks)), make(map[int]*toolCallReader)
	for text, token := range marks {
		made.marks[token] = text
	}
	return made
}

func (f *callingForm) begins(id string) {
	f.digits = id[len(id)-32:]
}

func (f *callingForm) mark(token int32) string { return f.marks[token] }

func (f *callingForm) reader() *toolCallReader {
	return newToolCallReader(f.calls, f.names, f.tools.parallel)
}

func (f *callingForm) readerOf(index int) *toolCallReader {
	if f.readers[index] == nil {
		f.readers[index] = f.reader()
	}
	return f.readers[index]
}

func (f *callingForm) choice(index int, text, finish string, scores any) object {
	reader := f.reader()
	var content strings.Builder
	var names, arguments []string
	for _, piece := range append(reader.push(text), reader.end()...) {
		switch piece.kind {
		case wordsPiece:
			content.WriteString(piece.text)
		case callPiece:
			names, arguments = append(names, piece.text), append(arguments, "")
		case argumentsPiece:
			arguments[piece.call] += piece.text
		}
	}
	if len(names) == 0 {
		return f.chatForm.choice(index, content.String(), finish, scores)
	}
	message := object{{"role", "assistant"}, {"content", nil}, {"refusal", nil}, {"tool_calls", nil}}
	if content.Len() > 0 {
		message[1].value = content.String()
	}
	calls := make(list, len(names))
	for at, name := range names {
		calls[at] = f.call(index, at, name, arguments[at])
	}
	message[3].value = calls
	return messageChoice(index, message, finishOfCalls(reader, finish), scores)
}

func (f *callingForm) begin(index int) object {
	return delta(index, object{{"role", "assistant"}, {"content", nil}}, nil, nil)
}

func (f *callingForm) pieces(index int, text string, scores any) []object {
	found := f.deltas(index, f.readerOf(index).push(text))
	if len(found) == 0 && scores != nil {
		found = append(found, object{{"content", ""}})
	}
	parts := make([]object, len(found))
	for at, change := range found {
		if parts[at] = delta(index, change, nil, nil); at == 0 {
			parts[at] = delta(index, change, nil, scores)
		}
	}
	return parts
}

func (f *callingForm) end(index int, finish string) []object {
	reader := f.readerOf(index)
	var parts []object
	for _, change := range f.deltas(index, reader.end()) {
		parts = append(parts, delta(index, change, nil, nil))
	}
	return append(parts, f.chatForm.end(index, finishOfCalls(reader, finish))...)
}

func (f *callingForm) deltas(index int, pieces []textPiece) []object {
	var found []object
	for _, piece := range pieces {
		switch piece.kind {
		case wordsPiece:
			found = append(found, object{{"content", piece.text}})
		case callPiece:
			call := append(object{{"index", piece.call}}, f.call(index, piece.call, piece.text, "")...)
			found = append(found, object{{"tool_calls", list{call}}})
		case argumentsPiece:
			function := object{{"arguments", piece.text}}
			call := object{{"index", piece.call}, {"function", function}}
			found = append(found, object{{"tool_calls", list{call}}})
		}
	}
	return found
}

// call is one of an answer.
func (f *callingForm) call(index, number int, name, arguments string) object {
	return object{
		{"id", idOfCall(f.digits, index, number)},
		{"type", "function"},
		{"function", object{{"name", name}, {"arguments", arguments}}},
	}
}

// idOfCall is the id of a call of the so many-th text, of an answer whose id has these hexadecimal digits. It is of letters
// and digits alone, nine of them: some templates insist.
func idOfCall(digits string, index, number int) string {
	first, _ := strconv.ParseInt(digits[:callIDDigits], 16, 64)
	id := (first + int64(index)*idsOfText + int64(number)) % (1 << (4 * callIDDigits))
	return fmt.Sprintf("%0*x", callIDDigits, id)
}

func finishOfCalls(reader *toolCallReader, finish string) string {
	if reader.count > 0 && finish == "stop" {
		return "tool_calls"
	}
	return finish
}

package serve

import (
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Calls of tools in what a model writes, read while it is written, and the same however the text is cut. Models are
// trained to write calls in forms of their own. Which one a model has, its chat template tells, since that puts calls of
// earlier turns in the same form.

// callForm is how a model writes calls: an entry of api.json.
type callForm struct {
	name          string
	templateHas   [][]string // of one of these lists, the chat template has all texts
	templateLacks []string   // it has none of these
	begin, end    string     // texts around a call, or around a list of them; no `end` where nothing follows
	listed        bool       // calls stand in a JSON list
	bare          bool       // `begin` may be missing where a call is the first thing, or follows another one
	arguments     string     // what the object of a call calls its arguments
}

var callForms = func() []callForm {
	var forms []callForm
	texts := func(value any) []string {
		var found []string
		for _, one := range value.([]any) {
			found = append(found, one.(string))
		}
		return found
	}
	for _, one := range api.Get("call_forms").([]any) {
		entry := one.(*formats.Object)
		form := callForm{
			name: entry.Get("name").(string), templateLacks: texts(entry.Get("template_lacks")),
			begin: entry.Get("begin").(string), end: entry.Get("end").(string), listed: entry.Get("listed").(bool),
			bare: entry.Get("bare").(bool), arguments: entry.Get("arguments").(string),
		}
		for _, all := range entry.Get("template_has").([]any) {
			form.templateHas = append(form.templateHas, texts(all))
		}
		forms = append(forms, form)
	}
	return forms
}()

// callFormOf is the form of a chat template; nil for one that knows no tools, or has another form.
func callFormOf(template string) *callForm {
	if !strings.Contains(template, "tools") {
		return nil
	}
	has := func(texts []string) (count int) {
		for _, text := range texts {
			if strings.Contains(template, text) {
				count++
			}
		}
		return count
	}
	for at, form := range callForms {
		for _, texts := range form.templateHas {
			if has(texts) == len(texts) && has(form.templateLacks) == 0 {
				return &callForms[at]
			}
		}
	}
	return nil
}

// controlTokens are the ids of those texts of a form that are control tokens, which add nothing to what a model writes.
func (f *callForm) controlTokens(tokens tokenizer.TextTokenizer, names *tokenNames) (map[string]int32, error) {
	found := make(map[string]int32)
	for _, text := range []string{f.begin, f.end} {
		if text == "" {
			continue
		}
		ids, err := tokens.Encode(text, tokenizer.Encoding{Special: true})
		if err != nil {
			return nil, err
		}
		if len(ids) != 1 {
			continue
		}
		known, err := names.of(ids[0])
		if err != nil {
			return nil, err
		}
		if known.text == "" {
			found[text] = ids[0]
		}
	}
	return found, nil
}

// pieceKind says what a piece of a text is.
type pieceKind uint8

const (
	wordsPiece     pieceKind = iota // text that belongs to no call
	callPiece                       // a call begins; its text is the name
	argumentsPiece                  // a part of the JSON of a call's arguments
)

// textPiece is a piece of a text, of the call with that number where it belongs to one.
type textPiece struct {
	kind pieceKind
	call int
	text string
}

type readerState uint8

const (
	inWords readerState = iota
	inBegin             // what begins a call
	behindBegin
	inList // behind the bracket of a list, or a comma in it
	inCall
	behindCall
	readerOver // nothing more is read
)

// toolCallReader reads one text. A call has begun when its name and the brace before its arguments are there. From then
// on its arguments are given as they are written. What looked like a call but is none is text, up to the character that
// shows it.
type toolCallReader struct {
	form     *callForm
	names    map[string]bool // of the functions that may be called
	parallel bool
	state    readerState
	held     strings.Builder // what is either text or a part of a call
	fits     int             // bytes of `begin` or `end` that are there
	stale    bool            // whether text came, since the last call if there was one
	call     callObject
	count    int // calls that have begun
	pieces   []textPiece
	last     strings.Builder // text of the last piece
}

func newToolCallReader(form *callForm, names map[string]bool, parallel bool) *toolCallReader {
	return &toolCallReader{form: form, names: names, parallel: parallel}
}

// push gives what the next piece of the text makes certain.
func (r *toolCallReader) push(text string) []textPiece {
	for _, sign := range text {
		r.take(sign)
	}
	return r.taken()
}

// end gives what was held back, when no more text comes.
func (r *toolCallReader) end() []textPiece {
	held := r.takeHeld()
	inCall := r.state == behindCall || r.state == inCall && r.call.begun()
	after := r.count > 0 && !r.stale && strings.Trim(held, jsonSpaces) == ""
	if held != "" && !inCall && !after {
		r.write(held)
	}
	r.state = readerOver
	return r.taken()
}

func (r *toolCallReader) taken() []textPiece {
	r.endPiece()
	pieces := r.pieces
	r.pieces = nil
	return pieces
}

// endPiece gives the last piece its text.
func (r *toolCallReader) endPiece() {
	if len(r.pieces) > 0 {
		r.pieces[len(r.pieces)-1].text += r.last.String()
		r.last.Reset()
	}
}

func (r *toolCallReader) takeHeld() string {
	held := r.held.String()
	r.held.Reset()
	return held
}

func (r *toolCallReader) take(sign rune) {
	switch r.state {
	case inWords:
		r.words(sign)
	case inBegin:
		r.begin(sign)
	case behindBegin, inList:
		r.open(sign)
	case inCall:
		r.inCall(sign)
	case behindCall:
		r.close(sign)
	case readerOver:
	}
}

func (r *toolCallReader) words(sign rune) {
	bare := r.form.bare && !r.stale
	switch {
	case strings.ContainsRune(jsonSpaces, sign), bare && r.count > 0 && sign == ';':
		r.held.WriteRune(sign)
	case bare && sign == '{':
		r.startCall(sign)
	case sign == rune(r.form.begin[0]): // all of them are ASCII
		r.held.WriteRune(sign)
		r.state, r.fits = inBegin, 1
	default:
		r.held.WriteRune(sign)
		r.write(r.takeHeld())
	}
}

func (r *toolCallReader) begin(sign rune) {
	if sign != rune(r.form.begin[r.fits]) {
		r.fail(sign)
		return
	}
	r.held.WriteRune(sign)
	if r.fits++; r.fits == len(r.form.begin) {
		r.state = behindBegin
	}
}

func (r *toolCallReader) open(sign rune) {
	switch {
	case strings.ContainsRune(jsonSpaces, sign):
		r.held.WriteRune(sign)
	case sign == '[' && r.form.listed && r.state == behindBegin:
		r.held.WriteRune(sign)
		r.state = inList
	case sign == '{' && r.form.listed == (r.state == inList):
		r.startCall(sign)
	default:
		r.fail(sign)
	}
}

func (r *toolCallReader) startCall(sign rune) {
	r.call = callObject{form: r.form, names: r.names}
	r.state = inCall
	r.inCall(sign)
}

func (r *toolCallReader) inCall(sign rune) {
	before := r.call.begun()
	switch added, ok := r.call.push(sign); {
	case !ok:
		r.fail(sign)
		return
	case !r.call.begun():
		r.held.WriteRune(sign)
		return
	case !before:
		r.add(callPiece, r.count, r.call.name.String())
		r.count++
		r.held.Reset()
		r.stale = false
		r.add(argumentsPiece, r.count-1, added)
	case added != "":
		r.add(argumentsPiece, r.count-1, added)
	default:
		r.held.WriteRune(sign)
	}
	if r.call.json.part == objectDone {
		r.held.Reset()
		r.fits = 0
		if r.form.end != "" && r.parallel {
			r.state = behindCall
		} else {
			r.goOn("")
		}
	}
}

func (r *toolCallReader) close(sign rune) {
	switch end := r.form.end; {
	case r.fits == 0 && strings.ContainsRune(jsonSpaces, sign):
		r.held.WriteRune(sign)
	case r.fits == 0 && sign == ',' && r.form.listed:
		r.held.WriteRune(sign)
		r.state = inList
	case sign == rune(end[r.fits]):
		r.held.WriteRune(sign)
		if r.fits++; r.fits == len(end) {
			r.held.Reset()
			r.state = inWords
		}
	default: // it is missing
		held := r.takeHeld()
		rest := strings.TrimLeft(held, jsonSpaces)
		r.held.WriteString(strings.TrimSuffix(held, rest))
		r.goOn(rest + string(sign))
	}
}

// fail takes what is held for text; the character may begin something else.
func (r *toolCallReader) fail(sign rune) {
	if held := r.takeHeld(); held != "" {
		r.write(held)
	}
	r.stale = true
	r.goOn(string(sign))
}

// goOn says that what comes is text, or begins a call.
func (r *toolCallReader) goOn(signs string) {
	r.state = inWords
	if !r.parallel && r.count > 0 {
		r.state = readerOver
	}
	for _, sign := range signs {
		r.take(sign)
	}
}

func (r *toolCallReader) write(text string) {
	r.stale = true
	r.add(wordsPiece, 0, text)
}

func (r *toolCallReader) add(kind pieceKind, call int, text string) {
	if last := len(r.pieces) - 1; last < 0 || r.pieces[last].kind != kind || r.pieces[last].call != call {
		r.endPiece()
		r.pieces = append(r.pieces, textPiece{kind: kind, call: call})
	}
	r.last.WriteString(text)
}

// callObject is the object of a call on its way.
type callObject struct {
	form          *callForm
	names         map[string]bool
	json          jsonFollower
	key           strings.Builder
	name          strings.Builder
	written       strings.Builder // arguments that came before the name
	named, argued bool
}

func (c *callObject) begun() bool { return c.named && c.argued }

// push takes the next character, and gives what that adds to the arguments; false when this is no call.
func (c *callObject) push(sign rune) (added string, ok bool) {
	before := c.json.part
	if !c.json.push(sign) {
		return "", false
	}
	switch part := c.json.part; {
	case part == inKey && before == inKey:
		c.key.WriteRune(sign)
	case part == inKey:
		c.key.Reset()
	case part == inValue && before != inValue:
		return c.valueBegins(sign)
	case part == inValue || before == inValue:
		return c.valueGoesOn(sign, part)
	case part == objectDone:
		return "", c.begun()
	}
	return "", true
}

func (c *callObject) valueBegins(sign rune) (added string, ok bool) {
	switch c.key.String() {
	case "name":
		return "", sign == '"' && !c.named
	case "id", "type":
		return "", sign == '"'
	case c.form.arguments:
		if c.argued || sign != '{' {
			return "", false
		}
		c.argued = true
		return c.arguments(sign), true
	}
	return "", false
}

func (c *callObject) valueGoesOn(sign rune, part jsonPart) (added string, ok bool) {
	switch c.key.String() {
	case c.form.arguments:
		return c.arguments(sign), true
	case "name":
		if part == inValue {
			c.name.WriteRune(sign)
			return "", true
		}
		c.named = c.names[c.name.String()]
		return c.written.String(), c.named
	}
	return "", true
}

func (c *callObject) arguments(sign rune) string {
	if c.named {
		return string(sign)
	}
	c.written.WriteRune(sign)
	return ""
}

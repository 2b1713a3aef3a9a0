package grammar

/*
#include <stdlib.h>
#include "loader.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// NoForcing is the line that a grammar in Lark begins with: the model cuts a text into tokens, also where the grammar
// leaves it no choice of characters. How the tokenizer would cut that, perhaps with a space of its own before it, is not
// asked.
const NoForcing = "%llguidance {\"no_forcing\": true}\n"

// Spaces may stand between the parts of a JSON text, as a regular expression: without a bound, a model could go on with
// spaces for ever.
const Spaces = `[ \n\r\t]{0,32}`

const (
	// options is what a schema says to llguidance alone: no part of JSON Schema, and a way around what it cannot enforce.
	options = "x-guidance"

	// mostMarks are brackets, commas and colons of schemas: llguidance needs time and stack for each.
	mostMarks = 4096

	problemCharacters = 300
)

// Grammars makes grammars for texts of one vocabulary, which is handed over once. Goroutines may share it.
type Grammars struct{ handle unsafe.Pointer }

// Grammar is what texts must obey. Each takes a constraint of its own. Goroutines may share it.
type Grammar struct{ matcher unsafe.Pointer }

// Constraint is an engine.Constraint by a grammar.
type Constraint struct{ matcher unsafe.Pointer }

// New makes grammars for a model with so many ids. Ids without text, control tokens among them, are in no text; one of
// the tokenizer's end ids ends it, and where it has none, the text ends when the grammar allows no more. This takes time
// in proportion to the vocabulary: a second for 100 000 tokens. A [*LibraryError] without llguidance.
func New(tokens tokenizer.TextTokenizer, vocab int) (*Grammars, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	var lengths, ends []C.uint32_t
	var text []byte
	add := func(bytes []byte) {
		lengths, text = append(lengths, C.uint32_t(len(bytes))), append(text, bytes...)
	}
	for id := range int32(vocab) {
		bytes, err := bytesOf(tokens, id)
		if err != nil {
			return nil, err
		}
		add(bytes)
	}
	for _, id := range tokens.EndIDs() {
		if int(id) < vocab {
			ends = append(ends, C.uint32_t(id))
		}
	}
	if ends == nil { // one beyond the vocabulary, which is never drawn
		ends = append(ends, C.uint32_t(vocab))
		add([]byte("\xff</s>"))
	}
	var problem [1024]byte
	handle := C.nn_llg_vocabulary(C.uint32_t(len(lengths)), &lengths[0], (*C.uint8_t)(unsafe.Pointer(&text[0])),
		&ends[0], C.uint32_t(len(ends)), (*C.char)(unsafe.Pointer(&problem[0])), C.size_t(len(problem)))
	if handle == nil {
		words, _, _ := strings.Cut(string(problem[:]), "\x00")
		return nil, &Error{sentence(words)}
	}
	made := &Grammars{handle}
	runtime.AddCleanup(made, func(handle unsafe.Pointer) { C.nn_llg_free_vocabulary(handle) }, handle)
	return made, nil
}

// bytesOf are the bytes of a token as llguidance takes them: one that begins with FF, which no text has, is in no text.
func bytesOf(tokens tokenizer.TextTokenizer, id int32) ([]byte, error) {
	name := fmt.Sprintf("token_id:%d", id)
	if int(id) < tokens.VocabSize() {
		_, bytes, err := tokenizer.Added(tokens, id)
		if err != nil || len(bytes) > 0 {
			return bytes, err
		}
		name = tokens.Piece(id)
	}
	return append([]byte{0xff}, name...), nil
}

// JSONSchema is JSON of a schema, with at most 32 spaces and line ends between its parts. It takes up to a second, usually
// milliseconds. An [*Error] says which part of the schema cannot be enforced.
func (g *Grammars) JSONSchema(schema *formats.Object) (*Grammar, error) {
	return g.LLGuidance(SchemaText(schema))
}

// SchemaText is a schema as [Grammars.LLGuidance] takes it.
func SchemaText(schema *formats.Object) string {
	whole := formats.NewObject()
	whole.Update(schema)
	whole.Set(options, formats.NewObject("whitespace_pattern", Spaces))
	return string(formats.AppendJSON(nil, formats.NewObject("grammars", []any{
		formats.NewObject("lark_grammar", NoForcing+"start: @schema"),
		formats.NewObject("name", "schema", "json_schema", whole),
	})))
}

// LLGuidance is a grammar in llguidance's own words: its variant of Lark, or a JSON list of such grammars and JSON schemas.
// It should begin with [NoForcing], or the first one of the list should: Python needs it. An [*Error] says what cannot be
// enforced.
func (g *Grammars) LLGuidance(text string) (*Grammar, error) {
	if err := Check(text); err != nil {
		return nil, err
	}
	return g.Checked(text)
}

// Checked is the same of a text that [Check] has let through.
func (g *Grammars) Checked(text string) (*Grammar, error) {
	if strings.ContainsRune(text, 0) {
		return nil, &Error{"the grammar has a character U+0000"}
	}
	given := C.CString(text)
	defer C.free(unsafe.Pointer(given))
	matcher := C.nn_llg_matcher(g.handle, given)
	runtime.KeepAlive(g)
	// The first mask fails when no text obeys.
	if C.nn_llg_is_stopped(matcher) == 0 {
		mask := make([]uint32, C.nn_llg_mask_bytes(matcher)/4)
		C.nn_llg_mask(matcher, (*C.uint32_t)(unsafe.Pointer(&mask[0])), C.size_t(4*len(mask)))
	}
	if problem := C.nn_llg_error(matcher); problem != nil {
		defer C.nn_llg_free_matcher(matcher)
		return nil, &Error{sentence(C.GoString(problem))}
	}
	made := &Grammar{matcher}
	runtime.AddCleanup(made, freeMatcher, matcher)
	return made, nil
}

// Check is an [*Error] when a list of grammars has schemas that together could keep llguidance busy.
func Check(text string) error {
	if !strings.HasPrefix(text, "{") {
		return nil
	}
	if formats.JSONMarksOf([]byte(text)) > mostMarks {
		return &Error{fmt.Sprintf("it has more than %d brackets, commas and colons", mostMarks)}
	}
	value, err := formats.ParseJSON([]byte(text))
	if err != nil {
		return &Error{sentence(err.Error())}
	}
	whole, _ := value.(*formats.Object)
	if whole == nil {
		return nil
	}
	grammars, _ := whole.Get("grammars").([]any)
	var schemas []any
	for _, one := range grammars {
		if one, ok := one.(*formats.Object); ok && one.Has("json_schema") {
			schemas = append(schemas, one.Get("json_schema"))
		}
	}
	return checkCost(schemas)
}

func freeMatcher(matcher unsafe.Pointer) { C.nn_llg_free_matcher(matcher) }

// Constraint is the constraint of one text, at its beginning.
func (g *Grammar) Constraint() *Constraint {
	made := &Constraint{C.nn_llg_copy(g.matcher)} // with a lexer of its own: what one text costs counts for it alone
	runtime.KeepAlive(g)
	runtime.AddCleanup(made, freeMatcher, made.matcher)
	return made
}

// Mask gives the tokens that are allowed next; none when the grammar allows no more text.
func (c *Constraint) Mask() ([]uint32, error) {
	defer runtime.KeepAlive(c)
	if C.nn_llg_is_stopped(c.matcher) != 0 {
		return nil, c.err()
	}
	mask := make([]uint32, C.nn_llg_mask_bytes(c.matcher)/4)
	if C.nn_llg_mask(c.matcher, (*C.uint32_t)(unsafe.Pointer(&mask[0])), C.size_t(4*len(mask))) != 0 {
		return nil, c.err() // a limit of what a step may take
	}
	return mask, nil
}

// Accept says that a token was drawn.
func (c *Constraint) Accept(token int32) error {
	defer runtime.KeepAlive(c)
	if C.nn_llg_accept(c.matcher, C.uint32_t(token)) != 0 {
		return c.err()
	}
	return nil
}

// err is what ended the matcher, if anything did.
func (c *Constraint) err() error {
	if problem := C.nn_llg_error(c.matcher); problem != nil {
		return &Error{"the grammar failed: " + sentence(C.GoString(problem))}
	}
	return nil
}

// sentence is llguidance's words in one line, without what it adds for its own developers.
func sentence(problem string) string {
	problem, _, _ = strings.Cut(problem, "\n<")
	letters := []rune(strings.Join(strings.Fields(problem), " "))
	return string(letters[:min(len(letters), problemCharacters)])
}

// IsMissing says whether an error is that there is no llguidance.
func IsMissing(err error) bool {
	var missing *LibraryError
	return errors.As(err, &missing)
}

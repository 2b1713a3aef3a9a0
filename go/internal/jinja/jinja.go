// Package jinja renders the templates of models: Jinja as transformers sets it up, as far as such templates use it. What
// it does not know it refuses by name. A template is a program of a stranger: it gets values that it cannot change, and
// its steps, its depth and its text are bounded.
// (https://jinja.palletsprojects.com/en/stable/templates/; https://huggingface.co/docs/transformers/chat_templating)
package jinja

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/formats"
)

// Error says why a template cannot be read or fails. Kind is the name that Python has for it, such as TemplateError for
// what the template itself raises.
type Error struct{ Kind, Message string }

// Error gives the kind and the sentence.
func (e *Error) Error() string { return e.Kind + ": " + e.Message }

// fail ends what is being done with an *Error, which Parse or Render returns.
func fail(kind, format string, values ...any) { panic(&Error{kind, fmt.Sprintf(format, values...)}) }

// failAt is fail for what is written wrongly.
func failAt(line int, format string, values ...any) {
	fail("TemplateSyntaxError", "%s (line %d)", fmt.Sprintf(format, values...), line)
}

// caught turns what fail panics with into an error.
func caught(err *error) {
	switch failed := recover().(type) {
	case nil:
	case *Error:
		*err = failed
	default:
		panic(failed)
	}
}

// Template is a template that was read. Many goroutines may render it at once.
type Template struct{ body []statement }

// Parse reads a template. The error is an *Error.
func Parse(source string) (made *Template, err error) {
	defer caught(&err)
	p := &parser{tokens: lex(source)}
	body, _ := p.until()
	return &Template{body}, nil
}

// Render gives the text of a template of at most so many characters. Values are what package formats makes of JSON. The
// error is an *Error.
func (t *Template) Render(values *formats.Object, most int, now func() time.Time) (text string, err error) {
	defer caught(&err)
	s := &state{out: &strings.Builder{}, left: mostSteps, most: most, now: now}
	s.names = &scope{values: maps.Clone(globals)}
	given := make(map[string]any)
	for _, name := range values.Names() {
		given[name] = fromGo(values.Get(name))
	}
	s.names = &scope{values: given, around: s.names}
	s.run(t.body)
	return s.out.String(), nil
}

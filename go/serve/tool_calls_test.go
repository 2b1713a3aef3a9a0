package serve

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// shared are the cases of a file of tests/serve, which tests of all languages share.
func shared(t *testing.T, name string) []any {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join("..", "..", "tests", "serve", name)))(t)
	return must.Get(formats.ParseJSON(content))(t).([]any)
}

func formNamed(name any) *callForm {
	return &callForms[slices.IndexFunc(callForms, func(form callForm) bool { return form.name == name })]
}

// joined are pieces as the fixtures have them, those that belong together as one.
func joined(pieces []textPiece) []string {
	kinds := []string{"words", "call", "arguments"}
	var found []string
	last := ""
	for _, piece := range pieces {
		if kind := kinds[piece.kind]; kind == last && kind != "call" {
			found[len(found)-1] += piece.text
		} else {
			found = append(found, kind+" "+piece.text)
			last = kind
		}
	}
	return found
}

func TestToolCallsInTextsCutAnywhere(t *testing.T) {
	names := map[string]bool{"f": true, "get_sea-2": true}
	for _, one := range shared(t, "tool_calls.json") {
		given := one.(*formats.Object)
		text := given.Get("text").(string)
		var expected []string
		for _, piece := range given.Get("pieces").([]any) {
			expected = append(expected, fmt.Sprintf("%s %s", piece.([]any)...))
		}
		reader := func() *toolCallReader {
			return newToolCallReader(formNamed(given.Get("form")), names, given.Get("parallel").(bool))
		}
		for at := range text {
			r := reader()
			pieces := slices.Concat(r.push(text[:at]), r.push(text[at:]), r.end())
			if found := joined(pieces); !slices.Equal(found, expected) {
				t.Errorf("%q cut at %d: %q, not %q", text, at, found, expected)
			}
		}
		r, seen := reader(), 0
		for at, sign := range []rune(text) {
			for _, piece := range r.push(string(sign)) {
				seen += len([]rune(piece.text))
			}
			if wanted := given.Get("seen").([]any)[at]; int64(seen) != wanted {
				t.Errorf("%q: %d characters after %d, not %v", text, seen, at+1, wanted)
				break
			}
		}
	}
}

func TestReadingTakesTimeInProportion(t *testing.T) {
	for _, text := range []string{
		strings.Repeat(`<tool_call>{"name": "`, 50_000), `<tool_call>{"` + strings.Repeat("x", 1_000_000),
		`<tool_call>{"arguments": {"a": "` + strings.Repeat("x", 1_000_000), strings.Repeat("x ", 500_000) + "x",
	} {
		for _, step := range []int{5, len(text)} {
			start := time.Now()
			r, size := newToolCallReader(formNamed("hermes"), nil, true), 0
			for part := range slices.Chunk([]byte(text), step) {
				for _, piece := range r.push(string(part)) {
					size += len(piece.text)
				}
			}
			for _, piece := range r.end() {
				size += len(piece.text)
			}
			if took := time.Since(start); size != len(text) || took > time.Minute {
				t.Errorf("%d of %d bytes of %.30q… in %v", size, len(text), text, took)
			}
		}
	}
}

func TestCallGrammars(t *testing.T) {
	cases := shared(t, "call_grammars.json")
	for _, one := range cases[1:] {
		given := one.(*formats.Object)
		wanted := must.Get(requestedTools(values{
			"tools": cases[0].(*formats.Object).Get("tools"), "tool_choice": given.Get("tool_choice"),
			"parallel_tool_calls": given.Get("parallel_tool_calls"),
		}, "response_format", nil, false))(t)
		marks := make(map[string]int32)
		for _, text := range given.Get("marks").(*formats.Object).Names() {
			marks[text] = int32(given.Get("marks").(*formats.Object).Get(text).(int64))
		}
		found := callGrammar(wanted, formNamed(given.Get("form")), marks)
		if found != given.Get("grammar") {
			t.Errorf("%s %s %v: %s, not %s", given.Get("form"), quoted(given.Get("tool_choice")), marks, found, given.Get("grammar"))
		}
	}
}

func TestFormsOfTemplates(t *testing.T) {
	forms := map[string]string{
		"{% if tools %}<tool_call>{% endif %}": "hermes", "{% if tools %}<tool_call><function={% endif %}": "",
		"<tool_call>": "", "{{ tools }}": "", "{{ tools }}[TOOL_CALLS]": "mistral", "{{ tools }}[TOOL_CALLS][ARGS]": "",
		"{{ tools }}<|python_tag|>": "llama", `{{ tools }}{{ '{"name": "' }}{{ '"parameters": ' }}`: "llama",
	}
	for _, template := range slices.Sorted(maps.Keys(forms)) {
		found := ""
		if form := callFormOf(template); form != nil {
			found = form.name
		}
		if found != forms[template] {
			t.Errorf("%s: %q, not %q", template, found, forms[template])
		}
	}
}

package jinja_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/jinja"
	"github.com/nncuda/nncuda/go/internal/must"
)

// Small templates and what Python's Jinja makes of them.
const snippets = "../../../tests/tokenizer/jinja/snippets.json"

func render(template string, values *formats.Object, most int) (string, error) {
	made, err := jinja.Parse(template)
	if err != nil {
		return "", err
	}
	return made.Render(values, most, time.Now)
}

type expected struct {
	Template    string
	Text, Fails *string
}

func readSnippets(t testing.TB) (*formats.Object, []expected) {
	t.Helper()
	data, err := os.ReadFile(snippets)
	if err != nil {
		t.Skip("the fixtures lie in the source tree, beside this module: ", err)
	}
	var held struct {
		Values   json.RawMessage
		Snippets []expected
	}
	must.Do(t, json.Unmarshal(data, &held))
	values := must.Get(formats.ParseJSON(held.Values))(t).(*formats.Object)
	values.Update(formats.NewObject("bos_token", "<s>", "eos_token", "</s>", "add_generation_prompt", true))
	return values, held.Snippets
}

func TestTemplatesGiveWhatPythonGives(t *testing.T) {
	values, all := readSnippets(t)
	for _, wanted := range all {
		text, err := render(wanted.Template, values, 1<<20)
		switch {
		case wanted.Fails == nil && (err != nil || text != *wanted.Text):
			t.Errorf("%s\nis %q (%v), not\n%q", wanted.Template, text, err, *wanted.Text)
		case wanted.Fails != nil && err == nil:
			t.Errorf("%s\nis %q, and fails in Python with %s", wanted.Template, text, *wanted.Fails)
		}
	}
}

func TestTheTime(t *testing.T) {
	now := func() time.Time { return time.Date(2025, 2, 3, 4, 5, 6, 7000, time.UTC) }
	for form, wanted := range map[string]string{
		"%d %b %Y": "03 Feb 2025", "%-d/%-m %H:%M:%S": "3/2 04:05:06", "%A %B %j %p %I %y %%": "Monday February 034 AM 04 25 %",
		"%F %e %f": "2025-02-03  3 000007", "%": "%",
	} {
		made := must.Get(jinja.Parse("{{ strftime_now('" + form + "') }}"))(t)
		if text := must.Get(made.Render(formats.NewObject(), 100, now))(t); text != wanted {
			t.Errorf("%s is %q, not %q", form, text, wanted)
		}
	}
	if _, err := render("{{ strftime_now('%Q') }}", formats.NewObject(), 100); err == nil {
		t.Error("%Q was taken")
	}
}

// TestHostileTemplates: each is refused with the sentence, and soon.
func TestHostileTemplates(t *testing.T) {
	deep := func(begin, middle, end string) string {
		return strings.Repeat(begin, 100000) + middle + strings.Repeat(end, 100000)
	}
	for template, sentence := range map[string]string{
		"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "it takes more than",
		"{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}":                         "it writes more than 1048576 characters",
		"{{ 'x' * 999999999 }}":                           "a text or list is repeated 999999999 times",
		"{{ [1] * 999999999 }}":                           "a text or list is repeated 999999999 times",
		"{{ ('x' * 9999999).replace('x', 'y' * 99999) }}": "a text is replaced",
		"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}":      "it takes more than",
		"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}":             "it takes more than",
		"{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}": "nested too deeply",
		"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}":  "it takes more than",
		"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}" +
			"{{ ns.l|tojson }}": "it takes more than",
		"{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}" +
			"{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}": "it takes more than",
		"{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}" +
			"{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l < ns.m }}": "it takes more than",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":           "nested too deeply",
		"{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}":  "nested too deeply",
		"{% for i in [[]] recursive %}{{ loop([[]]) }}{% endfor %}": "nested too deeply",
		"{{ " + deep("(", "1", ")") + " }}":                         "nested too deeply",
		"{{ " + deep("[", "", "]") + " }}":                          "nested too deeply",
		"{{ " + strings.Repeat("-", 100000) + "1 }}":                "nested too deeply",
		"{{ " + strings.Repeat("not ", 100000) + "1 }}":             "nested too deeply",
		"{{ 1" + strings.Repeat(" if 1 else 1", 100000) + " }}":     "nested too deeply",
		deep("{% if 1 %}", "", "{% endif %}"):                       "nested too deeply",
		"{{ 1" + strings.Repeat("+1", 100000) + " }}":               "too deeply",
		"{{ x" + strings.Repeat(".a", 100000) + " }}":               "too deeply",
		"{{ 9223372036854775807 + 1 }}":                             "beyond 64 bits",
		"{{ 2 ** 63 }}":                                             "beyond 64 bits",
		"{{ range(0, 1000000) }}":                                   "Range too big",
		"{{ '%9999999s' % 'a' }}":                                   "wider than 1000",
		"{{ ''.__class__.__mro__ }}":                                "is unsafe",
		"{{ messages.append(1) }}":                                  "is undefined",
		"{{ [].append(1) }}":                                        "is unsafe",
		"{{ {}.update({}) }}":                                       "is unsafe",
		"{% include 'x' %}":                                         "unknown tag 'include'",
		"{% import 'x' as y %}":                                     "unknown tag 'import'",
		"{{ cycler('a') }}":                                         "is undefined",
		"{{ 'a' | pprint }}":                                        "No filter named 'pprint'",
		"{# never closed":                                           "Missing end of comment",
		"{% raw %} never closed":                                    "Missing end of raw",
		"{{ 'never closed }}":                                       "unexpected end of a string",
		"{{ ) }}":                                                   "unexpected ')'",
		"{{ ? }}":                                                   "unexpected char",
	} {
		start := time.Now()
		text, err := render(template, formats.NewObject(), 1<<20)
		var failed *jinja.Error
		if !errors.As(err, &failed) || !strings.Contains(failed.Message, sentence) {
			t.Errorf("%.80s\nis %.80q (%v), not %s", template, text, err, sentence)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%.80s took %v", template, took)
		}
	}
}

// FuzzRender: whatever a template is, it gives a text or an *Error, within its bounds.
func FuzzRender(f *testing.F) {
	values, all := readSnippets(f)
	for _, one := range all {
		f.Add(one.Template)
	}
	f.Fuzz(func(t *testing.T, template string) {
		text, err := render(template, values, 1000)
		var failed *jinja.Error
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		if len([]rune(text)) > 1000 {
			t.Fatalf("%d characters", len([]rune(text)))
		}
	})
}

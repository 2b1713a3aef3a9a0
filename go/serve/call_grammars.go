package serve

import (
	"fmt"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer/grammar"
)

// What the text of a model must be where calls of tools are enforced, as a grammar of llguidance. Calls are written as
// chat templates write those of earlier turns, to the space. The arguments of each function are a grammar of their own, so
// that references in a schema lead where they led.
// (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)

// callGrammar is the grammar of texts with calls. `marks` are those texts of the form that are control tokens. Where a
// call is required, the text is nothing else. Where the choice is the model's, the text is free up to what begins a call.
func callGrammar(wanted *tools, form *callForm, marks map[string]int32) string {
	functions := wanted.callable()
	items := make([]string, len(functions))
	rules := make([]string, len(functions))
	grammars := []any{nil}
	for at, one := range functions {
		items[at] = fmt.Sprintf("item%d", at)
		head := fmt.Sprintf(`{"name": "%s", "%s": `, one.name, form.arguments)
		rules[at] = fmt.Sprintf("item%d: %s @arguments%d \"}\"\n", at, jsonOf(head), at)
		schema := argumentsSchema(one, wanted.enforces(one))
		grammars = append(grammars, formats.NewObject("name", fmt.Sprintf("arguments%d", at), "json_schema", schema))
	}
	lark := grammar.NoForcing + startOf(wanted, form, marks) + "\nitem: " + strings.Join(items, " | ") + "\n" +
		strings.Join(rules, "")
	grammars[0] = formats.NewObject("name", "calls", "lark_grammar", lark)
	return schemaGrammar(grammars)
}

// schemaGrammar are grammars as llguidance takes them; the first one is that of the text.
func schemaGrammar(grammars []any) string {
	return string(formats.AppendJSON(nil, formats.NewObject("grammars", grammars)))
}

// argumentsSchema is the schema of a function's arguments: its own where that is enforced, otherwise that of any object.
func argumentsSchema(one tool, enforced bool) *formats.Object {
	schema := formats.NewObject("type", "object")
	switch {
	case enforced && one.parameters == nil:
		schema.Set("properties", formats.NewObject())
		schema.Set("additionalProperties", false)
	case enforced:
		schema.Update(one.parameters)
	}
	schema.Set("x-guidance", formats.NewObject("whitespace_pattern", grammar.Spaces))
	return schema
}

// startOf are the first rules: where calls stand in the text.
func startOf(wanted *tools, form *callForm, marks map[string]int32) string {
	mark := func(text string) string {
		if token, control := marks[text]; control {
			return fmt.Sprintf("<[%d]>", token)
		}
		return string(jsonOf(text))
	}
	between, block := "; ", "item"
	if form.listed {
		between = ", "
	}
	if wanted.parallel {
		block = fmt.Sprintf("item (%s item)*", jsonOf(between))
	}
	if form.listed {
		block = `"[" ` + block + ` "]"`
	} else if form.end != "" {
		block = `"\n" item "\n" ` + mark(form.end)
	}
	if wanted.choice != "auto" {
		start := mark(form.begin) + " block"
		if form.bare {
			start = "block"
		}
		again := ""
		if form.end != "" && !form.listed && wanted.parallel {
			again = ` ("\n" ` + start + ")*"
		}
		return "start: " + start + again + "\nblock: " + block
	}
	start, text := "begun? WORDS", `/(.|\n)*/`
	if wanted.parallel {
		start = "begun* WORDS"
	}
	if form.bare {
		start, text = "block | begun | WORDS", `/[ \n\r\t]*([^{ \n\r\t](.|\n)*)?/`
	}
	begun := "begun: WORDS " + mark(form.begin) + " block"
	if _, control := marks[form.begin]; !control { // the first place where it stands begins a call
		begun = "begun: begin block\nbegin[lazy]: WORDS " + mark(form.begin)
	}
	return "start: " + start + "\nblock: " + block + "\n" + begun + "\nWORDS: " + text
}

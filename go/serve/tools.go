package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// toolLevels is how deep parameters and arguments may be, which templates write out.
const toolLevels = 64

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// tool is a function.
type tool struct {
	place      string // where a request has it
	name       string
	describes  any             // a text or nil
	parameters *formats.Object // nil for those of a function that takes none
	strict     bool
	shown      *formats.Object // what the template sees of it
}

// tools are those that a request offers, at least one.
type tools struct {
	offered  []tool
	choice   string // "auto" or "required"; "" where `named` must be called
	named    *tool
	parallel bool // an answer may have several calls
}

func (t *tools) names() map[string]bool {
	names := make(map[string]bool, len(t.offered))
	for _, one := range t.offered {
		names[one.name] = true
	}
	return names
}

// shown is what the template sees.
func (t *tools) shown() []any {
	list := make([]any, len(t.offered))
	for at, one := range t.offered {
		list[at] = one.shown
	}
	return list
}

// callable are those that may be called.
func (t *tools) callable() []tool {
	if t.named != nil {
		return []tool{*t.named}
	}
	return t.offered
}

// enforces says whether the arguments of a function must obey its parameters.
func (t *tools) enforces(one tool) bool { return t.choice != "auto" || one.strict }

// enforced says whether texts are to be constrained.
func (t *tools) enforced() bool { return slices.ContainsFunc(t.callable(), t.enforces) }

// requestedTools are the tools of a request's fields; nil where the model is not to call any. `format`, which stands in the
// field of that name, must not be another than that of calls. `flat`: what a tool or a choice says of its function stands
// beside its type, and not in an object of its own.
func requestedTools(v values, formatField string, format *formats.Object, flat bool) (*tools, error) {
	given, _ := v["tools"].([]any)
	made := &tools{choice: "auto", parallel: v.flag("parallel_tool_calls")}
	for at, one := range given {
		found, err := toolOf(fmt.Sprintf("tools[%d]", at), one, made.names(), flat)
		if err != nil {
			return nil, err
		}
		made.offered = append(made.offered, found)
	}
	switch choice := v["tool_choice"].(type) {
	case *formats.Object:
		one, err := made.chosen(choice, flat)
		if err != nil {
			return nil, err
		}
		made.choice, made.named = "", one
	case string:
		if choice != "none" && choice != "auto" && choice != "required" {
			return nil, invalid("tool_choice", choice, words(flatly(flat, "flat_choice", "choice")))
		}
		made.choice = choice
	}
	if len(given) == 0 && made.choice == "required" {
		return nil, refusal("needs_field", "tool_choice", named{"name": "tool_choice", "other": "tools"})
	}
	if len(given) == 0 || made.choice == "none" {
		return nil, nil
	}
	if format != nil && format.Get("type") != "text" {
		return nil, refusal("both_fields", formatField, named{"name": formatField, "other": "tools"})
	}
	return made, nil
}

// flatly is a word for what is flat, or for what is not.
func flatly(flat bool, yes, no string) string {
	if flat {
		return yes
	}
	return no
}

// ofFunction are the keys that say something of a function.
var ofFunction = []string{"name", "description", "parameters", "strict"}

func toolOf(place string, value any, taken map[string]bool, flat bool) (tool, error) {
	var none tool
	given, ok := value.(*formats.Object)
	if !ok {
		return none, invalid(place, value, words(flatly(flat, "flat_tool", "tool")))
	}
	keys := []string{"type", "function"}
	if flat {
		keys = append([]string{"type"}, ofFunction...)
	}
	if err := checkKeys(given, place, words("a_tool"), keys...); err != nil {
		return none, err
	}
	if given.Get("type") != "function" {
		return none, invalid(place+".type", given.Get("type"), words("function_type"))
	}
	function := given
	if !flat {
		place += ".function"
		if function, ok = given.Get("function").(*formats.Object); !ok {
			return none, invalid(place, given.Get("function"), words("function"))
		}
		if err := checkKeys(function, place, words("a_function"), ofFunction...); err != nil {
			return none, err
		}
	}
	name, _ := function.Get("name").(string)
	if !isFunctionName(name) || taken[name] {
		return none, invalid(place+".name", function.Get("name"), words("function_name"))
	}
	description, parameters, strict := function.Get("description"), function.Get("parameters"), function.Get("strict")
	if _, ok := description.(string); description != nil && !ok {
		return none, invalid(place+".description", description, words("text"))
	}
	schema, ok := parameters.(*formats.Object)
	if parameters != nil && (!ok || !isPlain(parameters, toolLevels)) {
		return none, invalid(place+".parameters", parameters, words("parameters"))
	}
	if ok && schema.Has("type") && schema.Get("type") != "object" {
		return none, invalid(place+".parameters.type", schema.Get("type"), words("object_type"))
	}
	isStrict, ok := strict.(bool)
	if strict != nil && !ok {
		return none, invalid(place+".strict", strict, words("flag"))
	}
	// Templates get what models were trained with, in the client's order.
	shown, whole := formats.NewObject(), formats.NewObject()
	for _, key := range function.Names() {
		if one := function.Get(key); key != "type" && key != "strict" && one != nil {
			shown.Set(key, one)
		}
	}
	if flat {
		whole.Set("type", "function")
	} else {
		whole.Update(given)
	}
	whole.Set("function", shown)
	return tool{place, name, description, schema, isStrict, whole}, nil
}

// chosen is the function that a choice names.
func (t *tools) chosen(choice *formats.Object, flat bool) (*tool, error) {
	place, function := "tool_choice", choice
	if err := checkKeys(choice, place, words("a_choice"), "type", flatly(flat, "name", "function")); err != nil {
		return nil, err
	}
	if choice.Get("type") != "function" {
		return nil, invalid(place+".type", choice.Get("type"), words("function_type"))
	}
	if !flat {
		var ok bool
		place += ".function"
		if function, ok = choice.Get("function").(*formats.Object); !ok {
			return nil, invalid(place, choice.Get("function"), words("chosen"))
		}
		if err := checkKeys(function, place, words("a_choice"), "name"); err != nil {
			return nil, err
		}
	}
	for at, one := range t.offered {
		if function.Get("name") == one.name {
			return &t.offered[at], nil
		}
	}
	return nil, invalid(place+".name", function.Get("name"), words("chosen_name"))
}

func isFunctionName(value any) bool {
	name, _ := value.(string)
	return functionName.MatchString(name)
}

// isPlain says whether all languages can give a value to a template: its depth, and the size of its numbers.
func isPlain(value any, levels int) bool {
	var inside []any
	switch value := value.(type) {
	case json.Number:
		return false
	case float64:
		return !math.IsInf(value, 0)
	case []any:
		inside = value
	case *formats.Object:
		for _, name := range value.Names() {
			inside = append(inside, value.Get(name))
		}
	default:
		return true
	}
	for _, one := range inside {
		if levels == 0 || !isPlain(one, levels-1) {
			return false
		}
	}
	return levels > 0
}

// checkKeys is an error for a key that is not known; `route` is how errors call what has these keys.
func checkKeys(found *formats.Object, place, route string, known ...string) error {
	for _, key := range found.Names() {
		if !slices.Contains(known, key) {
			return unknown(place+"."+key, route)
		}
	}
	return nil
}

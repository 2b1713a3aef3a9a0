package serve

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

//go:embed api.json
var apiText []byte

//go:embed page.html
var page []byte

// api is what the server accepts and refuses, from api.json, which the servers of all languages read.
var api = func() *formats.Object {
	value, err := formats.ParseJSON(apiText)
	if err != nil {
		panic(err) // the file is a part of this package
	}
	return value.(*formats.Object)
}()

// limit is one of api.json.
func limit(name string) int {
	return int(api.Get("limits").(*formats.Object).Get(name).(int64))
}

// words are what errors say of parts of fields.
func words(name string) string {
	return api.Get("words").(*formats.Object).Get(name).(string)
}

// named are the words that a sentence of api.json leaves open.
type named map[string]any

var openWord = regexp.MustCompile(`\{([a-z]+)\}`)

func filled(sentence string, with named) string {
	return openWord.ReplaceAllStringFunc(sentence, func(word string) string {
		return fmt.Sprint(with[word[1:len(word)-1]])
	})
}

// apiError is a request that is refused: one of the errors of api.json.
type apiError struct {
	code, kind, sentence string
	status               int
	param                any               // the name of the field that was wrong; nil where there is none
	headers              map[string]string // that go with the response
}

func (e *apiError) Error() string { return e.sentence }

// refusal makes the error of a code, about the field of that name; nil: about none.
func refusal(code string, param any, with named) *apiError {
	entry := api.Get("errors").(*formats.Object).Get(code).([]any)
	return &apiError{
		code: code, status: int(entry[0].(int64)), kind: entry[1].(string), sentence: filled(entry[2].(string), with),
		param: param,
	}
}

// with adds a header of the response.
func (e *apiError) with(name, value string) *apiError {
	e.headers = map[string]string{name: value}
	return e
}

// body is the response's, in the form of OpenAI's errors.
func (e *apiError) body() []byte {
	return jsonOf(object{{"error", object{
		{"message", e.sentence}, {"type", e.kind}, {"param", e.param}, {"code", e.code},
	}}})
}

// invalid is the error of a value that must be something else.
func invalid(name string, value any, must string) *apiError {
	return refusal("invalid_value", name, named{"name": name, "value": quoted(value), "must": must})
}

// unknown is the error of a key that is not known there.
func unknown(name, route string) *apiError {
	name = cut(name, 256)
	return refusal("unknown_field", name, named{"name": name, "route": route})
}

// cut is the beginning of a text, of so many characters at most.
func cut(text string, most int) string {
	count := 0
	for at := range text {
		if count == most {
			return text[:at]
		}
		count++
	}
	return text
}

// quoted is a value of a request as errors quote it: its JSON, cut off where it is long.
func quoted(value any) string {
	most := limit("shown_characters")
	text := string(formats.AppendJSON(nil, value))
	if short := cut(text, most); short != text {
		return short + "…"
	}
	return text
}

// field is a field of a route: an entry of api.json.
type field struct {
	name, kind, must, why string
	required              bool
	defaultValue          any
	least, above, most    float64 // infinite where there is no bound
	longest               int
	allowed               []any
}

// fieldsOf are the fields of a route of api.json, in their order.
func fieldsOf(route string) []field {
	var found []field
	for _, one := range api.Get("fields").([]any) {
		entry := one.(*formats.Object)
		if !slices.Contains(entry.Get("routes").([]any), any(route)) {
			continue
		}
		text := func(name string) string {
			value, _ := entry.Get(name).(string)
			return value
		}
		bound := func(name string, without float64) float64 {
			if entry.Has(name) {
				return numberOf(entry.Get(name))
			}
			return without
		}
		required, _ := entry.Get("required").(bool)
		longest, _ := entry.Get("longest").(int64)
		allowed, _ := entry.Get("allowed").([]any)
		found = append(found, field{
			name: text("name"), kind: text("kind"), must: text("must"), why: text("why"), required: required,
			defaultValue: entry.Get("default"), least: bound("least", math.Inf(-1)), above: bound("above", math.Inf(-1)),
			most: bound("most", math.Inf(1)), longest: int(longest), allowed: allowed,
		})
	}
	return found
}

// numberOf is a number of a JSON text; NaN for anything else.
func numberOf(value any) float64 {
	switch value := value.(type) {
	case int64:
		return float64(value)
	case float64:
		return value
	case json.Number:
		number, _ := value.Float64() // infinite where it is out of range
		return number
	}
	return math.NaN()
}

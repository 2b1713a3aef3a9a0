package serve

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// checker checks the fields of one route against the table: what is not right is an error that names it, nothing is
// ignored. `path` is how errors call the route.
type checker struct {
	path   string
	fields []field
	known  map[string]bool
}

func newChecker(route, path string) *checker {
	made := &checker{path, fieldsOf(route), make(map[string]bool)}
	for _, one := range made.fields {
		made.known[one.name] = true
	}
	return made
}

// values are those of every supported field, nil where nothing was asked for.
type values map[string]any

func (v values) flag(name string) bool { return v[name].(bool) }

func (v values) number(name string) float64 { return v[name].(float64) }

func (v values) whole(name string) int64 { return v[name].(int64) }

// choices is how many texts each prompt has: `n`, one where a route has no such field.
func (v values) choices() int {
	if count, ok := v["n"].(int64); ok {
		return int(count)
	}
	return 1
}

func (v values) text(name string) string {
	text, _ := v[name].(string)
	return text
}

func (v values) texts(name string) []string {
	texts, _ := v[name].([]string)
	return texts
}

// check gives the value of every supported field, with the defaults of those that are missing or null.
func (c *checker) check(body *formats.Object) (values, error) {
	for _, name := range body.Names() {
		if !c.known[name] {
			return nil, unknown(name, c.path)
		}
	}
	found := make(values)
	for _, one := range c.fields {
		value := body.Get(one.name)
		switch {
		case one.kind == "unsupported":
			if err := checkUnsupported(one, value); err != nil {
				return nil, err
			}
		case value != nil:
			checked, err := one.checked(value)
			if err != nil {
				return nil, err
			}
			found[one.name] = checked
		case one.required:
			return nil, refusal("missing_field", one.name, named{"name": one.name, "must": one.must})
		case one.kind == "number":
			found[one.name] = numberOf(one.defaultValue)
		default:
			found[one.name] = one.defaultValue
		}
	}
	return found, nil
}

// checkUnsupported is an error unless the value asks for nothing.
func checkUnsupported(f field, value any) error {
	if value == nil {
		return nil
	}
	for _, one := range f.allowed {
		if equal(value, one) {
			return nil
		}
	}
	return refusal("unsupported_field", f.name, named{"name": f.name, "value": quoted(value), "why": f.why})
}

// equal compares values of JSON texts. 1 is 1.0, and not true.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for at := range a {
			if !equal(a[at], other[at]) {
				return false
			}
		}
		return true
	case *formats.Object:
		other, ok := b.(*formats.Object)
		if !ok || a.Len() != other.Len() {
			return false
		}
		for _, name := range a.Names() {
			if !other.Has(name) || !equal(a.Get(name), other.Get(name)) {
				return false
			}
		}
		return true
	case int64, float64, json.Number:
		return numberOf(a) == numberOf(b)
	}
	return a == b
}

func isWhole(value any) bool {
	switch value.(type) {
	case int64, json.Number:
		return true
	}
	return false
}

func (f field) wrong(value any) error { return invalid(f.name, value, f.must) }

// within says whether a number is within the bounds; what is none is within no bounds.
func (f field) within(value any) bool {
	number := numberOf(value)
	above := math.IsInf(f.above, -1) || number > f.above
	return number >= f.least && above && number <= f.most
}

// checked is the value of a field in the type of its kind.
func (f field) checked(value any) (any, error) {
	switch f.kind {
	case "boolean":
		if flag, ok := value.(bool); ok {
			return flag, nil
		}
	case "number":
		if f.within(value) {
			return numberOf(value), nil
		}
	case "integer":
		if whole, ok := value.(int64); ok && f.within(value) {
			return whole, nil
		}
	case "string":
		if text, ok := value.(string); ok && utf8.RuneCountInString(text) <= f.longest {
			return text, nil
		}
	case "strings":
		if texts, ok := f.strings(value); ok {
			return texts, nil
		}
	case "ids":
		if ids, ok := wholes(value); ok {
			return ids, nil
		}
	case "choice":
		if text, ok := value.(string); ok && slices.Contains(f.allowed, value) {
			return text, nil
		}
	case "choices":
		if texts, ok := f.choices(value); ok {
			return texts, nil
		}
	case "input":
		if text, ok := value.(string); ok && utf8.RuneCountInString(text) <= f.longest {
			return text, nil
		}
		if items, ok := value.([]any); ok && len(items) > 0 {
			return items, nil
		}
	case "prompt":
		return f.prompts(value)
	case "object":
		if found, ok := value.(*formats.Object); ok {
			return found, nil
		}
	case "bias":
		return f.biases(value)
	case "stream_options":
		return f.streamOptions(value)
	case "tools":
		if found, ok := value.([]any); ok && float64(len(found)) <= f.most {
			return found, nil
		}
	case "tool_choice":
		switch value.(type) {
		case string, *formats.Object:
			return value, nil
		}
	case "messages":
		if messages, ok := value.([]any); ok && len(messages) > 0 {
			return messages, nil
		}
	}
	return nil, f.wrong(value)
}

func (f field) strings(value any) ([]string, bool) {
	if text, ok := value.(string); ok {
		value = []any{text}
	}
	found, ok := value.([]any)
	if !ok || float64(len(found)) > f.most {
		return nil, false
	}
	texts := make([]string, len(found))
	for at, one := range found {
		text, ok := one.(string)
		if !ok || text == "" || utf8.RuneCountInString(text) > f.longest {
			return nil, false
		}
		texts[at] = text
	}
	return texts, true
}

// choices is a list of texts that are all allowed.
func (f field) choices(value any) ([]string, bool) {
	found, ok := value.([]any)
	texts := make([]string, len(found))
	for at, one := range found {
		text, isText := one.(string)
		texts[at], ok = text, ok && isText && slices.Contains(f.allowed, one)
	}
	return texts, ok
}

// wholes is a list of whole numbers, of any size: whether they are ids of the model, who knows it says.
func wholes(value any) ([]any, bool) {
	found, ok := value.([]any)
	for _, one := range found {
		ok = ok && isWhole(one)
	}
	return found, ok
}

// prompts are all of them, each a text or a list of ids.
func (f field) prompts(value any) ([]any, error) {
	if _, ok := value.(string); ok {
		return []any{value}, nil
	}
	found, ok := value.([]any)
	if !ok || len(found) == 0 {
		return nil, f.wrong(value)
	}
	if _, ok := wholes(found); ok {
		return []any{value}, nil
	}
	for at, one := range found {
		_, isText := one.(string)
		if _, isIDs := wholes(one); !isText && !isIDs {
			return nil, invalid(f.name+"["+strconv.Itoa(at)+"]", one, f.must)
		}
	}
	return found, nil
}

// bias is what is added to the logit of a token. Whether it is in the vocabulary, who knows it says.
type bias struct {
	id    int64
	value float64
}

// biasKey is a token id as a key: no sign, no zeros before it.
var biasKey = regexp.MustCompile(`^(?:0|[1-9][0-9]{0,9})$`)

func (f field) biases(value any) ([]bias, error) {
	entries, ok := value.(*formats.Object)
	if !ok || entries.Len() > f.longest {
		return nil, f.wrong(value)
	}
	found := make([]bias, 0, entries.Len())
	for _, key := range entries.Names() {
		name, one := cut(f.name+"."+key, 256), entries.Get(key)
		if !biasKey.MatchString(key) {
			return nil, unknown(name, words("bias_keys"))
		}
		if !f.within(one) {
			return nil, invalid(name, one, words("bias"))
		}
		id, _ := strconv.ParseInt(key, 10, 64) // ten digits
		found = append(found, bias{id, numberOf(one)})
	}
	return found, nil
}

// usage is where a stream counts its tokens: a last event has the count, and each one before that so far or null.
type usage int

const (
	usageNowhere usage = iota
	usageAtTheEnd
	usageEverywhere
)

// streamOptions gives the usage.
func (f field) streamOptions(value any) (any, error) {
	options, ok := value.(*formats.Object)
	if !ok {
		return nil, f.wrong(value)
	}
	asked := map[string]bool{"include_usage": false, "continuous_usage_stats": false}
	for _, key := range options.Names() {
		name, one := cut(f.name+"."+key, 256), options.Get(key)
		_, known := asked[key]
		switch flag, isFlag := one.(bool); {
		case key == "include_obfuscation": // which OpenAI's servers do unless told not to
			padding := field{name: name, allowed: []any{false}, why: words("not_padded")}
			if err := checkUnsupported(padding, one); err != nil {
				return nil, err
			}
		case !known:
			return nil, unknown(name, f.name)
		case one != nil && !isFlag:
			return nil, invalid(name, one, words("flag"))
		default:
			asked[key] = flag
		}
	}
	switch {
	case !asked["include_usage"]:
		return usageNowhere, nil
	case !asked["continuous_usage_stats"]:
		return usageAtTheEnd, nil
	}
	return usageEverywhere, nil
}

package formats

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Object is a JSON object that keeps the order of its names, so that what is written back reads as it did.
//
// Values are nil, bool, int64 (*big.Int when it does not fit), float64, string, []any and *Object.
type Object struct {
	names  []string
	values map[string]any
}

// NewObject makes an object of names and values in turns: NewObject("step", 1, "loss", 0.5).
func NewObject(pairs ...any) *Object {
	object := &Object{values: make(map[string]any, len(pairs)/2)}
	for at := 0; at+1 < len(pairs); at += 2 {
		object.Set(pairs[at].(string), pairs[at+1])
	}
	return object
}

// Names gives the names in their order.
func (o *Object) Names() []string { return slices.Clone(o.names) }

// SortedNames gives the names in alphabetical order.
func (o *Object) SortedNames() []string { return slices.Sorted(maps.Keys(o.values)) }

// Len is the number of entries.
func (o *Object) Len() int { return len(o.names) }

// Has says whether there is an entry of this name.
func (o *Object) Has(name string) bool {
	_, found := o.values[name]
	return found
}

// Get gives a value, nil where there is none.
func (o *Object) Get(name string) any { return o.values[name] }

// Set gives a name a value; a new name goes to the end.
func (o *Object) Set(name string, value any) {
	if o.values == nil {
		o.values = make(map[string]any)
	}
	if !o.Has(name) {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

// Delete takes an entry away and gives its value, nil where there was none.
func (o *Object) Delete(name string) any {
	value, found := o.values[name]
	if found {
		delete(o.values, name)
		o.names = slices.DeleteFunc(o.names, func(other string) bool { return other == name })
	}
	return value
}

// Repr is a value as messages show it, in the notation of Python, in which the other front end shows it too; cut off
// where it is long.
func Repr(value any) string { return Excerpt(repr(value)) }

// Excerpt is a text from a file as messages show it, cut off where it is long.
func Excerpt(text string) string {
	if len(text) <= shownCharacters || utf8.RuneCountInString(text) <= shownCharacters {
		return text
	}
	return string([]rune(text)[:shownCharacters]) + "…"
}

func repr(value any) string {
	switch value := value.(type) {
	case nil:
		return "None"
	case bool:
		if value {
			return "True"
		}
		return "False"
	case float64:
		return reprFloat(value)
	case string:
		return reprString(value)
	case []any:
		parts := make([]string, len(value))
		for at, entry := range value {
			parts[at] = repr(entry)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *Object:
		parts := make([]string, 0, value.Len())
		for _, name := range value.names {
			parts = append(parts, reprString(name)+": "+repr(value.values[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *big.Int:
		if text := value.String(); len(text) <= 40 {
			return text
		}
		return fmt.Sprintf("a number of %d bits", value.BitLen())
	default:
		return fmt.Sprint(value)
	}
}

// reprFloat is the shortest decimal that reads back as the same number, with an exponent below 1e-4 and from 1e16 on.
func reprFloat(value float64) string {
	switch {
	case math.IsNaN(value):
		return "nan"
	case math.IsInf(value, 1):
		return "inf"
	case math.IsInf(value, -1):
		return "-inf"
	}
	text := strconv.FormatFloat(value, 'e', -1, 64)
	exponent, _ := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return text
	}
	text = strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func reprString(text string) string {
	quote := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	var out strings.Builder
	out.WriteRune(quote)
	for _, letter := range text {
		switch {
		case letter == quote || letter == '\\':
			out.WriteByte('\\')
			out.WriteRune(letter)
		case letter == '\n':
			out.WriteString(`\n`)
		case letter == '\r':
			out.WriteString(`\r`)
		case letter == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(letter):
			out.WriteRune(letter)
		case letter < 0x100:
			fmt.Fprintf(&out, `\x%02x`, letter)
		case letter < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, letter)
		default:
			fmt.Fprintf(&out, `\U%08x`, letter)
		}
	}
	out.WriteRune(quote)
	return out.String()
}

package jinja

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// Values are nil, bool, int64, float64, string, *list, *dict, *undefined, *namespace, *loop and *function.

// list is a list of Python's, or what is like one.
type list struct {
	items []any
	kind  listKind
}

type listKind uint8

const (
	plainList listKind = iota
	tuple
	numbers   // a range
	view      // of a dictionary: it has no places
	generator // gives its items once; whether there are any does not show
)

// dict keeps the order of its keys.
type dict struct {
	keys   []any
	values map[any]any // by keyOf
}

func newDict() *dict { return &dict{values: make(map[any]any)} }

// keyOf makes keys equal that Python finds equal.
func keyOf(key any) any {
	switch key := key.(type) {
	case bool:
		if key {
			return int64(1)
		}
		return int64(0)
	case float64:
		if whole := int64(key); float64(whole) == key {
			return whole
		}
	case nil, int64, string:
	case *undefined:
		return undefined{} // all are equal
	default:
		fail("TypeError", "unhashable type: '%s'", typeName(key))
	}
	return key
}

func (d *dict) set(key, value any) {
	known := keyOf(key)
	if _, found := d.values[known]; !found {
		d.keys = append(d.keys, key)
	}
	d.values[known] = value
}

func (d *dict) get(key any) (any, bool) {
	value, found := d.values[keyOf(key)]
	return value, found
}

// undefined stands for what is not there. It prints as nothing; most other uses of it fail with its sentence.
type undefined struct{ sentence string }

// namespace is an object whose attributes a template may set.
type namespace struct{ *dict }

// function is what can be called: a function, a method, a macro.
type function struct {
	name string
	call func(s *state, given arguments) any
}

// fromGo makes a value of what JSON becomes in package formats.
func fromGo(value any) any {
	switch value := value.(type) {
	case nil, bool, int64, float64, string:
		return value
	case int:
		return int64(value)
	case json.Number:
		fail("OverflowError", "the number %s is too large", value)
	case []any:
		made := &list{}
		for _, item := range value {
			made.items = append(made.items, fromGo(item))
		}
		return made
	case *formats.Object:
		made := newDict()
		for _, name := range value.Names() {
			made.set(name, fromGo(value.Get(name)))
		}
		return made
	}
	fail("TypeError", "a value is of Go's type %T, which templates do not get", value)
	return nil
}

func typeName(value any) string {
	switch value := value.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		return [...]string{"list", "tuple", "range", "dict_items", "generator"}[value.kind]
	case *dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

func truth(value any) bool {
	switch value := value.(type) {
	case nil, *undefined:
		return false
	case bool:
		return value
	case int64:
		return value != 0
	case float64:
		return value != 0
	case string:
		return value != ""
	case *list:
		return value.kind == generator || len(value.items) > 0
	case *dict:
		return len(value.keys) > 0
	}
	return true
}

// number is a whole number or a fraction, of which a bool is one as well.
func number(value any) (whole int64, fraction float64, isWhole, ok bool) {
	switch value := value.(type) {
	case bool:
		if value {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return value, float64(value), true, true
	case float64:
		return 0, value, false, true
	}
	return 0, 0, false, false
}

// equal is a == b.
func (s *state) equal(a, b any) bool {
	s.spend(1)
	defer s.deeper()()
	if _, x, wholeX, ok := number(a); ok {
		_, y, wholeY, ok := number(b)
		if ok && wholeX && wholeY {
			return keyOf(a) == keyOf(b)
		}
		return ok && x == y
	}
	switch a := a.(type) {
	case *undefined:
		_, both := b.(*undefined)
		return both
	case *list:
		b, ok := b.(*list)
		if !ok || a.kind != b.kind || a.kind == generator || len(a.items) != len(b.items) {
			return ok && a == b
		}
		for at := range a.items {
			if !s.equal(a.items[at], b.items[at]) {
				return false
			}
		}
		return true
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for _, key := range a.keys {
			mine, _ := a.get(key)
			if other, found := b.get(key); !found || !s.equal(mine, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// order is below 0, 0 or above 0. Values that have no order fail.
func (s *state) order(a, b any, operator string) int {
	s.spend(1)
	defer s.deeper()()
	if _, x, wholeX, ok := number(a); ok {
		if _, y, wholeY, ok := number(b); ok {
			if wholeX && wholeY {
				x, y := keyOf(a).(int64), keyOf(b).(int64)
				return compare(x < y, x > y)
			}
			return compare(x < y, x > y)
		}
	}
	switch x := a.(type) {
	case *undefined:
		fail("UndefinedError", "%s", x.sentence)
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	case *list:
		if y, ok := b.(*list); ok && x.kind == y.kind && x.kind <= tuple {
			for at := range min(len(x.items), len(y.items)) {
				if !s.equal(x.items[at], y.items[at]) {
					return s.order(x.items[at], y.items[at], operator)
				}
			}
			return len(x.items) - len(y.items)
		}
	}
	if missing, ok := b.(*undefined); ok {
		fail("UndefinedError", "%s", missing.sentence)
	}
	fail("TypeError", "'%s' not supported between instances of '%s' and '%s'", operator, typeName(a), typeName(b))
	return 0
}

func compare(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// text is str(value).
func (s *state) text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case *undefined:
		return ""
	}
	var out strings.Builder
	s.represent(&out, value, 0)
	return out.String()
}

// represent writes repr(value).
func (s *state) represent(out *strings.Builder, value any, depth int) {
	s.spend(1)
	if depth > mostDepth {
		fail("RecursionError", "a value is nested too deeply")
	}
	switch value := value.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		if value {
			out.WriteString("True")
		} else {
			out.WriteString("False")
		}
	case int64:
		out.WriteString(strconv.FormatInt(value, 10))
	case float64:
		out.WriteString(floatText(value))
	case string:
		s.copied(len(value))
		out.WriteString(quoted(value))
	case *list:
		begin, end := "[", "]"
		switch {
		case value.kind == tuple && len(value.items) == 1:
			begin, end = "(", ",)"
		case value.kind == tuple:
			begin, end = "(", ")"
		case value.kind != plainList:
			fail("TypeError", "a %s is to be written, which this program does not do as Python does", typeName(value))
		}
		out.WriteString(begin)
		for at, item := range value.items {
			if at > 0 {
				out.WriteString(", ")
			}
			s.represent(out, item, depth+1)
		}
		out.WriteString(end)
	case *dict:
		out.WriteString("{")
		for at, key := range value.keys {
			if at > 0 {
				out.WriteString(", ")
			}
			s.represent(out, key, depth+1)
			out.WriteString(": ")
			item, _ := value.get(key)
			s.represent(out, item, depth+1)
		}
		out.WriteString("}")
	case *undefined:
		out.WriteString("Undefined")
	default:
		fail("TypeError", "a %s is to be written, which this program does not do as Python does", typeName(value))
	}
}

// floatText is repr of a float: the shortest text that reads as it, with an exponent where Python has one.
func floatText(value float64) string {
	switch {
	case math.IsNaN(value):
		return "nan"
	case math.IsInf(value, 0):
		return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%+.0f", value), "+"))
	}
	return formats.JSONFloat(value)
}

// quoted is repr of a text.
func quoted(text string) string {
	quote := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	var out strings.Builder
	out.WriteRune(quote)
	for _, letter := range text {
		switch {
		case letter == quote || letter == '\\':
			out.WriteRune('\\')
			out.WriteRune(letter)
		case letter == '\n':
			out.WriteString(`\n`)
		case letter == '\r':
			out.WriteString(`\r`)
		case letter == '\t':
			out.WriteString(`\t`)
		case letter == ' ' || unicode.IsPrint(letter):
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

// items are what a loop over a value goes through.
func (s *state) items(value any) []any {
	switch value := value.(type) {
	case *list:
		items := value.items
		if value.kind == generator {
			value.items = nil
		}
		s.spend(len(items))
		return items
	case *dict:
		s.spend(len(value.keys))
		return value.keys
	case string:
		s.spend(4 * len(value))
		var letters []any
		for _, letter := range value {
			letters = append(letters, string(letter))
		}
		return letters
	case *undefined:
		return nil
	}
	fail("TypeError", "'%s' object is not iterable", typeName(value))
	return nil
}

func (s *state) length(value any) int {
	switch value := value.(type) {
	case string:
		s.copied(len(value))
		return utf8.RuneCountInString(value)
	case *list:
		if value.kind != generator {
			return len(value.items)
		}
	case *dict:
		return len(value.keys)
	case *undefined:
		return 0
	}
	fail("TypeError", "object of type '%s' has no len()", typeName(value))
	return 0
}

// contains is `item in whole`.
func (s *state) contains(whole, item any) bool {
	switch whole := whole.(type) {
	case string:
		part, ok := item.(string)
		if !ok {
			fail("TypeError", "'in <string>' requires string as left operand, not %s", typeName(item))
		}
		s.copied(len(whole))
		return strings.Contains(whole, part)
	case *dict:
		_, found := whole.get(item)
		return found
	}
	for _, one := range s.items(whole) {
		if s.equal(one, item) {
			return true
		}
	}
	return false
}

// isSpace says what Python strips from a text.
func isSpace(letter rune) bool { return unicode.IsSpace(letter) || 0x1C <= letter && letter <= 0x1F }

package jinja

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// jsonFilter writes a value as Python's json does, without escapes beyond what JSON needs.
func jsonFilter(s *state, value any, given arguments) any {
	taken := given.take("tojson", "indent", "separators", "sort_keys", "ensure_ascii")
	if truth(or(taken[3], false)) {
		fail("TypeError", "tojson writes all letters as they are; ensure_ascii must be false")
	}
	w := &jsonWriter{s: s, between: ", ", after: ": ", sorted: truth(or(taken[2], false))}
	switch indent := or(taken[0], nil).(type) {
	case nil:
	case string:
		w.indent, w.lines, w.between = indent, true, ","
	default:
		w.indent = s.repeat(" ", wholeArgument("tojson", indent)).(string)
		w.lines, w.between = true, ","
	}
	if separators := or(taken[1], nil); separators != nil {
		parts := s.items(separators)
		if len(parts) != 2 {
			fail("ValueError", "separators must be two texts")
		}
		w.between, w.after = textArgument("tojson", parts[0]), textArgument("tojson", parts[1])
	}
	w.value(value, 0)
	return w.out.String()
}

type jsonWriter struct {
	s              *state
	out            strings.Builder
	between, after string
	indent         string
	lines, sorted  bool
}

func (w *jsonWriter) write(text string) {
	w.s.copied(len(text))
	w.out.WriteString(text)
}

func (w *jsonWriter) value(value any, depth int) {
	if depth > mostDepth {
		fail("RecursionError", "a value is nested too deeply")
	}
	switch value := value.(type) {
	case nil:
		w.write("null")
	case bool:
		w.write(strconv.FormatBool(value))
	case int64:
		w.write(strconv.FormatInt(value, 10))
	case float64:
		w.write(formats.JSONFloat(value))
	case string:
		w.write(jsonText(value))
	case *list:
		if value.kind > tuple {
			fail("TypeError", "Object of type %s is not JSON serializable", typeName(value))
		}
		w.several('[', ']', len(value.items), depth, func(at int) { w.value(value.items[at], depth+1) })
	case *dict:
		keys := value.keys
		if w.sorted {
			keys = w.s.sorted(slices.Clone(keys), false, func(key any) any { return key })
		}
		w.several('{', '}', len(keys), depth, func(at int) {
			w.write(jsonText(w.key(keys[at])))
			w.write(w.after)
			item, _ := value.get(keys[at])
			w.value(item, depth+1)
		})
	default:
		fail("TypeError", "Object of type %s is not JSON serializable", typeName(value))
	}
}

func (w *jsonWriter) key(key any) string {
	switch key := key.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(key)
	case float64:
		return formats.JSONFloat(key)
	}
	return w.s.text(key)
}

func (w *jsonWriter) several(begin, end byte, count, depth int, item func(at int)) {
	w.out.WriteByte(begin)
	line := func(depth int) {
		if w.lines && count > 0 {
			w.write("\n" + strings.Repeat(w.indent, depth))
		}
	}
	for at := range count {
		if at > 0 {
			w.write(w.between)
		}
		line(depth + 1)
		item(at)
	}
	line(depth)
	w.out.WriteByte(end)
}

func jsonText(text string) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	out.WriteByte('"')
	for at := range len(text) {
		switch letter := text[at]; {
		case letter == '"' || letter == '\\':
			out.WriteByte('\\')
			out.WriteByte(letter)
		case letter == '\n':
			out.WriteString(`\n`)
		case letter == '\r':
			out.WriteString(`\r`)
		case letter == '\t':
			out.WriteString(`\t`)
		case letter == '\b':
			out.WriteString(`\b`)
		case letter == '\f':
			out.WriteString(`\f`)
		case letter < ' ':
			out.WriteString(`\u00`)
			out.WriteByte(digits[letter>>4])
			out.WriteByte(digits[letter&15])
		default:
			out.WriteByte(letter)
		}
	}
	out.WriteByte('"')
	return out.String()
}

package formats

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
)

// JSONLine is a value as one line of JSON, without a line end, in the very bytes that Python's json.dumps gives: so a
// metrics file does not tell which language wrote it. Numbers that are not finite become NaN and Infinity, which JSON
// lacks and Python reads.
func JSONLine(value any) string {
	var out strings.Builder
	writeJSON(&out, value, -1, 0)
	return out.String()
}

// JSONDocument is a value as indented JSON with a line end, as json.dumps(value, indent=2) + "\n" gives.
func JSONDocument(value any) string {
	var out strings.Builder
	writeJSON(&out, value, 2, 0)
	out.WriteByte('\n')
	return out.String()
}

// writeJSON writes with `indent` spaces a level, or on one line where it is negative.
func writeJSON(out *strings.Builder, value any, indent, level int) {
	separator := ", "
	line := func(level int) {}
	if indent >= 0 {
		separator = ","
		line = func(level int) {
			out.WriteByte('\n')
			for range indent * level {
				out.WriteByte(' ')
			}
		}
	}
	switch value := value.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(value))
	case int:
		out.WriteString(strconv.Itoa(value))
	case int64:
		out.WriteString(strconv.FormatInt(value, 10))
	case *big.Int:
		out.WriteString(value.String())
	case float64:
		out.WriteString(jsonFloat(value))
	case string:
		writeJSONString(out, value)
	case []any:
		if len(value) == 0 {
			out.WriteString("[]")
			return
		}
		out.WriteByte('[')
		for at, entry := range value {
			if at > 0 {
				out.WriteString(separator)
			}
			line(level + 1)
			writeJSON(out, entry, indent, level+1)
		}
		line(level)
		out.WriteByte(']')
	case *Object:
		if value.Len() == 0 {
			out.WriteString("{}")
			return
		}
		out.WriteByte('{')
		for at, name := range value.names {
			if at > 0 {
				out.WriteString(separator)
			}
			line(level + 1)
			writeJSONString(out, name)
			out.WriteString(": ")
			writeJSON(out, value.values[name], indent, level+1)
		}
		line(level)
		out.WriteByte('}')
	default:
		// Only this module's own code makes the values that are written.
		panic(fmt.Sprintf("formats: a %T cannot be written as JSON", value))
	}
}

func jsonFloat(value float64) string {
	switch {
	case math.IsNaN(value):
		return "NaN"
	case math.IsInf(value, 1):
		return "Infinity"
	case math.IsInf(value, -1):
		return "-Infinity"
	}
	return reprFloat(value)
}

func writeJSONString(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, letter := range text {
		switch {
		case letter == '"' || letter == '\\':
			out.WriteByte('\\')
			out.WriteRune(letter)
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
		case letter >= 0x20 && letter < 0x7f:
			out.WriteRune(letter)
		case letter < 0x10000:
			fmt.Fprintf(out, `\u%04x`, letter)
		default:
			high, low := utf16.EncodeRune(letter)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		}
	}
	out.WriteByte('"')
}

package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ReadJSON reads a JSON file that holds an object, of at most JSONBytes.
func ReadJSON(path string) (*Object, error) { return ReadLongJSON(path, JSONBytes) }

// ReadLongJSON reads a JSON file that holds an object, of at most `most` bytes.
func ReadLongJSON(path string, most int64) (*Object, error) {
	data, err := ReadRegular(path, most)
	if err != nil {
		return nil, err
	}
	value, err := ParseJSON(data)
	if err != nil {
		return nil, &Error{Path: path, Problem: fmt.Sprintf("is not JSON (%v)", err), Cause: err}
	}
	object, ok := value.(*Object)
	if !ok {
		return nil, &Error{Path: path, Problem: "is not a JSON object"}
	}
	return object, nil
}

// Python's json writes NaN and Infinity where a number is not finite, which no other reader of JSON takes.
var notFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\bNaN\b|-?\bInfinity\b`)

// ParseJSON reads one JSON value. Objects keep their order, and a key stands once in each. Nesting, digits and the
// number of values are bounded, so that a text takes memory and time in proportion to its size. NaN and Infinity, which
// Python writes, and fractions that are too large become infinite, NaN below zero; whoever uses them refuses them by
// name.
func ParseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	if bytes.Contains(data, []byte("NaN")) || bytes.Contains(data, []byte("Infinity")) {
		data = notFinite.ReplaceAllFunc(data, func(part []byte) []byte {
			switch string(part) {
			case "Infinity":
				return []byte("1e999")
			case "NaN", "-Infinity":
				return []byte("-1e999")
			}
			return part
		})
	}
	reader := jsonReader{decoder: json.NewDecoder(bytes.NewReader(data))}
	reader.decoder.UseNumber()
	value, err := reader.value(0)
	if err == nil {
		if _, err = reader.decoder.Token(); errors.Is(err, io.EOF) {
			return value, nil
		}
		err = errors.New("something follows the value")
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("%w, at byte %d", err, reader.decoder.InputOffset())
}

// JSONMarksOf counts the opening brackets and braces, commas and colons of a JSON text outside its strings.
func JSONMarksOf(data []byte) int {
	marks, inside := 0, false
	for at := 0; at < len(data); at++ {
		switch data[at] {
		case '"':
			inside = !inside
		case '\\':
			at++ // outside strings there is none
		case '[', '{', ',', ':':
			if !inside {
				marks++
			}
		}
	}
	return marks
}

type jsonReader struct {
	decoder *json.Decoder
	count   int // values and keys so far; each follows a bracket, a brace, a comma or a colon
}

func (r *jsonReader) value(depth int) (any, error) {
	if depth > JSONDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", JSONDepth)
	}
	if r.count++; r.count > JSONMarks {
		return nil, fmt.Errorf("it has more than %d brackets, commas and colons", JSONMarks)
	}
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		values := []any{}
		for r.decoder.More() {
			value, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		_, err = r.decoder.Token()
		return values, err
	case json.Delim('{'):
		return r.object(depth)
	}
	if number, ok := token.(json.Number); ok {
		return numberOf(string(number))
	}
	return token, nil
}

// object reads what follows the opening brace.
func (r *jsonReader) object(depth int) (*Object, error) {
	object := NewObject()
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string) // the decoder sees to that
		if object.Has(name) {
			return nil, fmt.Errorf("the key %s is twice in one object", Shown(name))
		}
		r.count++
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		object.Set(name, value)
	}
	_, err := r.decoder.Token()
	return object, err
}

// numberOf is an int64 of a whole number, or a json.Number where it does not fit; a float64 of any other.
func numberOf(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number, nil
		}
		if len(text) > JSONDigits {
			return nil, fmt.Errorf("a whole number has more than %d digits", JSONDigits)
		}
		return json.Number(text), nil // which no option takes
	}
	number, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return number, err
}

// JSONLine is a value as one line of JSON, with its line end.
func JSONLine(value any) ([]byte, error) { return encode(value, "") }

// JSONDocument is a value as indented JSON, with a line end.
func JSONDocument(value any) ([]byte, error) { return encode(value, "  ") }

// WriteJSON replaces `path` by a value as indented JSON, in one step.
func WriteJSON(path string, value any) error {
	text, err := JSONDocument(value)
	if err != nil {
		return err
	}
	return WriteFile(path, text)
}

// encode leaves out the escapes for web pages.
func encode(value any, indent string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	err := encoder.Encode(value)
	return text.Bytes(), err
}

// MarshalJSON writes the entries in their order. Null stands for what is no finite number; a float that is whole has a
// fraction of 0, so that it is read as a float again.
func (o *Object) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for at, name := range o.names {
		value := o.values[name]
		number, isFloat := value.(float64)
		if math.IsNaN(number) || math.IsInf(number, 0) {
			value, isFloat = nil, false
		}
		key, err := JSONLine(name)
		if err != nil {
			return nil, err
		}
		entry, err := JSONLine(value)
		if err != nil {
			return nil, err
		}
		if at > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, key...), ':'), bytes.TrimSpace(entry)...)
		if isFloat && !bytes.ContainsAny(entry, ".e") {
			text = append(text, ".0"...)
		}
	}
	return append(text, '}'), nil
}

// Shown is a value as messages show it, cut off where it is long.
func Shown(value any) string {
	switch value := value.(type) {
	case string:
		quoted := strconv.Quote(value)
		return Excerpt("'" + quoted[1:len(quoted)-1] + "'")
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return "not finite"
		}
	}
	line, err := JSONLine(NewObject("", value)) // as in an object, where a float stays one
	if err != nil {
		return Excerpt(fmt.Sprint(value))
	}
	return Excerpt(string(line[len(`{"":`) : len(line)-len("}\n")]))
}

// Excerpt is a text from a file as messages show it, cut off where it is long.
func Excerpt(text string) string {
	if len(text) <= shownCharacters || utf8.RuneCountInString(text) <= shownCharacters {
		return text
	}
	return string([]rune(text)[:shownCharacters]) + "…"
}

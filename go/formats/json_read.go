package formats

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
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

// ParseJSON reads one JSON value (RFC 8259) and, as Python's json does, NaN, Infinity and -Infinity too. Objects keep
// their order. A key stands once in an object; nesting, digits and the number of values are bounded, so that a text takes
// memory and time in proportion to its size. Errors name the byte.
func ParseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	parser := jsonParser{text: string(data)}
	parser.space()
	value, err := parser.value(0)
	if err != nil {
		return nil, err
	}
	parser.space()
	if parser.at < len(parser.text) {
		return nil, parser.fail("something follows the value")
	}
	return value, nil
}

type jsonParser struct {
	text  string
	at    int
	marks int // brackets, braces, commas and colons so far
}

func (p *jsonParser) fail(problem string) error {
	if lines := strings.Count(p.text[:p.at], "\n"); lines > 0 {
		problem += fmt.Sprintf(", in line %d", lines+1)
	}
	return fmt.Errorf("%s, at byte %d", problem, p.at)
}

func (p *jsonParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take steps over `text` if it comes next.
func (p *jsonParser) take(text string) bool {
	if strings.HasPrefix(p.text[p.at:], text) {
		p.at += len(text)
		return true
	}
	return false
}

// mark steps over a bracket, a comma or a colon if it comes next.
func (p *jsonParser) mark(text string) bool {
	found := p.take(text)
	if found {
		p.marks++
	}
	return found
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > JSONDepth {
		return nil, p.fail(fmt.Sprintf("it is nested deeper than %d levels", JSONDepth))
	}
	if p.marks > JSONMarks {
		return nil, p.fail(fmt.Sprintf("it has more than %d brackets, commas and colons", JSONMarks))
	}
	switch {
	case p.take("null"):
		return nil, nil
	case p.take("true"):
		return true, nil
	case p.take("false"):
		return false, nil
	case p.take("NaN"):
		return math.NaN(), nil
	case p.take("Infinity"):
		return math.Inf(1), nil
	case p.take("-Infinity"):
		return math.Inf(-1), nil
	case p.take(`"`):
		return p.string()
	case p.mark("["):
		return p.array(depth)
	case p.mark("{"):
		return p.object(depth)
	}
	return p.number()
}

func (p *jsonParser) array(depth int) (any, error) {
	values := []any{}
	p.space()
	if p.take("]") {
		return values, nil
	}
	for {
		p.space()
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		p.space()
		if p.take("]") {
			return values, nil
		}
		if !p.mark(",") {
			return nil, p.fail("a ',' or ']' was expected")
		}
	}
}

func (p *jsonParser) object(depth int) (any, error) {
	object := NewObject()
	p.space()
	if p.take("}") {
		return object, nil
	}
	for {
		p.space()
		if !p.take(`"`) {
			return nil, p.fail("a name in double quotes was expected")
		}
		name, err := p.string()
		if err != nil {
			return nil, err
		}
		p.space()
		if !p.mark(":") {
			return nil, p.fail("a ':' was expected")
		}
		p.space()
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if object.Has(name) {
			return nil, p.fail(fmt.Sprintf("the key %s is twice in one object", Repr(name)))
		}
		object.Set(name, value)
		p.space()
		if p.take("}") {
			return object, nil
		}
		if !p.mark(",") {
			return nil, p.fail("a ',' or '}' was expected")
		}
	}
}

// string reads what follows the opening quote.
func (p *jsonParser) string() (string, error) {
	var out strings.Builder
	for {
		rest := p.text[p.at:]
		end := strings.IndexFunc(rest, func(letter rune) bool { return letter == '"' || letter == '\\' || letter < 0x20 })
		if end < 0 {
			p.at = len(p.text)
			return "", p.fail("a string does not end")
		}
		out.WriteString(rest[:end])
		p.at += end
		switch {
		case p.take(`"`):
			return out.String(), nil
		case p.take(`\`):
			letter, err := p.escape()
			if err != nil {
				return "", err
			}
			out.WriteRune(letter)
		default:
			return "", p.fail("a control character stands in a string")
		}
	}
}

var jsonEscapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escape reads what follows a backslash. Half a surrogate pair becomes the replacement character.
func (p *jsonParser) escape() (rune, error) {
	if p.at >= len(p.text) {
		return 0, p.fail("a string does not end")
	}
	letter := p.text[p.at]
	if known, ok := jsonEscapes[letter]; ok {
		p.at++
		return known, nil
	}
	if letter != 'u' {
		return 0, p.fail("an unknown escape stands in a string")
	}
	p.at++
	first, err := p.hex()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	here := p.at
	if p.take(`\u`) {
		second, err := p.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
			return pair, nil
		}
		p.at = here
	}
	return utf8.RuneError, nil
}

func (p *jsonParser) hex() (rune, error) {
	if len(p.text)-p.at < 4 {
		return 0, p.fail(`four hexadecimal digits must follow \u`)
	}
	number, err := strconv.ParseUint(p.text[p.at:p.at+4], 16, 32)
	if err != nil {
		return 0, p.fail(`four hexadecimal digits must follow \u`)
	}
	p.at += 4
	return rune(number), nil
}

func (p *jsonParser) digits() int {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at - start
}

func (p *jsonParser) number() (any, error) {
	start := p.at
	fail := func() (any, error) {
		p.at = start
		return nil, p.fail("a value was expected")
	}
	p.take("-")
	first := p.at
	count := p.digits()
	if count == 0 || (count > 1 && p.text[first] == '0') {
		return fail()
	}
	whole := true
	if p.take(".") {
		whole = false
		if p.digits() == 0 {
			return fail()
		}
	}
	if p.take("e") || p.take("E") {
		whole = false
		if !p.take("+") {
			p.take("-")
		}
		if p.digits() == 0 {
			return fail()
		}
	}
	text := p.text[start:p.at]
	if !whole {
		// Too large a number becomes infinite, as in Python; whoever uses it refuses it by name.
		number, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return fail()
		}
		return number, nil
	}
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return number, nil
	}
	if len(text) > JSONDigits {
		p.at = start
		return nil, p.fail(fmt.Sprintf("a whole number has more than %d digits", JSONDigits))
	}
	number, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return fail()
	}
	return number, nil
}

package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	textToken  tokenKind = iota // between tags
	beginBlock                  // {%
	endBlock                    // %}
	beginPrint                  // {{
	endPrint                    // }}
	nameToken
	stringToken
	wholeToken
	floatToken
	operatorToken
	endToken
)

type token struct {
	kind  tokenKind
	value string
	line  int
}

func (t token) is(value string) bool {
	return (t.kind == nameToken || t.kind == operatorToken) && t.value == value
}

// lexer cuts a template into tokens, with the line ends after blocks and the spaces before them left out, as transformers
// sets it. (https://jinja.palletsprojects.com/en/stable/templates/#whitespace-control)
type lexer struct {
	rest   string
	line   int
	begins bool // a line begins here
	tokens []token
}

func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{rest: strings.TrimSuffix(source, "\n"), line: 1, begins: true}
	for l.rest != "" {
		at := nextTag(l.rest)
		if at < 0 {
			l.add(textToken, l.rest)
			break
		}
		l.tag(at)
	}
	l.add(endToken, "")
	return l.tokens
}

// nextTag is where the next {{, {% or {# is; -1 for nowhere.
func nextTag(text string) int {
	for at := 0; at+1 < len(text); at++ {
		if text[at] == '{' && (text[at+1] == '{' || text[at+1] == '%' || text[at+1] == '#') {
			return at
		}
	}
	return -1
}

func (l *lexer) add(kind tokenKind, value string) {
	if kind != textToken || value != "" {
		l.tokens = append(l.tokens, token{kind, value, l.line})
	}
}

// skip passes over so much of the template.
func (l *lexer) skip(size int) {
	l.line += strings.Count(l.rest[:size], "\n")
	l.begins = size > 0 && l.rest[size-1] == '\n'
	l.rest = l.rest[size:]
}

// tag reads the text before a tag, and the tag.
func (l *lexer) tag(at int) {
	before, kind := l.rest[:at], l.rest[at+1]
	sign := byte(0)
	if at+2 < len(l.rest) && (l.rest[at+2] == '-' || l.rest[at+2] == '+') {
		sign = l.rest[at+2]
	}
	if sign == '-' {
		before = strings.TrimRightFunc(before, isSpace)
	} else if sign == 0 && kind != '{' {
		start := strings.LastIndexByte(before, '\n') + 1
		if (start > 0 || l.begins) && strings.TrimLeftFunc(before[start:], isSpace) == "" {
			before = before[:start]
		}
	}
	l.add(textToken, before)
	size := at + 2
	if sign != 0 {
		size++
	}
	l.skip(size)
	switch kind {
	case '#':
		l.comment()
	case '%':
		if !l.raw() {
			l.add(beginBlock, "")
			l.inside(endBlock, "%}")
		}
	default:
		l.add(beginPrint, "")
		l.inside(endPrint, "}}")
	}
}

func (l *lexer) comment() {
	at := strings.Index(l.rest, "#}")
	if at < 0 {
		failAt(l.line, "Missing end of comment tag")
	}
	sign := byte(0)
	if at > 0 {
		sign = l.rest[at-1]
	}
	l.skip(at + 2)
	l.after(sign, true)
}

// after leaves out what follows the end of a tag by the sign before it: all space after a minus, else one line end after
// a block.
func (l *lexer) after(sign byte, block bool) {
	switch {
	case sign == '-':
		if size := len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)); size > 0 {
			l.skip(size)
		}
	case sign != '+' && block && strings.HasPrefix(l.rest, "\n"):
		l.skip(1)
	}
}

// raw takes {% raw %} to {% endraw %} as text.
func (l *lexer) raw() bool {
	rest := strings.TrimLeftFunc(l.rest, isSpace)
	rest, found := strings.CutPrefix(rest, "raw")
	if !found {
		return false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	minus := strings.HasPrefix(rest, "-%}")
	if rest, found = strings.CutPrefix(strings.TrimPrefix(rest, "-"), "%}"); !found {
		return false
	}
	l.skip(len(l.rest) - len(rest))
	if minus {
		l.after('-', false)
	}
	for at := 0; at+1 < len(l.rest); at++ {
		if l.rest[at] != '{' || l.rest[at+1] != '%' {
			continue
		}
		inner := strings.TrimLeft(l.rest[at+2:], "-+")
		inner, found := strings.CutPrefix(strings.TrimLeftFunc(inner, isSpace), "endraw")
		inner = strings.TrimLeftFunc(inner, isSpace)
		end := strings.TrimLeft(inner, "-+")
		if !found || !strings.HasPrefix(end, "%}") {
			continue
		}
		text := l.rest[:at]
		if l.rest[at+2] == '-' {
			text = strings.TrimRightFunc(text, isSpace)
		} else if start := strings.LastIndexByte(text, '\n') + 1; l.rest[at+2] != '+' && (start > 0 || l.begins) &&
			strings.TrimLeftFunc(text[start:], isSpace) == "" {
			text = text[:start]
		}
		l.add(textToken, text)
		sign := byte(0)
		if len(end) < len(inner) {
			sign = inner[0]
		}
		l.skip(len(l.rest) - len(end) + 2)
		l.after(sign, true)
		return true
	}
	failAt(l.line, "Missing end of raw directive")
	return false
}

var operators = []string{
	"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
	":", "|", ",", ";",
}

// inside reads the tokens of a tag up to its end.
func (l *lexer) inside(end tokenKind, mark string) {
	var open []byte // brackets
	for {
		if size := len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)); size > 0 {
			l.skip(size)
		}
		if l.rest == "" {
			failAt(l.line, "unexpected end of template")
		}
		if len(open) == 0 {
			sign := l.rest[0]
			signed := (sign == '-' || (sign == '+' && end == endBlock)) && strings.HasPrefix(l.rest[1:], mark)
			if signed || strings.HasPrefix(l.rest, mark) {
				l.add(end, "")
				size := len(mark)
				if signed {
					size++
				} else {
					sign = 0
				}
				l.skip(size)
				l.after(sign, end == endBlock)
				return
			}
		}
		first, _ := utf8.DecodeRuneInString(l.rest)
		switch {
		case first == '\'' || first == '"':
			l.quoted(byte(first))
		case '0' <= first && first <= '9':
			l.number()
		case first == '_' || unicode.IsLetter(first):
			size := len(l.rest) - len(strings.TrimLeftFunc(l.rest, func(letter rune) bool {
				return letter == '_' || unicode.IsLetter(letter) || unicode.IsNumber(letter) || unicode.IsMark(letter)
			}))
			l.add(nameToken, l.rest[:size])
			l.skip(size)
		default:
			open = l.operator(open)
		}
	}
}

func (l *lexer) operator(open []byte) []byte {
	for _, operator := range operators {
		if !strings.HasPrefix(l.rest, operator) {
			continue
		}
		if at := strings.Index("({[", operator); at >= 0 {
			open = append(open, ")}]"[at])
		} else if strings.Contains(")}]", operator) {
			if len(open) == 0 || open[len(open)-1] != operator[0] {
				failAt(l.line, "unexpected '%s'", operator)
			}
			open = open[:len(open)-1]
		}
		l.add(operatorToken, operator)
		l.skip(len(operator))
		return open
	}
	letter, _ := utf8.DecodeRuneInString(l.rest)
	failAt(l.line, "unexpected char %s", quoted(string(letter)))
	return open
}

func (l *lexer) number() {
	digits := func(from int) int {
		for from < len(l.rest) && (l.rest[from] >= '0' && l.rest[from] <= '9' ||
			l.rest[from] == '_' && from+1 < len(l.rest) && l.rest[from+1] >= '0' && l.rest[from+1] <= '9') {
			from++
		}
		return from
	}
	size, kind := digits(0), wholeToken
	if size+1 < len(l.rest) && l.rest[size] == '.' && l.rest[size+1] >= '0' && l.rest[size+1] <= '9' {
		size, kind = digits(size+1), floatToken
	}
	if size < len(l.rest) && (l.rest[size] == 'e' || l.rest[size] == 'E') {
		from := size + 1
		if from < len(l.rest) && (l.rest[from] == '-' || l.rest[from] == '+') {
			from++
		}
		if end := digits(from); end > from {
			size, kind = end, floatToken
		}
	}
	written := strings.ReplaceAll(l.rest[:size], "_", "")
	if kind == wholeToken && (len(written) > 1 && written[0] == '0' && strings.Trim(written, "0") != "" ||
		size < len(l.rest) && strings.ContainsRune("xXoObB", rune(l.rest[size])) && written == "0") {
		failAt(l.line, "the number %s… is none that this program reads", written)
	}
	l.add(kind, written)
	l.skip(size)
}

// quoted reads a string with Python's escapes.
func (l *lexer) quoted(quote byte) {
	var out strings.Builder
	at := 1
	for ; at < len(l.rest) && l.rest[at] != quote; at++ {
		if l.rest[at] != '\\' {
			out.WriteByte(l.rest[at])
			continue
		}
		if at++; at == len(l.rest) {
			break
		}
		at += l.escape(&out, l.rest[at:]) - 1
	}
	if at >= len(l.rest) {
		failAt(l.line, "unexpected end of a string")
	}
	l.add(stringToken, out.String())
	l.skip(at + 1)
}

var escapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// escape writes what follows a backslash, and gives how much it read.
func (l *lexer) escape(out *strings.Builder, rest string) int {
	kind := rest[0]
	if written, known := escapes[kind]; known {
		out.WriteString(written)
		return 1
	}
	if width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[kind]; width > 0 {
		code, err := strconv.ParseUint(rest[1:min(1+width, len(rest))], 16, 32)
		if err != nil || len(rest) <= width || !utf8.ValidRune(rune(code)) {
			failAt(l.line, `a string has \%c without its character`, kind)
		}
		out.WriteRune(rune(code))
		return 1 + width
	}
	if kind >= '0' && kind <= '7' {
		size := 1
		for size < 3 && size < len(rest) && rest[size] >= '0' && rest[size] <= '7' {
			size++
		}
		code, _ := strconv.ParseUint(rest[:size], 8, 32) // digits alone
		out.WriteRune(rune(code))
		return size
	}
	if kind == 'N' {
		failAt(l.line, `a string has \N, which this program does not read`)
	}
	out.WriteByte('\\')
	out.WriteByte(kind) // the rest of a longer character follows
	return 1
}

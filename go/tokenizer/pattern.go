package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is a regular expression of a tokenizer.json, in the syntax of Oniguruma as far as files have it; what is not
// known is refused by name. It has look-ahead and possessive repetition, which package regexp has not, and each match
// has a bound of steps.
// (https://github.com/kkos/oniguruma/blob/master/doc/RE)
type pattern struct{ program []instruction }

type opcode uint8

const (
	opSet    opcode = iota // one character of the set
	opLoop                 // least to most characters of the set
	opSplit                // goes on at `to` and, should that fail, at `other`
	opJump                 // goes on at `to`
	opAhead                // what follows up to `to` must match here, or must not where `negated`
	opAtomic               // what follows up to `to` matches here in its first way only
	opPlace                // here is a place of this kind
	opMatch                // the end
)

type instruction struct {
	op          opcode
	set         *charSet
	least, most int
	manner      manner
	to, other   int
	negated     bool
	place       byte
}

// manner is how a repetition takes characters: as many as it can, as few, or as many without giving any back.
type manner uint8

const (
	greedy manner = iota
	lazy
	possessive
)

// Bounds of an expression: its length, the depth of its groups, and what it becomes with repetitions written out.
const (
	mostPatternBytes = 1 << 14
	mostGroups       = 50
	mostInstructions = 1 << 14
	mostRepeats      = 1000
)

// newPattern compiles an expression.
func newPattern(expression string) (*pattern, error) {
	if len(expression) > mostPatternBytes {
		return nil, fmt.Errorf("has %d bytes; it may have %d", len(expression), mostPatternBytes)
	}
	if !utf8.ValidString(expression) {
		return nil, errors.New("is not UTF-8")
	}
	parser := &patternParser{rest: expression}
	node, err := parser.alternatives(0)
	if err == nil && parser.rest != "" {
		err = errors.New("has a ) without its (")
	}
	if err != nil {
		return nil, err
	}
	made := &pattern{}
	made.compile(node)
	made.emit(instruction{op: opMatch})
	if len(made.program) > mostInstructions {
		return nil, fmt.Errorf("is too large with its repetitions written out: more than %d steps", mostInstructions)
	}
	return made, nil
}

// literalPattern finds a text as it is.
func literalPattern(text string) *pattern {
	made := &pattern{}
	for _, letter := range text {
		made.emit(instruction{op: opSet, set: newCharSet(letter, letter)})
	}
	made.emit(instruction{op: opMatch})
	return made
}

// patternNode is a part of an expression: one character, a run of parts, a choice, a repetition, or a group.
type patternNode struct {
	set         *charSet       // a character
	parts       []*patternNode // a run of them; of a choice its alternatives
	choice      bool
	repeated    *patternNode
	least, most int
	manner      manner
	ahead       *patternNode // look-ahead
	negated     bool
	atomic      *patternNode
	place       byte // ^, $, b or B: what is before and after, and no character
}

// mayBeEmpty says whether the part can match no characters.
func (n *patternNode) mayBeEmpty() bool {
	switch {
	case n.set != nil:
		return false
	case n.repeated != nil:
		return n.least == 0 || n.repeated.mayBeEmpty()
	case n.ahead != nil, n.place != 0:
		return true
	case n.atomic != nil:
		return n.atomic.mayBeEmpty()
	case n.choice:
		return slices.ContainsFunc(n.parts, (*patternNode).mayBeEmpty)
	}
	return !slices.ContainsFunc(n.parts, func(part *patternNode) bool { return !part.mayBeEmpty() })
}

type patternParser struct {
	rest   string
	anyway bool // letters of either case
}

func (p *patternParser) take(prefix string) bool {
	rest, found := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return found
}

func (p *patternParser) next() rune {
	letter, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	return letter
}

func (p *patternParser) alternatives(depth int) (*patternNode, error) {
	if depth > mostGroups {
		return nil, fmt.Errorf("has groups nested deeper than %d", mostGroups)
	}
	choice := &patternNode{choice: true}
	for {
		run, err := p.run(depth)
		if err != nil {
			return nil, err
		}
		choice.parts = append(choice.parts, run)
		if !p.take("|") {
			break
		}
	}
	if len(choice.parts) == 1 {
		return choice.parts[0], nil
	}
	return choice, nil
}

func (p *patternParser) run(depth int) (*patternNode, error) {
	run := &patternNode{}
	var letters strings.Builder // of either case, next to each other
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		before := p.rest
		part, err := p.part(depth)
		if err != nil {
			return nil, err
		}
		if written := before[:len(before)-len(p.rest)]; p.anyway && written[0] != '[' {
			letters.WriteString(strings.ToLower(written))
		} else {
			letters.WriteByte(' ')
		}
		if part, err = p.repetition(part); err != nil {
			return nil, err
		}
		run.parts = append(run.parts, part)
	}
	// Oniguruma takes ß for ss, and the like, where case does not matter.
	for _, pair := range []string{"ss", "ff", "fi", "fl", "st"} {
		if strings.Contains(letters.String(), pair) {
			return nil, fmt.Errorf("has %s of either case, which may be one letter", pair)
		}
	}
	return run, nil
}

// part is a character or a group.
func (p *patternParser) part(depth int) (*patternNode, error) {
	switch {
	case p.take("("):
		return p.group(depth)
	case p.take("["):
		set, err := p.class(0)
		return &patternNode{set: set}, err
	case p.take("^"):
		return &patternNode{place: '^'}, nil
	case p.take("$"):
		return &patternNode{place: '$'}, nil
	case p.take(`\b`):
		return &patternNode{place: 'b'}, nil
	case p.take(`\B`):
		return &patternNode{place: 'B'}, nil
	case p.take(`\`):
		set, _, err := p.escape()
		if err == nil && p.anyway {
			err = set.foldable()
		}
		return &patternNode{set: set}, err
	case p.take("."):
		set := newCharSet('\n', '\n')
		set.negated = true
		return &patternNode{set: set.ready()}, nil
	}
	letter := p.next()
	if strings.ContainsRune("*+?{}]", letter) {
		return nil, fmt.Errorf("has %c where this program knows no meaning of it", letter)
	}
	set := newCharSet(letter, letter)
	if p.anyway {
		set.fold()
		return &patternNode{set: set}, set.foldable()
	}
	return &patternNode{set: set}, nil
}

func (p *patternParser) group(depth int) (*patternNode, error) {
	if p.anyway {
		return nil, errors.New("has a group inside one of letters of either case")
	}
	node := &patternNode{}
	var inner **patternNode
	switch {
	case p.take("?:"):
	case p.take("?i:"):
		p.anyway = true
	case p.take("?="):
		inner = &node.ahead
	case p.take("?!"):
		inner, node.negated = &node.ahead, true
	case p.take("?>"):
		inner = &node.atomic
	case strings.HasPrefix(p.rest, "?"):
		return nil, fmt.Errorf("has a group that begins with %q; this program knows (?:, (?i:, (?=, (?! and (?>",
			"("+p.rest[:min(3, len(p.rest))])
	}
	content, err := p.alternatives(depth + 1)
	if err != nil {
		return nil, err
	}
	p.anyway = false
	if !p.take(")") {
		return nil, errors.New("has a ( without its )")
	}
	if inner != nil {
		*inner = content
	} else {
		node.parts = []*patternNode{content}
	}
	return node, nil
}

// repetition is a part with what is written after it on how often it stands.
func (p *patternParser) repetition(part *patternNode) (*patternNode, error) {
	node := &patternNode{repeated: part, most: math.MaxInt}
	braces := false
	switch {
	case p.take("*"):
	case p.take("+"):
		node.least = 1
	case p.take("?"):
		node.most = 1
	case p.take("{"):
		braces = true
		if err := p.counts(node); err != nil {
			return nil, err
		}
	default:
		return part, nil
	}
	switch {
	case braces && p.take("+"): // which is not possessive, but repeats the repetition
		node = &patternNode{repeated: node, least: 1, most: math.MaxInt}
		if node.repeated.mayBeEmpty() {
			return nil, errors.New("repeats what may be empty")
		}
	case braces: // where a ? means other things than elsewhere
	case p.take("?"):
		node.manner = lazy
	case p.take("+"):
		node.manner = possessive
	}
	if p.rest != "" && strings.ContainsRune("*+?{", rune(p.rest[0])) {
		return nil, errors.New("repeats a repetition")
	}
	if p.anyway {
		return nil, errors.New("repeats letters of either case")
	}
	if part.set == nil && node.most > 1 && part.mayBeEmpty() {
		return nil, errors.New("repeats what may be empty")
	}
	return node, nil
}

// counts reads what follows an opening brace.
func (p *patternParser) counts(node *patternNode) error {
	inside, rest, found := strings.Cut(p.rest, "}")
	first, last, two := strings.Cut(inside, ",")
	least, err := strconv.ParseUint(first, 10, 16)
	most, err2 := least, error(nil)
	if two && last == "" {
		most = math.MaxInt
	} else if two {
		most, err2 = strconv.ParseUint(last, 10, 16)
	}
	if !found || err != nil || err2 != nil || most < least || least > mostRepeats || most > mostRepeats && last != "" {
		return fmt.Errorf("has {%s, which is no {n}, {n,} or {n,m} up to %d", p.rest[:min(8, len(p.rest))], mostRepeats)
	}
	p.rest, node.least, node.most = rest, int(least), int(most)
	return nil
}

// class reads what follows an opening bracket, and the closing one.
func (p *patternParser) class(depth int) (*charSet, error) {
	set := &charSet{negated: p.take("^")}
	for first := true; ; first = false {
		switch {
		case p.rest == "":
			return nil, errors.New("has a [ without its ]")
		case strings.HasPrefix(p.rest, "[:"), strings.HasPrefix(p.rest, "&&"):
			return nil, fmt.Errorf("has %s in brackets, which this program does not know", p.rest[:2])
		case depth > mostGroups:
			return nil, fmt.Errorf("has brackets nested deeper than %d", mostGroups)
		case p.take("]"):
			if first {
				return nil, errors.New("has empty brackets, or a ] after a [")
			}
			if p.anyway {
				set.fold()
				if err := set.foldable(); err != nil {
					return nil, err
				}
			}
			return set.ready(), nil
		case p.take("["):
			inner, err := p.class(depth + 1)
			if err != nil {
				return nil, err
			}
			set.others = append(set.others, inner)
			continue
		}
		low, inner, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if inner != nil {
			set.others = append(set.others, inner)
			continue
		}
		high := low
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.take("-")
			if p.rest == "" || p.rest[0] == '[' {
				return nil, errors.New("has a range without its end")
			}
			if high, inner, err = p.classItem(); err != nil {
				return nil, err
			}
			if inner != nil || high < low {
				return nil, errors.New("has a range whose end is no later character")
			}
		}
		set.ranges = append(set.ranges, low, high)
	}
}

// classItem is a character of a class, or a set of them.
func (p *patternParser) classItem() (rune, *charSet, error) {
	if !p.take(`\`) {
		return p.next(), nil, nil
	}
	set, letter, err := p.escape()
	if err != nil || letter >= 0 {
		return letter, nil, err
	}
	return -1, set, nil
}

// escape is what follows a backslash: a set, and the one letter in it, or -1.
func (p *patternParser) escape() (*charSet, rune, error) {
	if p.rest == "" {
		return nil, 0, errors.New(`ends in a \`)
	}
	kind := p.next()
	letter := rune(-1)
	switch kind {
	case 'n':
		letter = '\n'
	case 'r':
		letter = '\r'
	case 't':
		letter = '\t'
	case 'f':
		letter = '\f'
	case 'v':
		letter = '\v'
	case 'x', 'u':
		var err error
		if letter, err = p.code(kind); err != nil {
			return nil, 0, err
		}
	case 's', 'S', 'd', 'D', 'w', 'W':
		set := &charSet{tables: kindTables[unicode.ToLower(kind)], negated: unicode.IsUpper(kind)}
		return set.ready(), -1, nil
	case 'p', 'P':
		set, err := p.property()
		if err != nil {
			return nil, 0, err
		}
		set.negated = set.negated != (kind == 'P')
		return set.ready(), -1, nil
	default:
		if kind >= utf8.RuneSelf || unicode.IsLetter(kind) || unicode.IsDigit(kind) {
			return nil, 0, fmt.Errorf(`has \%c, which this program does not know`, kind)
		}
		letter = kind
	}
	return newCharSet(letter, letter), letter, nil
}

// code is the character of \xHH, \x{H…} or \uHHHH.
func (p *patternParser) code(kind rune) (rune, error) {
	width := 4
	if kind == 'x' {
		width = 2
	}
	digits, rest := p.rest[:min(width, len(p.rest))], p.rest[min(width, len(p.rest)):]
	braces := kind == 'x' && p.take("{")
	if braces {
		digits, rest, _ = strings.Cut(p.rest, "}")
		width = len(digits)
	}
	value, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) != width || value > unicode.MaxRune || !utf8.ValidRune(rune(value)) ||
		(kind == 'x' && !braces && value >= utf8.RuneSelf) { // a byte, not a character
		return 0, fmt.Errorf(`has \%c%s, which is no character`, kind, digits)
	}
	p.rest = rest
	return rune(value), nil
}

// property reads what follows \p.
func (p *patternParser) property() (*charSet, error) {
	inside, rest, found := strings.Cut(p.rest, "}")
	name, braced := strings.CutPrefix(inside, "{")
	name, negated := strings.CutPrefix(name, "^")
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	// Go's tables of C and Cn lack what Oniguruma has in them.
	if !found || !braced || table == nil || name == "C" || name == "Cn" {
		return nil, fmt.Errorf(`has \p%s}, which this program does not know`, inside[:min(32, len(inside))])
	}
	p.rest = rest
	return &charSet{tables: []*unicode.RangeTable{table}, negated: negated}, nil
}

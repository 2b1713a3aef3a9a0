package tokenizer

import (
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// charSet is a set of characters: those of ranges, tables and other sets, or all but them.
type charSet struct {
	ranges  []rune // first and last in turns
	tables  []*unicode.RangeTable
	others  []*charSet
	negated bool
	folded  bool // letters of either case
	ascii   [utf8.RuneSelf]bool
}

// Characters by their kind, as Oniguruma has them for Unicode.
var kindTables = map[rune][]*unicode.RangeTable{
	's': {unicode.White_Space},
	'd': {unicode.Nd},
	'w': {unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc},
}

func newCharSet(first, last rune) *charSet {
	set := &charSet{ranges: []rune{first, last}}
	return set.ready()
}

// ready is the set, quick to ask for the first characters.
func (s *charSet) ready() *charSet {
	for letter := range s.ascii {
		s.ascii[letter] = s.slow(rune(letter))
	}
	return s
}

func (s *charSet) has(letter rune) bool {
	if letter < utf8.RuneSelf {
		return s.ascii[letter]
	}
	return s.slow(letter)
}

func (s *charSet) slow(letter rune) bool {
	found := s.holds(letter)
	if s.folded {
		for other := unicode.SimpleFold(letter); other != letter && !found; other = unicode.SimpleFold(other) {
			found = s.holds(other)
		}
	}
	return found != s.negated
}

func (s *charSet) holds(letter rune) bool {
	for at := 0; at < len(s.ranges); at += 2 {
		if s.ranges[at] <= letter && letter <= s.ranges[at+1] {
			return true
		}
	}
	return unicode.In(letter, s.tables...) ||
		slices.ContainsFunc(s.others, func(other *charSet) bool { return other.has(letter) })
}

// fold makes the set one of letters of either case.
func (s *charSet) fold() {
	s.folded = true
	s.ready()
}

// foldable is an error for a set of which it is not plain what either case means.
func (s *charSet) foldable() error {
	if len(s.tables) > 0 || len(s.others) > 0 || s.negated {
		return errors.New("has a class of characters of either case")
	}
	for _, letter := range s.ranges {
		if letter >= utf8.RuneSelf {
			return errors.New("has letters beyond ASCII of either case")
		}
	}
	return nil
}

func (p *pattern) emit(made instruction) int {
	p.program = append(p.program, made)
	return len(p.program) - 1
}

// compile adds the instructions of a part; it stops where there are too many.
func (p *pattern) compile(node *patternNode) {
	if len(p.program) > mostInstructions {
		return
	}
	switch {
	case node.set != nil:
		p.emit(instruction{op: opSet, set: node.set})
	case node.repeated != nil:
		p.repeat(node)
	case node.ahead != nil:
		at := p.emit(instruction{op: opAhead, negated: node.negated})
		p.inner(at, node.ahead)
	case node.place != 0:
		p.emit(instruction{op: opPlace, place: node.place})
	case node.atomic != nil:
		p.inner(p.emit(instruction{op: opAtomic}), node.atomic)
	case node.choice:
		p.choose(node.parts)
	default:
		for _, part := range node.parts {
			p.compile(part)
		}
	}
}

// inner compiles what an instruction matches on its own.
func (p *pattern) inner(at int, node *patternNode) {
	p.compile(node)
	p.emit(instruction{op: opMatch})
	p.program[at].to = len(p.program)
}

func (p *pattern) choose(parts []*patternNode) {
	var jumps []int
	for at, part := range parts {
		if at == len(parts)-1 {
			p.compile(part)
			break
		}
		split := p.emit(instruction{op: opSplit})
		p.program[split].to = split + 1
		p.compile(part)
		jumps = append(jumps, p.emit(instruction{op: opJump}))
		p.program[split].other = len(p.program)
	}
	for _, jump := range jumps {
		p.program[jump].to = len(p.program)
	}
}

func (p *pattern) repeat(node *patternNode) {
	if set := node.repeated.set; set != nil {
		p.emit(instruction{op: opLoop, set: set, least: node.least, most: node.most, manner: node.manner})
		return
	}
	if node.manner == possessive {
		once := *node
		once.manner = greedy
		p.inner(p.emit(instruction{op: opAtomic}), &once)
		return
	}
	for range node.least {
		p.compile(node.repeated)
	}
	split := func() int { return p.emit(instruction{op: opSplit}) }
	aim := func(at, inside, after int) {
		if node.manner == lazy {
			inside, after = after, inside
		}
		p.program[at].to, p.program[at].other = inside, after
	}
	if node.most == math.MaxInt {
		at := split()
		p.compile(node.repeated)
		p.emit(instruction{op: opJump, to: at})
		aim(at, at+1, len(p.program))
		return
	}
	var splits []int
	for range node.most - node.least {
		splits = append(splits, split())
		p.compile(node.repeated)
	}
	for _, at := range splits {
		aim(at, at+1, len(p.program))
	}
}

// effort bounds what rules of a file may do to a text: steps of expressions, and bytes that are written.
type effort struct{ steps, bytes int }

// newEffort is what a text of so many bytes may take: some milliseconds anyway, microseconds for each byte.
func newEffort(size int) *effort { return &effort{steps: 1<<24 + size<<8, bytes: 1<<22 + size<<6} }

var (
	errSteps = errors.New("its rules take too many steps for a text of this length")
	errBytes = errors.New("its rules make too much of a text")
)

// step takes off steps that a rule takes.
func (e *effort) step(steps int) error {
	if e.steps -= steps; e.steps < 0 {
		return errSteps
	}
	return nil
}

// write takes off bytes that a rule is about to write.
func (e *effort) write(bytes int) error {
	if e.bytes -= bytes; e.bytes < 0 {
		return errBytes
	}
	return nil
}

// way is where a match can go on should the present way fail.
type way struct {
	pc, at int
	low    int // of a greedy loop: where it must not go back beyond; of a lazy one: how many characters it has
}

// More ways than this to go back to need too much memory; expressions of tokenizers have a few.
const mostWays = 1 << 20

// match tries the expression at a place, and gives the end of what matches; -1 for nothing.
func (p *pattern) match(text string, at int, left *effort) (int, error) {
	return p.from(0, text, at, left)
}

func (p *pattern) from(pc int, text string, at int, left *effort) (int, error) {
	var ways []way
	for {
		failed := false
		left.steps--
		switch step := &p.program[pc]; step.op {
		case opMatch:
			return at, nil
		case opJump:
			pc = step.to
		case opSplit:
			ways = append(ways, way{pc: step.other, at: at, low: -1})
			pc = step.to
		case opSet:
			letter, size := utf8.DecodeRuneInString(text[at:])
			if failed = size == 0 || !step.set.has(letter); !failed {
				at += size
				pc++
			}
		case opPlace:
			failed = !isPlace(step.place, text, at)
			pc++
		case opLoop:
			count, end, low := step.run(text, at)
			left.steps -= count
			if failed = count < step.least; failed {
				break
			}
			if step.manner == greedy && end > low {
				ways = append(ways, way{pc, end, low})
			} else if step.manner == lazy && count < step.most {
				ways = append(ways, way{pc, end, count})
			}
			at = end
			pc++
		case opAhead, opAtomic:
			end, err := p.from(pc+1, text, at, left)
			if err != nil {
				return -1, err
			}
			if failed = (end < 0) != step.negated; failed {
				break
			}
			if step.op == opAtomic {
				at = end
			}
			pc = step.to
		}
		for failed {
			if len(ways) == 0 {
				return -1, nil
			}
			pc, at, failed = p.back(&ways, text)
			left.steps--
		}
		if left.steps < 0 || len(ways) > mostWays {
			return -1, errSteps
		}
	}
}

// isPlace says whether a place is the beginning or end of a line, or of a word, or is not, as Ruby's expressions have it.
func isPlace(kind byte, text string, at int) bool {
	before, after := text[:at], text[at:]
	switch kind {
	case '^':
		return before == "" || strings.HasSuffix(before, "\n") && after != ""
	case '$':
		return strings.HasPrefix(after, "\n") || after == "" && !strings.HasSuffix(before, "\n")
	}
	return (endsIn(before, isWord) != beginsWith(after, isWord)) == (kind == 'b')
}

// isWord says whether \w matches a character.
func isWord(letter rune) bool { return unicode.In(letter, kindTables['w']...) }

// run takes characters of the set: their number, the end of them, and the end of those that must be there.
func (i *instruction) run(text string, at int) (count, end, low int) {
	most := i.most
	if i.manner == lazy {
		most = i.least
	}
	low = at
	for end = at; count < most && end < len(text); count++ {
		letter, size := utf8.DecodeRuneInString(text[end:])
		if !i.set.has(letter) {
			break
		}
		if end += size; count < i.least {
			low = end
		}
	}
	return count, end, low
}

// back takes up the latest way that is left.
func (p *pattern) back(ways *[]way, text string) (pc, at int, failed bool) {
	last := len(*ways) - 1
	latest := (*ways)[last]
	*ways = (*ways)[:last]
	step := &p.program[latest.pc]
	if latest.low < 0 || step.op != opLoop {
		return latest.pc, latest.at, false
	}
	if step.manner == lazy {
		letter, size := utf8.DecodeRuneInString(text[latest.at:])
		if size == 0 || !step.set.has(letter) {
			return 0, 0, true
		}
		if latest.low+1 < step.most {
			*ways = append(*ways, way{latest.pc, latest.at + size, latest.low + 1})
		}
		return latest.pc + 1, latest.at + size, false
	}
	_, size := utf8.DecodeLastRuneInString(text[:latest.at])
	if latest.at-size > latest.low {
		*ways = append(*ways, way{latest.pc, latest.at - size, latest.low})
	}
	return latest.pc + 1, latest.at - size, false
}

// found is a part of a text, and whether it matched.
type found struct {
	start, end int
	match      bool
}

// find cuts a text into what matches and what is between.
func (p *pattern) find(text string, left *effort) ([]found, error) {
	var parts []found
	before, lastEnd := 0, -1
	for at := 0; at <= len(text); {
		end, err := p.match(text, at, left)
		if err != nil {
			return nil, err
		}
		if end < 0 || (end == at && end == lastEnd) { // nothing, or nothing right after a match
			_, size := utf8.DecodeRuneInString(text[at:])
			at += max(size, 1)
			continue
		}
		if before < at {
			parts = append(parts, found{before, at, false})
		}
		parts = append(parts, found{at, end, true})
		before, lastEnd, at = end, end, end
	}
	if before < len(text) {
		parts = append(parts, found{before, len(text), false})
	}
	return parts, nil
}

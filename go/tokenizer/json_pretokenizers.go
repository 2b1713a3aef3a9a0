package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// segment is a part of a text; `first` where it begins the whole text.
type segment struct {
	text  string
	first bool
}

// cutter cuts a segment into those that are merged on their own.
type cutter func(part segment, left *effort) ([]segment, error)

// GPT-2's expression, by which ByteLevel cuts where it is let. (Radford et al. 2019, "Language Models are Unsupervised
// Multitask Learners")
const gpt2Expression = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// readPreTokenizer reads a pre_tokenizer of a tokenizer.json; nil stands for none.
func readPreTokenizer(part component) (cutter, error) {
	switch part.kind {
	case "":
		return nil, nil
	case "Sequence":
		var given struct {
			Type          string
			PreTokenizers []json.RawMessage `json:"pretokenizers"`
		}
		if err := part.read(&given, "pretokenizers"); err != nil {
			return nil, err
		}
		var steps []cutter
		for _, content := range given.PreTokenizers {
			inner, err := part.inner(content)
			if err != nil {
				return nil, err
			}
			step, err := readPreTokenizer(inner)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
		return cutInTurn(steps), nil
	case "ByteLevel":
		given := struct {
			Type           string
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"` // of the places in the text, which nobody asks for here
			UseRegex       bool `json:"use_regex"`
		}{UseRegex: true}
		if err := part.read(&given, "add_prefix_space"); err != nil {
			return nil, err
		}
		return byteLevel(given.AddPrefixSpace, given.UseRegex), nil
	case "Split":
		return readSplit(part)
	case "Metaspace":
		given, err := readMetaspace(part)
		return given.cut, err
	case "Digits":
		var given struct {
			Type       string
			Individual bool `json:"individual_digits"`
		}
		err := part.read(&given, "individual_digits")
		behavior := "Contiguous"
		if given.Individual {
			behavior = "Isolated"
		}
		return cutAt(&charSet{tables: []*unicode.RangeTable{unicode.N}}, behavior), err
	case "Punctuation":
		given := struct{ Type, Behavior string }{Behavior: "Isolated"}
		if err := part.read(&given); err != nil {
			return nil, err
		}
		marks := &charSet{ranges: []rune{'!', '/', ':', '@', '[', '`', '{', '~'}, tables: []*unicode.RangeTable{unicode.P}}
		return cutAt(marks, given.Behavior), part.checkBehavior(given.Behavior)
	case "WhitespaceSplit":
		return cutAt(&charSet{tables: kindTables['s']}, "Removed"), part.readNothing()
	}
	return nil, part.unknown("ByteLevel, Split, Metaspace, Digits, Punctuation, WhitespaceSplit and Sequence")
}

func cutInTurn(steps []cutter) cutter {
	return func(part segment, left *effort) ([]segment, error) {
		parts := []segment{part}
		for _, step := range steps {
			var after []segment
			for _, part := range parts {
				cut, err := step(part, left)
				if err != nil {
					return nil, err
				}
				after = append(after, cut...)
			}
			parts = after
		}
		return parts, nil
	}
}

// Characters that stand for the 256 bytes: those that are printable in Latin-1 for themselves, the others from U+0100 on.
// (Radford et al. 2019)
var byteCharacters, characterBytes = func() (characters [256]string, bytes map[rune]byte) {
	bytes = make(map[rune]byte, 256)
	next := rune(256)
	for value := range 256 {
		letter := rune(value)
		if !('!' <= letter && letter <= '~' || '¡' <= letter && letter <= '¬' || '®' <= letter && letter <= 'ÿ') {
			letter = next
			next++
		}
		characters[value], bytes[letter] = string(letter), byte(value)
	}
	return characters, bytes
}()

func spellBytes(text string) string {
	var out strings.Builder
	out.Grow(2 * len(text))
	for at := range len(text) {
		out.WriteString(byteCharacters[text[at]])
	}
	return out.String()
}

// byteLevel cuts by GPT-2's expression, if it is to, and spells each byte as a character.
func byteLevel(prefixSpace, cut bool) cutter {
	expression, err := newPattern(gpt2Expression)
	if err != nil {
		panic(err) // it is a constant
	}
	return func(part segment, left *effort) ([]segment, error) {
		if prefixSpace && !strings.HasPrefix(part.text, " ") {
			part.text = " " + part.text
		}
		if err := left.write(2 * len(part.text)); err != nil {
			return nil, err
		}
		parts := []segment{part}
		if cut {
			found, err := expression.find(part.text, left)
			if err != nil {
				return nil, err
			}
			parts = cutInto(part, found, "Isolated")
		}
		for at := range parts {
			parts[at].text = spellBytes(parts[at].text)
		}
		return parts, nil
	}
}

func readSplit(part component) (cutter, error) {
	var given struct {
		Type     string
		Pattern  json.RawMessage
		Behavior string
		Invert   bool
	}
	if err := part.read(&given, "pattern", "behavior", "invert"); err != nil {
		return nil, err
	}
	expression, literal, err := part.pattern(given.Pattern)
	if err != nil {
		return nil, err
	}
	if expression == nil {
		expression = literalPattern(literal)
	}
	return cutBy(expression, given.Behavior, given.Invert), part.checkBehavior(given.Behavior)
}

// cutBy cuts at what an expression matches, or at all else.
func cutBy(expression *pattern, behavior string, invert bool) cutter {
	return func(part segment, left *effort) ([]segment, error) {
		parts, err := expression.find(part.text, left)
		if err != nil {
			return nil, err
		}
		for at := range parts {
			parts[at].match = parts[at].match != invert
		}
		return cutInto(part, parts, behavior), nil
	}
}

func (c component) checkBehavior(name string) error {
	switch name {
	case "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous":
		return nil
	}
	return fmt.Errorf("its %s %s has the behavior %q, which this program does not know", c.role, c.kind, name)
}

// cutAt cuts at each character of a set.
func cutAt(set *charSet, behavior string) cutter {
	set.ready()
	return func(part segment, left *effort) ([]segment, error) {
		var parts []found
		start := 0
		for at, letter := range part.text {
			if !set.has(letter) {
				continue
			}
			if start < at {
				parts = append(parts, found{start, at, false})
			}
			start = at + utf8.RuneLen(letter)
			parts = append(parts, found{at, start, true})
		}
		if start < len(part.text) {
			parts = append(parts, found{start, len(part.text), false})
		}
		return cutInto(part, parts, behavior), nil
	}
}

// cutInto makes segments of what matches and what is between, by what becomes of a match: it stands alone, is left out,
// goes with what is before or after it, or with the matches beside it.
func cutInto(whole segment, parts []found, behavior string) []segment {
	var joined []found
	switch behavior {
	case "Isolated":
		joined = parts
	case "Removed":
		for _, part := range parts {
			if !part.match {
				joined = append(joined, part)
			}
		}
	case "Contiguous":
		joined = joinFound(parts, func(before, part found) bool { return before.match == part.match })
	case "MergedWithPrevious":
		joined = joinFound(parts, func(before, part found) bool { return part.match && !before.match })
	case "MergedWithNext":
		joined = joinFound(parts, func(before, part found) bool { return before.match && !part.match })
	}
	var segments []segment
	for _, part := range joined {
		if part.start < part.end {
			segments = append(segments, segment{whole.text[part.start:part.end], whole.first && part.start == 0})
		}
	}
	return segments
}

// joinFound joins neighbours. `together` is asked for each pair of them as they were found.
func joinFound(parts []found, together func(before, part found) bool) []found {
	var joined []found
	for at, part := range parts {
		if at > 0 && together(parts[at-1], part) {
			joined[len(joined)-1].end = part.end
		} else {
			joined = append(joined, part)
		}
	}
	return joined
}

// metaspace puts a symbol in the place of spaces, and perhaps one before a text.
type metaspace struct {
	symbol string
	scheme string   // where one is put before: "always", "first" (before the whole text alone), "never"
	split  *pattern // where words are cut apart, nil for not at all
}

func readMetaspace(part component) (metaspace, error) {
	given := struct {
		Type           string
		Replacement    string
		AddPrefixSpace *bool  `json:"add_prefix_space"`
		PrependScheme  string `json:"prepend_scheme"`
		Split          *bool
	}{PrependScheme: "always"}
	if err := part.read(&given, "replacement"); err != nil {
		return metaspace{}, err
	}
	made := metaspace{symbol: given.Replacement, scheme: given.PrependScheme}
	if given.Split == nil || *given.Split {
		made.split = literalPattern(made.symbol)
	}
	switch {
	case utf8.RuneCountInString(made.symbol) != 1:
		return made, fmt.Errorf("its %s Metaspace has the replacement %q; it must be one character", part.role, made.symbol)
	case made.scheme != "always" && made.scheme != "first" && made.scheme != "never":
		return made, fmt.Errorf("its %s Metaspace has the prepend_scheme %q, which this program does not know", part.role,
			made.scheme)
	case given.AddPrefixSpace != nil && !*given.AddPrefixSpace && made.scheme != "never":
		return made, fmt.Errorf("its %s Metaspace adds no prefix space, but prepends one %q", part.role, made.scheme)
	}
	return made, nil
}

func (m metaspace) cut(part segment, left *effort) ([]segment, error) {
	if err := left.write(len(part.text) * len(m.symbol)); err != nil {
		return nil, err
	}
	part.text = strings.ReplaceAll(part.text, " ", m.symbol)
	if (m.scheme == "always" || m.scheme == "first" && part.first) && !strings.HasPrefix(part.text, m.symbol) {
		part.text = m.symbol + part.text
	}
	if m.split == nil {
		return []segment{part}, nil
	}
	parts, err := m.split.find(part.text, left)
	return cutInto(part, parts, "MergedWithNext"), err
}

package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// What stands for a space inside pieces.
const spaceSymbol = "\u2581"

const replacement = "\uFFFD"

// normalizer prepares text: it rewrites characters by the model's map and treats spaces as the model was trained.
type normalizer struct {
	spec               normalizerSpec
	whitespaceAsSuffix bool
	verbatim           *trie // user-defined pieces, which no rule touches
	rules              []uint32
	results            []byte // the rules' right sides, each ended by a zero byte
}

// newNormalizer reads the map of characters: the bytes of a double-array trie (their number first, 32 bits), whose
// values are places in the text after it.
func newNormalizer(spec normalizerSpec, whitespaceAsSuffix bool, verbatim *trie) (*normalizer, error) {
	made := &normalizer{spec: spec, whitespaceAsSuffix: whitespaceAsSuffix, verbatim: verbatim}
	if len(spec.charsMap) == 0 {
		return made, nil
	}
	if len(spec.charsMap) < 4 {
		return nil, errors.New("its map of characters is cut off")
	}
	size := int(binary.LittleEndian.Uint32(spec.charsMap))
	rest := spec.charsMap[4:]
	if size > len(rest) || size%4 != 0 || size == 0 || len(rest) == size || rest[len(rest)-1] != 0 {
		return nil, errors.New("its map of characters is damaged")
	}
	made.rules = make([]uint32, size/4)
	for at := range made.rules {
		made.rules[at] = binary.LittleEndian.Uint32(rest[4*at:])
	}
	made.results = rest[size:]
	return made, nil
}

// Parts of a unit of the double array: where its children begin, the byte that leads to it, whether a value hangs on
// it.
// (Aoe 1989, "An efficient digital search algorithm by using a double-array structure"; units as packed by Darts-clone)
func unitOffset(unit uint32) uint32 { return (unit >> 10) << ((unit & (1 << 9)) >> 6) }
func unitLabel(unit uint32) uint32  { return unit & (1<<31 | 0xFF) }
func unitHasLeaf(unit uint32) bool  { return unit>>8&1 == 1 }
func unitValue(unit uint32) uint32  { return unit & (1<<31 - 1) }

// rule finds the longest left side that `text` begins with: its length, 0 for none, and its right side.
func (n *normalizer) rule(text string) (length int, result string) {
	if len(n.rules) == 0 {
		return 0, ""
	}
	at := unitOffset(n.rules[0])
	for position := range len(text) {
		label := uint32(text[position])
		at ^= label
		if int64(at) >= int64(len(n.rules)) || unitLabel(n.rules[at]) != label {
			break
		}
		unit := n.rules[at]
		at ^= unitOffset(unit)
		if unitHasLeaf(unit) && int64(at) < int64(len(n.rules)) {
			if place := unitValue(n.rules[at]); int64(place) < int64(len(n.results)) {
				end := place
				for n.results[end] != 0 { // the last byte is zero
					end++
				}
				length, result = position+1, string(n.results[place:end])
			}
		}
	}
	return length, result
}

// prefix normalises the shortest beginning of `text` that rules do not look beyond; `used` is its length.
func (n *normalizer) prefix(text string) (result string, used int) {
	if length := n.verbatim.longest(text); length > 0 {
		return text[:length], length
	}
	if length, result := n.rule(text); length > 0 {
		return result, length
	}
	letter, size := utf8.DecodeRuneInString(text)
	if letter == utf8.RuneError && size == 1 {
		return replacement, 1
	}
	return text[:size], size
}

// normalize prepares a text for being cut into pieces.
func (n *normalizer) normalize(text string) string {
	squeeze := n.spec.removeExtraWhitespace
	for squeeze && text != "" {
		part, used := n.prefix(text)
		if part != " " {
			break
		}
		text = text[used:]
	}
	if text == "" {
		return ""
	}
	space := " "
	if n.spec.escapeWhitespace {
		space = spaceSymbol
	}
	var out strings.Builder
	out.Grow(len(text) + len(text)/4)
	if n.spec.addDummyPrefix && !n.whitespaceAsSuffix {
		out.WriteString(space)
	}
	afterSpace := squeeze
	for text != "" {
		part, used := n.prefix(text)
		if afterSpace {
			part = strings.TrimLeft(part, " ")
		}
		if part != "" {
			out.WriteString(strings.ReplaceAll(part, " ", space))
			afterSpace = squeeze && strings.HasSuffix(part, " ")
		}
		text = text[used:]
	}
	result := out.String()
	for squeeze && strings.HasSuffix(result, space) {
		result = strings.TrimSuffix(result, space)
	}
	if n.spec.addDummyPrefix && n.whitespaceAsSuffix {
		result += space
	}
	return result
}

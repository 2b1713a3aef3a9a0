package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// joiner changes the names of tokens towards the text that they make together.
type joiner func(names []string, left *effort) ([]string, error)

// readDecoder reads a decoder of a tokenizer.json; without one a space stands between names.
func readDecoder(part component) (joiner, error) {
	switch part.kind {
	case "":
		return func(names []string, left *effort) ([]string, error) {
			return []string{strings.Join(names, " ")}, nil
		}, nil
	case "Sequence":
		var given struct {
			Type     string
			Decoders []json.RawMessage
		}
		if err := part.read(&given, "decoders"); err != nil {
			return nil, err
		}
		return readJoiners(part, given.Decoders)
	case "ByteLevel":
		var given struct {
			Type           string
			AddPrefixSpace bool `json:"add_prefix_space"` // these are for its use as a pre-tokenizer
			TrimOffsets    bool `json:"trim_offsets"`
			UseRegex       bool `json:"use_regex"`
		}
		return joinByteCharacters, part.read(&given)
	case "ByteFallback":
		return joinBytePieces, part.readNothing()
	case "Fuse":
		return func(names []string, left *effort) ([]string, error) {
			return []string{strings.Join(names, "")}, nil
		}, part.readNothing()
	case "Strip":
		return readStrip(part)
	case "Metaspace":
		given, err := readMetaspace(part)
		return given.join, err
	case "Replace":
		replace, err := readReplace(part)
		return func(names []string, left *effort) ([]string, error) {
			replaced := make([]string, len(names))
			for at, name := range names {
				var err error
				if replaced[at], err = replace(name, left); err != nil {
					return nil, err
				}
			}
			return replaced, nil
		}, err
	}
	return nil, part.unknown("ByteLevel, ByteFallback, Fuse, Strip, Metaspace, Replace and Sequence")
}

func readJoiners(whole component, parts []json.RawMessage) (joiner, error) {
	var steps []joiner
	for _, content := range parts {
		part, err := whole.inner(content)
		if err != nil {
			return nil, err
		}
		step, err := readDecoder(part)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return func(names []string, left *effort) ([]string, error) {
		for _, step := range steps {
			var err error
			if names, err = step(names, left); err != nil {
				return nil, err
			}
		}
		return names, nil
	}, nil
}

// joinByteCharacters makes text of characters that stand for bytes. A name with others in it stands for itself.
func joinByteCharacters(names []string, _ *effort) ([]string, error) {
	var bytes []byte
	for _, name := range names {
		before := len(bytes)
		for _, letter := range name {
			value, known := characterBytes[letter]
			if !known {
				bytes = append(bytes[:before], name...)
				break
			}
			bytes = append(bytes, value)
		}
	}
	return []string{textOfBytes(bytes)}, nil
}

// textOfBytes is bytes as a text, each beginning of a character that does not go on a replacement character.
// (The Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts")
func textOfBytes(bytes []byte) string {
	if utf8.Valid(bytes) {
		return string(bytes)
	}
	var out strings.Builder
	for len(bytes) > 0 {
		letter, size := utf8.DecodeRune(bytes)
		if letter == utf8.RuneError && size == 1 {
			size = begunCharacter(bytes)
		}
		out.WriteRune(letter)
		bytes = bytes[size:]
	}
	return out.String()
}

// begunCharacter is the length of the beginning of a character at the start of bytes that are none; at least 1.
func begunCharacter(bytes []byte) int {
	for size := min(3, len(bytes)); size > 1; size-- {
		// Whether bytes could go on shows when the least and the largest that may follow are tried.
		for _, rest := range []string{"\x80\x80\x80", "\xBF\xBF\xBF"} {
			if letter, width := utf8.DecodeRuneInString(string(bytes[:size]) + rest); letter != utf8.RuneError && width > size {
				return size
			}
		}
	}
	return 1
}

// joinBytePieces makes text of names <0x00> to <0xFF> next to each other, or a replacement character for each where they
// are no text together.
func joinBytePieces(names []string, _ *effort) ([]string, error) {
	var joined []string
	var bytes []byte
	flush := func() {
		switch {
		case len(bytes) == 0:
		case utf8.Valid(bytes):
			joined = append(joined, string(bytes))
		default:
			for range bytes {
				joined = append(joined, replacement)
			}
		}
		bytes = bytes[:0]
	}
	for _, name := range names {
		if len(name) == 6 && strings.HasPrefix(name, "<0x") && name[5] == '>' {
			if value, err := strconv.ParseUint(strings.TrimPrefix(name[3:5], "+"), 16, 8); err == nil {
				bytes = append(bytes, byte(value))
				continue
			}
		}
		flush()
		joined = append(joined, name)
	}
	flush()
	return joined, nil
}

func readStrip(part component) (joiner, error) {
	var given struct {
		Type, Content string
		Start, Stop   int
	}
	if err := part.read(&given, "content", "start", "stop"); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(given.Content) != 1 || given.Start < 0 || given.Stop < 0 {
		return nil, fmt.Errorf("its %s Strip has the content %q from %d to %d; it must be one character and counts", part.role,
			given.Content, given.Start, given.Stop)
	}
	return func(names []string, _ *effort) ([]string, error) {
		stripped := make([]string, len(names))
		for at, name := range names {
			for range given.Start {
				rest, found := strings.CutPrefix(name, given.Content)
				if !found {
					break
				}
				name = rest
			}
			for range given.Stop {
				if name == "" {
					return nil, errors.New("its decoder Strip takes more off a token than there is")
				}
				rest, found := strings.CutSuffix(name, given.Content)
				if !found {
					break
				}
				name = rest
			}
			stripped[at] = name
		}
		return stripped, nil
	}, nil
}

// join makes spaces of the symbol, and nothing of those in the first name where a space is put before a text.
func (m metaspace) join(names []string, _ *effort) ([]string, error) {
	joined := make([]string, len(names))
	for at, name := range names {
		space := " "
		if at == 0 && m.scheme != "never" {
			space = ""
		}
		joined[at] = strings.ReplaceAll(name, m.symbol, space)
	}
	return joined, nil
}

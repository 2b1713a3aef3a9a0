package tokenizer

import (
	"strconv"
	"strings"
)

// Added is what a token adds to a text that others have begun, and its bytes, both empty for tokens that add no text. They
// differ where it is a part of a character, whose text is U+FFFD. An error for an id outside the vocabulary.
func Added(tokens TextTokenizer, id int32) (text string, bytes []byte, err error) {
	// Some models drop the space at the start of a text, so a token is decoded after another one.
	anchor := tokens.OrdinaryID()
	start, err := tokens.Decode([]int32{anchor})
	if err == nil {
		text, err = tokens.Decode([]int32{anchor, id})
	}
	if err != nil {
		return "", nil, err
	}
	text = text[min(len(start), len(text)):]
	return text, tokenBytes(tokens, id, text), nil
}

// tokenBytes are the bytes of a token that decodes to `text`, where that may be a part of a character only: then they are
// found by the token's name in the vocabulary.
func tokenBytes(tokens TextTokenizer, token int32, text string) []byte {
	if !strings.ContainsRune(text, '\uFFFD') {
		return []byte(text)
	}
	name := tokens.Piece(token)
	if len(name) == len("<0x00>") && strings.HasPrefix(name, "<0x") && name[5] == '>' {
		if value, err := strconv.ParseUint(name[3:5], 16, 8); err == nil && bytePieceName(byte(value)) == name {
			return []byte{byte(value)}
		}
	}
	found := make([]byte, 0, len(name))
	for _, sign := range name {
		value, known := characterBytes[sign]
		if !known {
			return []byte(text)
		}
		found = append(found, value)
	}
	return found
}

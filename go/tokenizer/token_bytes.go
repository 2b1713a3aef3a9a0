package tokenizer

import (
	"strconv"
	"strings"
)

// TokenBytes are the bytes of a token that decodes to `text`, where that may be a part of a character only: then they are
// found by the token's name in the vocabulary.
func TokenBytes(tokens TextTokenizer, token int32, text string) []byte {
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

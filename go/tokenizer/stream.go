package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// StreamDecoder turns ids into text as they come, holding back the bytes of a character that is not complete yet.
type StreamDecoder struct {
	tokenizer TextTokenizer
	anchor    int32
	skip      int // characters of the anchor's own text
	held      []int32
}

// NewStreamDecoder begins a text.
func NewStreamDecoder(tokenizer TextTokenizer) (*StreamDecoder, error) {
	// Some models drop the space at the start of a text, so what is decoded never starts with the new tokens.
	decoder := &StreamDecoder{tokenizer: tokenizer, anchor: tokenizer.OrdinaryID()}
	text, err := tokenizer.Decode([]int32{decoder.anchor})
	decoder.skip = utf8.RuneCountInString(text)
	return decoder, err
}

// Push gives the text that this token completes. Ids that a model has beyond those of its tokenizer have none; one below
// zero is an error, and not kept.
func (d *StreamDecoder) Push(token int32) (string, error) {
	before := len(d.held)
	if int(token) < d.tokenizer.VocabSize() {
		d.held = append(d.held, token)
	}
	text, err := d.text()
	if err != nil {
		d.held = d.held[:before]
		return "", err
	}
	// What is older than the bytes of the longest character is final.
	incomplete := 0
	for rest := text; strings.HasSuffix(rest, replacement); rest = strings.TrimSuffix(rest, replacement) {
		incomplete++
	}
	if 0 < incomplete && incomplete < utf8.UTFMax {
		return "", nil
	}
	d.held = d.held[:0]
	return text, nil
}

// Flush gives what was held back when the text ends.
func (d *StreamDecoder) Flush() (string, error) {
	text, err := d.text()
	d.held = d.held[:0]
	return text, err
}

func (d *StreamDecoder) text() (string, error) {
	text, err := d.tokenizer.Decode(append([]int32{d.anchor}, d.held...))
	for range d.skip {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text, err
}

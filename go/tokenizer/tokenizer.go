package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// A longer piece than this is not a piece of a language.
const maxPieceBytes = 4096

// Tokenizer is a SentencePiece model of unigram or BPE kind, as trained for this project's own models, Mixtral's, Llama's
// and T5's: normaliser, pieces, bytes for what the vocabulary lacks. (Kudo, Richardson 2018, "SentencePiece")
type Tokenizer struct {
	ends
	content        []byte
	model          *modelFile
	reserved, text map[string]int32 // ids of control, unknown and byte pieces; of pieces of text

	unknown    int32
	bytes      [256]int32 // ids of the byte pieces, where the model has them
	normalizer *normalizer
	decoded    *normalizer // rules for the decoded text, nil without
	encoder    interface{ encode(text string) []span }
	controls   *trie // names of control pieces
}

var _ TextTokenizer = (*Tokenizer)(nil)

// span is a part of normalised text and its piece.
type span struct {
	text string
	id   int32
}

// isText says whether the piece stands for text that encoding may find.
func (p piece) isText() bool {
	return p.kind == normalPiece || p.kind == userDefinedPiece || p.kind == unusedPiece
}

// Open reads a tokenizer file. The error is a *formats.Error.
func Open(path string) (*Tokenizer, error) {
	content, err := formats.ReadRegular(path, formats.TokenizerModelBytes)
	if err != nil {
		return nil, err
	}
	made, err := New(content)
	if err != nil {
		return nil, &formats.Error{Path: path, Problem: fmt.Sprintf("is not a SentencePiece model (%v)", err), Cause: err}
	}
	return made, nil
}

// New makes a tokenizer of a file's content.
func New(content []byte) (*Tokenizer, error) {
	model, err := readModel(content)
	if err != nil {
		return nil, err
	}
	made := &Tokenizer{
		content: content, model: model, unknown: -1,
		reserved: make(map[string]int32), text: make(map[string]int32),
	}
	if err := made.index(); err != nil {
		return nil, err
	}
	verbatim := newTrie()
	made.controls = newTrie()
	for id, piece := range model.pieces {
		switch piece.kind {
		case userDefinedPiece:
			verbatim.add(piece.text, id)
		case controlPiece:
			made.controls.add(piece.text, id)
		}
	}
	if made.normalizer, err = newNormalizer(model.normalizer, model.whitespaceAsSuffix, verbatim); err != nil {
		return nil, err
	}
	if len(model.denormalizer.charsMap) > 0 {
		if made.decoded, err = newNormalizer(model.denormalizer, false, newTrie()); err != nil {
			return nil, err
		}
	}
	if model.kind == bpeModel {
		made.encoder = newBPE(model, int(made.unknown), verbatim)
	} else {
		made.encoder = newUnigram(model, int(made.unknown))
	}
	begin := made.control(model.bos)
	var end []int32
	if id := made.EndID(); id >= 0 {
		end = []int32{id}
	}
	made.ends = newEnds(begin, end, begin >= 0)
	return made, nil
}

// index finds each piece's id by its text and checks the vocabulary as a whole.
func (t *Tokenizer) index() error {
	bytes := 0
	for id, piece := range t.model.pieces {
		if piece.text == "" || len(piece.text) > maxPieceBytes || strings.Contains(piece.text, "\x00") {
			return fmt.Errorf("piece %d has %d bytes, or a zero byte in it", id, len(piece.text))
		}
		ids := t.reserved
		if piece.isText() {
			ids = t.text
		}
		if _, twice := ids[piece.text]; twice {
			return fmt.Errorf("the piece %q is there twice", piece.text)
		}
		ids[piece.text] = int32(id)
		switch piece.kind {
		case unknownPiece:
			if t.unknown >= 0 {
				return errors.New("it has two unknown pieces")
			}
			t.unknown = int32(id)
		case bytePiece:
			value, ok := byteOf(piece.text)
			if !ok || !t.model.byteFallback {
				return fmt.Errorf("the piece %q is a byte, but no text is spelled in bytes", piece.text)
			}
			t.bytes[value] = int32(id)
			bytes++
		}
	}
	switch {
	case t.unknown < 0:
		return errors.New("it has no unknown piece")
	case len(t.text) == 0:
		return errors.New("it has no pieces of text")
	case t.model.byteFallback && bytes != 256:
		return fmt.Errorf("it spells text in bytes, but has %d byte pieces of 256", bytes)
	}
	return nil
}

// byteOf reads the text of a byte piece, <0x00> to <0xFF>.
func byteOf(text string) (byte, bool) {
	var value byte
	if len(text) != 6 {
		return 0, false
	}
	_, err := fmt.Sscanf(text, "<0x%02X>", &value)
	return value, err == nil && text == fmt.Sprintf("<0x%02X>", value)
}

// Model is the content of the tokenizer's file.
func (t *Tokenizer) Model() []byte { return slices.Clone(t.content) }

// VocabSize is the number of pieces.
func (t *Tokenizer) VocabSize() int { return len(t.model.pieces) }

// EndID is the id that ends a text by the model's own file, -1 when it has none.
func (t *Tokenizer) EndID() int32 { return t.control(t.model.eos) }

// PadID is the id that fills up a batch, -1 when this tokenizer has none.
func (t *Tokenizer) PadID() int32 { return t.control(t.model.pad) }

func (t *Tokenizer) control(text string) int32 {
	if id, found := t.reserved[text]; found && t.model.pieces[id].kind == controlPiece {
		return id
	}
	return -1
}

// OrdinaryID is some id that stands for text, rather than for a byte or a control.
func (t *Tokenizer) OrdinaryID() int32 {
	for id, piece := range t.model.pieces {
		if piece.kind == normalPiece || piece.kind == userDefinedPiece {
			return int32(id)
		}
	}
	return t.unknown
}

// Piece is the name of an id in the vocabulary; empty for one that has none.
func (t *Tokenizer) Piece(id int32) string {
	if id < 0 || int(id) >= len(t.model.pieces) {
		return ""
	}
	return t.model.pieces[id].text
}

// Encode gives the ids of a text, and never an error. The text after a control token starts again, with the space that
// some models put before a text.
func (t *Tokenizer) Encode(text string, how Encoding) ([]int32, error) {
	var ids []int32
	start := 0
	for at := 0; how.Special && at < len(text); {
		id, length, _ := t.controls.find(text[at:])
		if length == 0 {
			at++
			continue
		}
		ids = append(t.encode(ids, text[start:at]), id)
		at += length
		start = at
	}
	return t.opened(t.encode(ids, text[start:]), how), nil
}

// encode adds the ids of a text without control tokens.
func (t *Tokenizer) encode(ids []int32, text string) []int32 {
	normalized := t.normalizer.normalize(text)
	if normalized == "" {
		return ids
	}
	afterUnknown := false
	for _, span := range t.encoder.encode(normalized) {
		isUnknown := span.id == t.unknown
		switch {
		case isUnknown && t.model.byteFallback:
			for _, value := range []byte(span.text) {
				ids = append(ids, t.bytes[value])
			}
		case isUnknown && afterUnknown: // a run of unknown characters is one unknown piece
		default:
			ids = append(ids, span.id)
		}
		afterUnknown = isUnknown
	}
	return ids
}

// Decode gives the text of ids; controls give nothing.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	if err := checkIDs(ids, len(t.model.pieces)); err != nil {
		return "", err
	}
	var out strings.Builder
	var spelled []byte // bytes that may make up characters together
	first, sawSpace := true, false
	for _, id := range ids {
		piece := t.model.pieces[id]
		if piece.kind == bytePiece {
			value, _ := byteOf(piece.text)
			spelled = append(spelled, value)
			continue
		}
		writeSpelled(&out, spelled)
		spelled = spelled[:0]
		if sawSpace || out.Len() > 0 {
			first = false
		}
		var text string
		text, sawSpace = t.surface(piece, first)
		out.WriteString(text)
	}
	writeSpelled(&out, spelled)
	if t.decoded != nil {
		return t.decoded.normalize(out.String()), nil
	}
	return out.String(), nil
}

// surface is the text of one piece. At the beginning of a text the space that encoding put there is taken off;
// `sawSpace` says that this was it.
func (t *Tokenizer) surface(piece piece, first bool) (text string, sawSpace bool) {
	switch piece.kind {
	case controlPiece:
		return "", false
	case unknownPiece:
		return t.model.unknownSurface, false
	}
	text = piece.text
	spec := t.model.normalizer
	if first && spec.present && (spec.addDummyPrefix || spec.removeExtraWhitespace) {
		text, sawSpace = strings.CutPrefix(text, spaceSymbol)
		// Where spaces were squeezed, all at the beginning go.
		sawSpace = sawSpace && !spec.removeExtraWhitespace
	}
	return strings.ReplaceAll(text, spaceSymbol, " "), sawSpace
}

// writeSpelled writes the characters that bytes make up, and the replacement character for each byte that is part of
// none.
func writeSpelled(out *strings.Builder, spelled []byte) {
	for len(spelled) > 0 {
		letter, size := utf8.DecodeRune(spelled)
		out.WriteRune(letter)
		spelled = spelled[size:]
	}
}

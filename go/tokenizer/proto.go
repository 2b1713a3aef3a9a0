package tokenizer

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kinds of pieces, numbered as in SentencePiece's model files.
const (
	normalPiece      = 1
	unknownPiece     = 2
	controlPiece     = 3
	userDefinedPiece = 4
	unusedPiece      = 5
	bytePiece        = 6
)

// Kinds of models, likewise.
const (
	unigramModel = 1
	bpeModel     = 2
)

type piece struct {
	text  string
	score float32
	kind  int
}

// normalizerSpec says how text is prepared before it is cut into pieces.
type normalizerSpec struct {
	present               bool
	charsMap              []byte
	addDummyPrefix        bool
	removeExtraWhitespace bool
	escapeWhitespace      bool
}

// modelFile is what a SentencePiece model file says, as far as encoding and decoding need it.
// (sentencepiece_model.proto of https://github.com/google/sentencepiece; field numbers in readModel)
type modelFile struct {
	pieces             []piece
	kind               int
	whitespaceAsSuffix bool
	byteFallback       bool
	unknownSurface     string
	bos, eos, pad      string
	normalizer         normalizerSpec
	denormalizer       normalizerSpec
}

// fields calls `take` for each field of a message. Values of other wire types than numbers and bytes are skipped.
func fields(message []byte, take func(field int, number uint64, data []byte) error) error {
	for len(message) > 0 {
		field, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return protowire.ParseError(length)
		}
		message = message[length:]
		var number uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			number, length = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var bits uint32
			bits, length = protowire.ConsumeFixed32(message)
			number = uint64(bits)
		case protowire.BytesType:
			data, length = protowire.ConsumeBytes(message)
			if data == nil {
				data = []byte{}
			}
		default:
			length = protowire.ConsumeFieldValue(field, kind, message)
		}
		if length < 0 {
			return protowire.ParseError(length)
		}
		message = message[length:]
		if err := take(int(field), number, data); err != nil {
			return err
		}
	}
	return nil
}

func readModel(data []byte) (*modelFile, error) {
	model := &modelFile{kind: unigramModel, unknownSurface: " \u2047 ", bos: "<s>", eos: "</s>", pad: "<pad>"}
	model.normalizer = usualNormalizer
	err := fields(data, func(field int, _ uint64, data []byte) error {
		if data == nil {
			return nil
		}
		switch field {
		case 1:
			return model.readPiece(data)
		case 2:
			return model.readTrainer(data)
		case 3:
			return model.normalizer.read(data)
		case 5:
			return model.denormalizer.read(data)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(model.pieces) == 0 {
		return nil, errors.New("it has no pieces")
	}
	if model.kind != unigramModel && model.kind != bpeModel {
		return nil, fmt.Errorf("its model type is %d; this program knows unigram (1) and BPE (2)", model.kind)
	}
	return model, nil
}

func (m *modelFile) readPiece(data []byte) error {
	read := piece{kind: normalPiece}
	err := fields(data, func(field int, number uint64, data []byte) error {
		switch field {
		case 1:
			read.text = string(data)
		case 2:
			read.score = math.Float32frombits(uint32(number))
		case 3:
			read.kind = int(int32(number))
		}
		return nil
	})
	if err == nil && math.IsNaN(float64(read.score)) {
		err = fmt.Errorf("the score of piece %d is not a number", len(m.pieces))
	}
	m.pieces = append(m.pieces, read)
	return err
}

func (m *modelFile) readTrainer(data []byte) error {
	return fields(data, func(field int, number uint64, data []byte) error {
		switch field {
		case 3:
			m.kind = int(int32(number))
		case 24:
			m.whitespaceAsSuffix = number != 0
		case 35:
			m.byteFallback = number != 0
		case 44:
			m.unknownSurface = string(data)
		case 46:
			m.bos = string(data)
		case 47:
			m.eos = string(data)
		case 48:
			m.pad = string(data)
		}
		return nil
	})
}

// What a model file that does not say otherwise means.
var usualNormalizer = normalizerSpec{addDummyPrefix: true, removeExtraWhitespace: true, escapeWhitespace: true}

func (n *normalizerSpec) read(data []byte) error {
	if !n.present {
		*n = usualNormalizer
		n.present = true
	}
	return fields(data, func(field int, number uint64, data []byte) error {
		switch field {
		case 2:
			n.charsMap = data
		case 3:
			n.addDummyPrefix = number != 0
		case 4:
			n.removeExtraWhitespace = number != 0
		case 5:
			n.escapeWhitespace = number != 0
		}
		return nil
	})
}

// encode writes the file of a model whose text is only given spaces: without a map of characters, and with the names of
// begin, end and padding left as they usually are.
func (m *modelFile) encode(unknown int, byteFallback bool) []byte {
	var file []byte
	for _, piece := range m.pieces {
		entry := appendBytes(nil, 1, piece.text)
		entry = protowire.AppendFixed32(protowire.AppendTag(entry, 2, protowire.Fixed32Type), math.Float32bits(piece.score))
		file = appendBytes(file, 1, string(appendNumber(entry, 3, uint64(piece.kind))))
	}
	trainer := appendNumber(nil, 3, uint64(m.kind))
	trainer = appendNumber(trainer, 4, uint64(len(m.pieces)))
	trainer = appendNumber(trainer, 35, protowire.EncodeBool(byteFallback))
	trainer = appendNumber(trainer, 40, uint64(unknown))
	for field := protowire.Number(41); field <= 43; field++ { // ids of begin, end and padding: none
		trainer = appendNumber(trainer, field, math.MaxUint64)
	}
	trainer = appendBytes(trainer, 45, m.pieces[unknown].text)
	normalizer := appendBytes(nil, 1, "identity")
	normalizer = appendNumber(normalizer, 3, protowire.EncodeBool(m.normalizer.addDummyPrefix))
	normalizer = appendNumber(normalizer, 4, protowire.EncodeBool(m.normalizer.removeExtraWhitespace))
	normalizer = appendNumber(normalizer, 5, 1)
	return appendBytes(appendBytes(file, 2, string(trainer)), 3, string(normalizer))
}

func appendBytes(message []byte, field protowire.Number, content string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), content)
}

func appendNumber(message []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, field, protowire.VarintType), value)
}

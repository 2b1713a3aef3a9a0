package ternary

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/halves"
)

// The types of GGUF files for ternary matrices: tq1_0 and tq2_0 of llama.cpp, i2_s of bitnet.cpp.
//
// tq1_0, 256 elements in 54 bytes: 48 bytes and 4 bytes of digits base 3, code + 1, the first digit the most significant,
// as ceil(256/243 times the number), so that multiplying by 3 brings up one digit after the other; then the scale, f16.
// Digit d of byte b is element 32d + b for the first 32 bytes, 160 + 16d + b for the next 16, 240 + 4d + b for the last
// four, which have 4 digits in the place of 5. tq2_0, 256 in 66 bytes: 64 bytes with two bits a code, plus 1, then the
// scale, f16; bits 2i of byte 32h + b are element 128h + 32i + b. (https://github.com/ggml-org/ggml, ggml-common.h)
//
// i2_s: 128 elements in 32 bytes, bits 6 - 2i of byte b being code + 1 of element 32i + b; after the last block one scale,
// f32, and 28 bytes of padding. (https://github.com/microsoft/BitNet, utils/convert-hf-to-gguf-bitnet.py)

const (
	tq1Bytes, tq2Bytes = 54, 66
	blockElements      = 256
	i2sTail            = 32
)

// tq1Parts are, of a block of tq1_0: the bytes of digits, the elements before them, digits a byte.
var tq1Parts = []struct{ begin, end, first, digits int }{{0, 32, 0, 5}, {32, 48, 160, 5}, {48, 52, 240, 4}}

var decoders = map[string]func(m *Matrix) (codes []int8, scale float32, err error){
	"i2_s": i2s, "tq1_0": tq1, "tq2_0": tq2,
}

// FromBlocks is a matrix in one of formats.TernaryFormats; its scale is what the format has, times `factor`.
func FromBlocks(
	path, name, format string, rows, columns int, data []byte, pages *formats.Mapping, factor float32,
) *Matrix {
	return &Matrix{
		Path: path, Name: name, Form: format, Rows: rows, Columns: columns, Data: data, Pages: pages,
		decode: func(m *Matrix) ([]int8, float32, error) {
			codes, scale, err := decoders[format](m)
			if err != nil {
				return nil, 0, err
			}
			return m.scaled(codes, scale, factor)
		},
	}
}

func i2s(m *Matrix) ([]int8, float32, error) {
	packed, tail := m.Data[:len(m.Data)-i2sTail], m.Data[len(m.Data)-i2sTail:]
	scale := math.Float32frombits(binary.LittleEndian.Uint32(tail))
	if err := CheckedScale(scale, "scale"); err != nil {
		return nil, 0, m.Wrong("%v", err)
	}
	if err := m.checkBits(packed); err != nil {
		return nil, 0, err
	}
	codes := make([]int8, 4*len(packed))
	for at, value := range packed {
		block, byteOf := at/32*128, at%32
		for part := range 4 {
			codes[block+32*part+byteOf] = code(value, 6-2*part)
		}
	}
	return codes, scale, nil
}

func tq1(m *Matrix) ([]int8, float32, error) {
	blocks := len(m.Data) / tq1Bytes
	codes := make([]int8, blocks*blockElements)
	for block := range blocks {
		packed, into := m.Data[block*tq1Bytes:], codes[block*blockElements:]
		for _, part := range tq1Parts {
			width, power := part.end-part.begin, byte(1)
			for digit := range part.digits {
				for at := range width {
					// The byte wraps: what stood before the point is gone.
					fraction := uint16(packed[part.begin+at]*power) * 3 >> 8
					into[part.first+digit*width+at] = int8(fraction) - 1
				}
				power *= 3
			}
		}
	}
	return m.sharedScale(codes, tq1Bytes)
}

func tq2(m *Matrix) ([]int8, float32, error) {
	blocks := len(m.Data) / tq2Bytes
	codes := make([]int8, blocks*blockElements)
	for block := range blocks {
		packed, into := m.Data[block*tq2Bytes:][:64], codes[block*blockElements:]
		if err := m.checkBits(packed); err != nil {
			return nil, 0, err
		}
		for at, value := range packed {
			half, byteOf := at/32*128, at%32
			for part := range 4 {
				into[half+32*part+byteOf] = code(value, 2*part)
			}
		}
	}
	return m.sharedScale(codes, tq2Bytes)
}

// sharedScale gives the codes of blocks, those in blocks of scale 0 being 0, and the scale that all others share: the
// last two bytes of each.
func (m *Matrix) sharedScale(codes []int8, blockBytes int) ([]int8, float32, error) {
	used, largest := make(map[float32]bool), float32(0)
	for block := range len(m.Data) / blockBytes {
		scale := halves.Float(binary.LittleEndian.Uint16(m.Data[(block+1)*blockBytes-2:]))
		if !(scale >= 0) || math.IsInf(float64(scale), 0) {
			return nil, 0, m.Wrong("has a block whose scale is not finite, or below 0")
		}
		largest = max(largest, scale)
		of := codes[block*blockElements : (block+1)*blockElements]
		if scale == 0 {
			clear(of)
		} else if !used[scale] && anyOf(of) {
			used[scale] = true
		}
	}
	scales := slices.Sorted(maps.Keys(used))
	switch {
	case len(scales) > 1:
		return nil, 0, m.Wrong("has blocks of %d scales, %s to %s; a matrix is multiplied with one scale here", len(scales),
			shown(scales[0]), shown(scales[len(scales)-1]))
	case len(scales) == 1:
		return codes, scales[0], nil
	case largest > 0:
		return codes, largest, nil
	}
	return codes, 1, nil
}

func anyOf(codes []int8) bool {
	for _, value := range codes {
		if value != 0 {
			return true
		}
	}
	return false
}

package ternary_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/internal/must"
)

// randomCodes are -1, 0 and 1.
func randomCodes(count int) []int8 {
	random := rand.New(rand.NewPCG(1, 2))
	codes := make([]int8, count)
	for at := range codes {
		codes[at] = int8(random.IntN(3) - 1)
	}
	return codes
}

// twoBits puts a code, plus 1, into a byte.
func twoBits(into *byte, value int8, shift int) { *into |= byte(value+1) << shift }

const half = 0x3800 // 0.5 in f16

// forms are the ways in which files have the codes [32, 256] of the matrix, with the scale 0.5.
var forms = map[string]func(codes []int8) *ternary.Matrix{
	"packed": func(codes []int8) *ternary.Matrix {
		data := make([]byte, len(codes)/4)
		for at, value := range codes {
			twoBits(&data[at%len(data)], value, at/len(data)*2)
		}
		return ternary.FromPacked("x", "w", 32, 256, data, nil, 0.5)
	},
	"tern2": func(codes []int8) *ternary.Matrix {
		data := make([]byte, len(codes)/4)
		for at, value := range codes {
			row, column := at/256, at%256
			word := (row/16*16+column/16)*16 + row%16
			twoBits(&data[4*word+column%4], value, column%16/4*2)
		}
		return ternary.FromTern2("x", "w", 32, 256, data, nil, 0.5)
	},
	"i2_s": func(codes []int8) *ternary.Matrix {
		data := make([]byte, len(codes)/4+32)
		for at, value := range codes {
			twoBits(&data[at/128*32+at%32], value, 6-at%128/32*2)
		}
		binary.LittleEndian.PutUint32(data[len(codes)/4:], math.Float32bits(0.25))
		return ternary.FromBlocks("x", "w", "i2_s", 32, 256, data, nil, 2)
	},
	"tq2_0": func(codes []int8) *ternary.Matrix {
		data := make([]byte, len(codes)/256*66)
		for at, value := range codes {
			block, inner := data[at/256*66:], at%256
			twoBits(&block[inner/128*32+inner%32], value, inner%128/32*2)
			binary.LittleEndian.PutUint16(block[64:], half)
		}
		return ternary.FromBlocks("x", "w", "tq2_0", 32, 256, data, nil, 1)
	},
	"tq1_0": func(codes []int8) *ternary.Matrix {
		data := make([]byte, len(codes)/256*54)
		for block := range len(codes) / 256 {
			of, into := codes[block*256:], data[block*54:]
			for at := range 52 {
				first, width, digits := 0, 32, 5
				switch {
				case at >= 48:
					first, width, digits = 240-48, 4, 4
				case at >= 32:
					first, width = 160-32, 16
				}
				number := 0
				for digit := range 5 {
					number *= 3
					if digit < digits {
						number += int(of[first+digit*width+at]) + 1
					}
				}
				into[at] = byte((number*256 + 242) / 243)
			}
			binary.LittleEndian.PutUint16(into[52:], half)
		}
		return ternary.FromBlocks("x", "w", "tq1_0", 32, 256, data, nil, 1)
	},
	"numbers": func(codes []int8) *ternary.Matrix {
		return ternary.FromNumbers("x", stored(codes, 1), 0.5)
	},
	"multiples": func(codes []int8) *ternary.Matrix {
		return ternary.FromMultiples("x", stored(codes, 0.125), 4)
	},
}

// stored are codes times a number in f32.
func stored(codes []int8, magnitude float32) formats.StoredTensor {
	format, _ := formats.FormatNamed("f32")
	data := []byte{}
	for _, value := range codes {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(value)*magnitude))
	}
	return formats.StoredTensor{Name: "w", Format: format, Shape: []int{32, 256}, Data: data}
}

func TestForms(t *testing.T) {
	codes := randomCodes(32 * 256)
	for name, form := range forms {
		found, scale, err := form(slices.Clone(codes)).Codes()
		if err != nil || scale != 0.5 || !slices.Equal(found, codes) {
			t.Errorf("%s: scale %v, %v", name, scale, err)
		}
	}
}

func TestMatricesOfZeros(t *testing.T) {
	for name, form := range forms {
		codes, scale, err := form(make([]int8, 32*256)).Codes()
		if err != nil || !(scale > 0) || slices.ContainsFunc(codes, func(code int8) bool { return code != 0 }) {
			t.Errorf("%s: scale %v, %v", name, scale, err)
		}
	}
}

func TestTern2OfRaggedSizes(t *testing.T) {
	stored, rowBytes := ternary.Tern2Shape(17, 33)
	if stored != 32 || rowBytes != 12 {
		t.Fatalf("%d, %d", stored, rowBytes)
	}
	data := slices.Repeat([]byte{0x55}, stored*rowBytes) // zeros
	m := ternary.FromTern2("x", "w", 17, 33, data, nil, 1)
	if codes, _, err := m.Codes(); err != nil || len(codes) != 17*33 || slices.Max(codes) != 0 || slices.Min(codes) != 0 {
		t.Errorf("%v", err)
	}
	data[0] = 0x56 // row 0, column 0
	if codes, _, err := m.Codes(); err != nil || codes[0] != 1 {
		t.Errorf("%v", err)
	}
	data[len(data)-1] = 0x56
	if _, _, err := m.Tern2(); err == nil || !strings.Contains(err.Error(), "beyond its last row or column") {
		t.Errorf("%v", err)
	}
}

func TestWrongMatrices(t *testing.T) {
	codes := randomCodes(32 * 256)
	spoiled := func(form string, spoil func(data []byte)) *ternary.Matrix {
		m := forms[form](codes)
		spoil(m.Data)
		return m
	}
	last := func(value float32) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint32(data[len(data)-32:], math.Float32bits(value)) }
	}
	f16 := func(at int, bits uint16) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint16(data[at:], bits) }
	}
	number := func(value float32) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint32(data, math.Float32bits(value)) }
	}
	for _, wrong := range []struct {
		m        *ternary.Matrix
		sentence string
	}{
		{spoiled("packed", func(data []byte) { data[7] = 0xc0 }), "has a two-bit code 3, which is not a ternary weight"},
		{spoiled("i2_s", func(data []byte) { data[7] = 0x0c }), "has a two-bit code 3"},
		{spoiled("tq2_0", func(data []byte) { data[7] = 0x03 }), "has a two-bit code 3"},
		{spoiled("i2_s", last(-1)), "has the scale -1.0; it must be finite and above 0"},
		{spoiled("i2_s", last(float32(math.NaN()))), "has the scale nan"},
		{spoiled("tq1_0", f16(52, 0x7c00)), "has a block whose scale is not finite, or below 0"},
		{spoiled("tq2_0", f16(64, 0xbc00)), "has a block whose scale is not finite, or below 0"},
		{spoiled("tq2_0", f16(64, 0x3c00)), "has blocks of 2 scales, 0.5 to 1.0; a matrix is multiplied with one scale here"},
		{spoiled("numbers", number(2)), "has values other than -1, 0 and 1"},
		{spoiled("numbers", number(float32(math.NaN()))), "has values other than -1, 0 and 1"},
		{spoiled("multiples", number(2)), "has values of more than one magnitude"},
		{spoiled("multiples", number(float32(math.Inf(1)))), "has values of more than one magnitude"},
		{ternary.FromMaster("x", stored(codes, 1)), "has master weights"},
	} {
		if _, _, err := wrong.m.Codes(); err == nil || !strings.Contains(err.Error(), "x: tensor w "+wrong.sentence) {
			t.Errorf("%v, not %s", err, wrong.sentence)
		}
	}
	must.Do(t, ternary.CheckedScale(1e-45, "scale"))
	if err := ternary.CheckedScale(0, "weight_scale"); err == nil || err.Error() != "has the weight_scale 0.0; it must be finite and above 0" {
		t.Errorf("%v", err)
	}
}

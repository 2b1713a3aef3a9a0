// Package ternary reads matrices of -1, 0 and 1 times one number, in every form in which files have them.
//
// W = codes * scale, whatever a file's own convention is. The number of `weight_scale` in a Hugging Face folder is that
// factor or what to divide by, and the forms differ in where a code lies: docs/formats.md has all of them. (Ma et al.
// 2024, "The Era of 1-bit LLMs")
package ternary

import (
	"fmt"
	"math"
	"strconv"

	"github.com/nncuda/nncuda/go/formats"
)

// lanes are rows and columns of a unit of tern2.
const lanes = 16

// Matrix is a stored matrix [Rows, Columns] of ternary weights. What is wrong with its bytes is an error where it is
// found.
type Matrix struct {
	Path string // of its file or folder
	Name string // of the tensor in its file
	// Form is "f32", "f16", "bf16": master weights, which become ternary by kernel ternary_quantize; "packed": Hugging
	// Face's; "codes": its codes as numbers; "tern2": this library's; "tq1_0", "tq2_0", "i2_s": those of GGUF files.
	Form          string
	Rows, Columns int
	Data          []byte
	Pages         *formats.Mapping // where Data lies; nil of bytes in other memory
	// IsMaster says that the weights are master weights in the format of that name, Form, from which a kernel makes codes
	// and scale.
	IsMaster bool

	scale  float32 // where the form does not have it in Data
	decode func(m *Matrix) ([]int8, float32, error)
}

// Wrong is an error about the matrix.
func (m *Matrix) Wrong(format string, values ...any) error {
	return &formats.Error{Path: m.Path, Problem: "tensor " + m.Name + " " + fmt.Sprintf(format, values...)}
}

// Codes gives -1, 0 and 1, row by row, and the scale, finite and above 0. Master weights have none here.
func (m *Matrix) Codes() (codes []int8, scale float32, err error) {
	if m.IsMaster {
		return nil, 0, m.Wrong("has master weights, whose codes kernel ternary_quantize makes")
	}
	return m.decode(m)
}

// CheckedScale refuses a scale of a file that is not finite and above 0.
func CheckedScale(value float32, name string) error {
	if !(value > 0) || math.IsInf(float64(value), 0) {
		return fmt.Errorf("has the %s %s; it must be finite and above 0", name, shown(value))
	}
	return nil
}

// shown is a number as messages have it.
func shown(value float32) string {
	switch wide := float64(value); {
	case math.IsNaN(wide):
		return "nan"
	case math.IsInf(wide, 1):
		return "inf"
	case math.IsInf(wide, -1):
		return "-inf"
	case wide == math.Trunc(wide) && math.Abs(wide) < 1e16:
		return strconv.FormatFloat(wide, 'f', 1, 64)
	default:
		return strconv.FormatFloat(wide, 'g', -1, 64)
	}
}

// FromMaster is master weights, in f32, f16 or bf16.
func FromMaster(path string, stored formats.StoredTensor) *Matrix {
	return &Matrix{
		Path: path, Name: stored.Name, Form: stored.Format.Name, Rows: stored.Shape[0], Columns: stored.Shape[1],
		Data: stored.Data, Pages: stored.Pages, IsMaster: true,
	}
}

// Master gives master weights as a tensor, and whether the matrix has some.
func (m *Matrix) Master() (formats.StoredTensor, bool) {
	format, _ := formats.FormatNamed(m.Form)
	return formats.StoredTensor{
		Name: m.Name, Format: format, Shape: []int{m.Rows, m.Columns}, Data: m.Data, Pages: m.Pages,
	}, m.IsMaster
}

// FromNumbers is codes that are stored as the numbers -1, 0 and 1, in f32, f16 or bf16.
func FromNumbers(path string, stored formats.StoredTensor, scale float32) *Matrix {
	return &Matrix{
		Path: path, Name: stored.Name, Form: "codes", Rows: stored.Shape[0], Columns: stored.Shape[1],
		Data: stored.Data, Pages: stored.Pages,
		decode: func(m *Matrix) ([]int8, float32, error) {
			values := formats.Widened(stored.Format.Name, m.Data)
			codes := make([]int8, len(values))
			for at, value := range values {
				switch value {
				case 0:
				case 1:
					codes[at] = 1
				case -1:
					codes[at] = -1
				default:
					return nil, 0, m.Wrong("has values other than -1, 0 and 1 beside its weight_scale")
				}
			}
			return codes, scale, nil
		},
	}
}

// FromMultiples is a matrix in f32, f16 or bf16 all of whose values are 0 or of one magnitude; its scale is that times
// `factor`.
func FromMultiples(path string, stored formats.StoredTensor, factor float32) *Matrix {
	return &Matrix{
		Path: path, Name: stored.Name, Form: "codes", Rows: stored.Shape[0], Columns: stored.Shape[1],
		Data: stored.Data, Pages: stored.Pages,
		decode: func(m *Matrix) ([]int8, float32, error) {
			values := formats.Widened(stored.Format.Name, m.Data)
			codes := make([]int8, len(values))
			largest := float32(0)
			for at, value := range values {
				if value == 0 {
					continue
				}
				codes[at] = 1
				if value < 0 {
					codes[at], value = -1, -value
				}
				if largest == 0 {
					largest = value
				}
				if value != largest || math.IsInf(float64(value), 0) { // so is what is not a number
					return nil, 0, m.Wrong("has values of more than one magnitude; the weights of a GGUF file must be ternary " +
						"already")
				}
			}
			if largest == 0 {
				largest = 1
			}
			return m.scaled(codes, largest, factor)
		},
	}
}

// scaled gives codes with the product of two parts of a scale.
func (m *Matrix) scaled(codes []int8, scale, factor float32) ([]int8, float32, error) {
	whole := scale * factor
	if err := CheckedScale(whole, "scale"); err != nil {
		return nil, 0, m.Wrong("%v", err)
	}
	return codes, whole, nil
}

// checkBits refuses a pair of bits that is no ternary weight: all must be 0, 1 or 2.
func (m *Matrix) checkBits(packed []byte) error {
	for _, value := range packed {
		if value&(value>>1)&0x55 != 0 {
			return m.Wrong("has a two-bit code 3, which is not a ternary weight")
		}
	}
	return nil
}

// code is that in two bits of a byte, stored as code + 1.
func code(packed byte, shift int) int8 { return int8(packed>>shift&3) - 1 }

// FromPacked is Hugging Face's packed weights: byte [r, c] of u8 [rows/4, columns] has at bits 2i the code of row
// r + i * rows/4, plus 1.
func FromPacked(path, name string, rows, columns int, data []byte, pages *formats.Mapping, scale float32) *Matrix {
	return &Matrix{
		Path: path, Name: name, Form: "packed", Rows: rows, Columns: columns, Data: data, Pages: pages,
		decode: func(m *Matrix) ([]int8, float32, error) {
			if err := m.checkBits(m.Data); err != nil {
				return nil, 0, err
			}
			codes, quarter := make([]int8, m.Rows*m.Columns), len(m.Data)
			for at, packed := range m.Data {
				for part := range 4 {
					codes[part*quarter+at] = code(packed, 2*part)
				}
			}
			return codes, scale, nil
		},
	}
}

// Tern2Shape gives stored rows and bytes a row of a matrix in tern2.
func Tern2Shape(rows, columns int) (stored, rowBytes int) {
	return (rows + lanes - 1) / lanes * lanes, (columns + lanes - 1) / lanes * 4
}

// FromTern2 is this library's packed weights: the bytes that kernel ternary_pack makes. Byte j of the word of row r and
// sixteen columns has at bits 2i the weight of column j + 4i; words lie as [row / 16][column / 16][row mod 16].
func FromTern2(path, name string, rows, columns int, data []byte, pages *formats.Mapping, scale float32) *Matrix {
	return &Matrix{
		Path: path, Name: name, Form: "tern2", Rows: rows, Columns: columns, Data: data, Pages: pages, scale: scale,
		decode: func(m *Matrix) ([]int8, float32, error) {
			if _, _, err := m.Tern2(); err != nil {
				return nil, 0, err
			}
			codes := make([]int8, m.Rows*m.Columns)
			m.eachOfTern2(func(row, column int, value int8) {
				if row < m.Rows && column < m.Columns {
					codes[row*m.Columns+column] = value
				}
			})
			return codes, scale, nil
		},
	}
}

// Tern2 gives the bytes of a matrix in the form "tern2", checked, [stored, row bytes], and its scale; no copy.
func (m *Matrix) Tern2() ([]byte, float32, error) {
	if err := m.checkBits(m.Data); err != nil {
		return nil, 0, err
	}
	beyond := false
	if m.Rows%lanes != 0 || m.Columns%lanes != 0 {
		m.eachOfTern2(func(row, column int, value int8) {
			beyond = beyond || value != 0 && (row >= m.Rows || column >= m.Columns)
		})
	}
	if beyond {
		return nil, 0, m.Wrong("has weights other than 0 beyond its last row or column")
	}
	return m.Data, m.scale, nil
}

// eachOfTern2 shows every code of the bytes, those that fill up the last rows and columns, too.
func (m *Matrix) eachOfTern2(show func(row, column int, value int8)) {
	_, rowBytes := Tern2Shape(m.Rows, m.Columns)
	words := rowBytes / 4
	for at, packed := range m.Data {
		word, part := at/4, at%4
		row := word/lanes/words*lanes + word%lanes
		column := word / lanes % words * lanes
		for i := range 4 {
			show(row, column+part+4*i, code(packed, 2*i))
		}
	}
}

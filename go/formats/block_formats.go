package formats

import (
	"fmt"
	"math"
)

// BlockFormat is a format of stored weights: a stored matrix is rows of blocks, the last dimension inside the blocks,
// bytes as they are in a file. (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "ggml_type"; bindings.h
// describes the blocks)
type BlockFormat struct {
	Name     string
	Code     int32 // NNCUDA_FORMAT_*
	GGUFType uint32
	Elements int // of a block
	Bytes    int // of a block
}

// IsPlain says whether the format has no blocks: f32, f16 and bf16.
func (f BlockFormat) IsPlain() bool { return f.Elements == 1 }

// RowBytes are the bytes of a row; an error when it does not end with a whole block.
func (f BlockFormat) RowBytes(elements int) (int, error) {
	if elements < 0 || elements%f.Elements != 0 {
		return 0, fmt.Errorf("a row of %d elements is not whole blocks of %s (%d each)", elements, f.Name, f.Elements)
	}
	return elements / f.Elements * f.Bytes, nil
}

// TernaryFormat is a type of GGUF files for matrices of -1, 0 and 1; Tail bytes follow the last row.
type TernaryFormat struct {
	Name            string
	GGUFType        uint32
	Elements, Bytes int // of a block
	Tail            int
}

// BlockFormats are the formats that kernels read.
var BlockFormats = []BlockFormat{
	{"f32", 0, 0, 1, 4},
	{"f16", 1, 1, 1, 2},
	{"bf16", 2, 30, 1, 2},
	{"q4_0", 10, 2, 32, 18},
	{"q4_1", 11, 3, 32, 20},
	{"q5_0", 12, 6, 32, 22},
	{"q5_1", 13, 7, 32, 24},
	{"q8_0", 14, 8, 32, 34},
	{"q4_k", 15, 12, 256, 144},
	{"q5_k", 16, 13, 256, 176},
	{"q6_k", 17, 14, 256, 210},
	{"iq4_nl", 18, 20, 32, 18},
	{"mxfp4", 19, 39, 32, 17},
	{"iq4_xs", 21, 23, 256, 136},
	{"q2_k", 22, 10, 256, 84},
	{"q3_k", 23, 11, 256, 110},
}

// E4M3 is OCP 8-bit floating point, in which caches may be kept; no file has tensors of it.
var E4M3 = BlockFormat{"e4m3", 20, math.MaxUint32, 1, 1}

// TernaryFormats are llama.cpp's two, and the one of bitnet.cpp.
var TernaryFormats = []TernaryFormat{
	{"tq1_0", 34, 256, 54, 0},
	{"tq2_0", 35, 256, 66, 0},
	{"i2_s", 36, 128, 32, 32},
}

// InterleavedRows is how many rows lie side by side in the form that the CPU's products read fastest.
const InterleavedRows = 16

// interleaved are the codes of formats that have such a form, and of that form.
var interleaved = map[int32]int32{10: 30, 11: 31, 12: 32, 13: 33, 14: 34, 15: 35, 16: 36, 17: 37, 18: 38, 19: 39, 21: 41, 22: 42, 23: 43}

// Interleaved is the code of a format's form with rows side by side, and whether it has one.
func (f BlockFormat) Interleaved() (int32, bool) {
	code, has := interleaved[f.Code]
	return code, has
}

// FormatNamed is the format of a name, and whether there is one.
func FormatNamed(name string) (BlockFormat, bool) {
	for _, format := range BlockFormats {
		if format.Name == name {
			return format, true
		}
	}
	return BlockFormat{}, false
}

// StoredTensor is a tensor as a file has it: its bytes over the file's pages, the blocks along its last dimension.
type StoredTensor struct {
	Name   string
	Format BlockFormat
	Shape  []int
	Data   []byte
	Pages  *Mapping // where Data lies; nil of bytes in other memory
	// Made gives the bytes where a file has the elements in another order, and Data what of the file they are made of: nothing
	// is read, nor kept, before somebody asks. It is nil of all others.
	Made func() []byte
}

// Bytes are the bytes of the tensor; no copy unless they are Made, then a new one with each call.
func (t StoredTensor) Bytes() []byte {
	if t.Made == nil {
		return t.Data
	}
	return t.Made()
}

// ByteCount is how many those are.
func (t StoredTensor) ByteCount() int { return t.Rows() * t.RowBytes() }

// Columns is the elements of a row: the last dimension, 1 of a scalar.
func (t StoredTensor) Columns() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// RowBytes is the bytes of a row.
func (t StoredTensor) RowBytes() int { return t.Columns() / t.Format.Elements * t.Format.Bytes }

// Rows is the number of rows, all dimensions but the last flattened.
func (t StoredTensor) Rows() int {
	rows := 1
	for _, extent := range t.Shape[:max(len(t.Shape)-1, 0)] {
		rows *= extent
	}
	return rows
}

// Size is the number of elements.
func (t StoredTensor) Size() int { return t.Rows() * t.Columns() }

// RowsInOrder is a copy whose groups of as many rows as `order` has, such as the heads of queries, have their rows in that
// order.
func (t StoredTensor) RowsInOrder(order []int) StoredTensor {
	size, rows, from := t.RowBytes(), t.Rows(), t.Bytes()
	data := make([]byte, 0, len(from))
	for first := 0; first < rows; first += len(order) {
		for _, row := range order {
			data = append(data, from[(first+row)*size:(first+row+1)*size]...)
		}
	}
	t.Data, t.Pages, t.Made = data, nil, nil
	return t
}

// Floats is a copy of the elements of a format without blocks, widened to float32, which loses nothing: for norms,
// biases, routers. An error for other formats.
func (t StoredTensor) Floats() ([]float32, error) {
	if !t.Format.IsPlain() {
		return nil, fmt.Errorf("tensor %s is in %s, a block format", t.Name, t.Format.Name)
	}
	return Widened(t.Format.Name, t.Bytes()), nil
}

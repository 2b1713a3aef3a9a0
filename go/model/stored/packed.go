package stored

import (
	"errors"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// Ternary matrices on a device, packed as products read them, whatever form the files have.

// CodesToPack is a matrix with its codes; these are nil where a kernel makes them, or none are needed.
type CodesToPack struct {
	Matrix *ternary.Matrix
	Codes  []int8
	Scale  float32
	Err    error
}

// DecodeToPack decodes a matrix.
func DecodeToPack(matrix *ternary.Matrix) CodesToPack {
	one := CodesToPack{Matrix: matrix}
	if !matrix.IsMaster && matrix.Form != "tern2" {
		one.Codes, one.Scale, one.Err = matrix.Codes()
	}
	return one
}

// PackTernary packs matrices of as many columns as one, the rows of the first on top, into their place, u8 [stored, row bytes],
// gives the files' pages back, and gives the scale of each row.
func PackTernary(p *layer.Pass, piece []CodesToPack, place *tensor.Tensor) []float32 {
	defer func() {
		for _, one := range piece {
			one.Matrix.Pages.Release(one.Matrix.Data) // so that they do not count besides the copy
		}
	}()
	var scales []float32
	repeat := func(scale float32, count int) {
		for range count {
			scales = append(scales, scale)
		}
	}
	if first := piece[0].Matrix; first.Form == "tern2" && len(piece) == 1 {
		bytes, scale, err := first.Tern2()
		if p.Check(err); err == nil {
			p.Check(place.Upload(bytes))
		}
		repeat(scale, first.Rows)
		return scales
	}
	rows := 0
	for _, one := range piece {
		rows += one.Matrix.Rows
	}
	codes, at := p.Empty(cuda.I8, rows, piece[0].Matrix.Columns), 0
	for _, one := range piece {
		repeat(codesOf(p, one, p.Narrow(codes, 0, at, one.Matrix.Rows)), one.Matrix.Rows)
		at += one.Matrix.Rows
	}
	p.Check(tensor.TernaryPack(codes, place))
	p.Free(codes)
	return scales
}

// codesOf puts a matrix's codes into their place, i8 [n, k], and gives its scale.
func codesOf(p *layer.Pass, one CodesToPack, place *tensor.Tensor) float32 {
	if one.Matrix.IsMaster {
		return quantized(p, one.Matrix, place)
	}
	codes, scale, err := one.Codes, one.Scale, one.Err
	if codes == nil && err == nil { // tern2 among others
		codes, scale, err = one.Matrix.Codes()
	}
	if p.Check(err); err == nil {
		p.Check(tensor.Write(place, codes))
	}
	return scale
}

// quantized makes codes and scale of master weights.
func quantized(p *layer.Pass, matrix *ternary.Matrix, place *tensor.Tensor) float32 {
	dtype, err := cuda.ParseDType(matrix.Form)
	p.Check(err)
	master := masterOf(p, matrix, dtype)
	scale := p.Empty(cuda.F32, 1)
	if p.Err() != nil {
		return 0
	}
	err = tensor.TernaryQuantize(master, place, scale)
	if errors.Is(err, cuda.ErrOutOfRange) {
		err = matrix.Wrong("has values that are not finite; they have no mean")
	}
	p.Check(err)
	value := make([]float32, 1)
	p.Check(tensor.ReadInto(scale, value))
	p.Free(master, scale)
	return value[0]
}

// masterOf is master weights for a kernel: in place on a CPU where their elements are aligned, which files do not promise.
func masterOf(p *layer.Pass, matrix *ternary.Matrix, dtype cuda.DType) *tensor.Tensor {
	kind, _ := p.Context().Device()
	address := uintptr(unsafe.Pointer(unsafe.SliceData(matrix.Data)))
	if kind == cuda.CPU && address%uintptr(dtype.Size()) == 0 {
		buffer, err := p.Context().Borrow(matrix.Data)
		if err == nil {
			var made *tensor.Tensor
			if made, err = tensor.Over(buffer, 0, dtype, matrix.Rows, matrix.Columns); err == nil {
				return made
			}
		}
		p.Check(err)
	}
	made := p.Empty(dtype, matrix.Rows, matrix.Columns)
	if p.Err() == nil {
		p.Check(made.Upload(matrix.Data))
	}
	return made
}

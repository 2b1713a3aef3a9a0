package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// pieceBytes of a file are read before their pages are given back.
const pieceBytes = 1 << 24

// Places are where the weights lie on a CPU: in memory unless that would take more than half of what is free ("auto"),
// copied into the context's memory, or in the pages of the mapped file.
//
// Pages of a file are of 4 KiB, the context's memory has pages of 2 MiB: decoding, which reads all weights a token, is a
// fifth faster from those, and reading a file that the system holds in memory costs as much as some 30 tokens. In place, a
// model may be larger than the memory, and programs that run the same file share it. The bits are the same.
var Places = []string{"auto", "memory", "file"}

// weight is a stored matrix: u8 [rows, row bytes] and its format; and what each adapter adds to it, by its number, nil where
// none does.
type weight struct {
	data    *tensor.Tensor
	format  cuda.Format
	lowRank []*lowRank
}

// weightReader brings a model's tensors to a context: on a CPU copied once or in place, on a GPU copied once.
//
// The copy on a CPU has the rows of matrices in block formats side by side, as products read them fastest: the same
// bytes, the same results to the bit. A table of embeddings, of which a token reads one row, stays as it is.
type weightReader struct {
	keep     *store
	model    *stored.Model
	onCPU    bool
	vectors  bool // whether the CPU has an instruction set that reads rows side by side
	inMemory bool
	order    []int // of the rows of a head, where a part of it alone is rotated; or nil
}

func newWeightReader(p *layer.Pass, keep *store, model *stored.Model, place string) *weightReader {
	ctx := p.Context()
	kind, _ := ctx.Device()
	r := &weightReader{keep: keep, model: model, onCPU: kind == cuda.CPU}
	if rope := model.Config.Rope; rope.Rotated > 0 && rope.Layout == stored.RopeHalf {
		r.order = orderOfPart(model.Config.HeadDim, rope.Rotated)
	}
	isa, err := ctx.ISA()
	p.Check(err)
	r.vectors = r.onCPU && isa != cuda.Baseline.String()
	free, _, err := ctx.MemoryInfo()
	p.Check(err)
	fits := model.TensorBytes() <= free/2
	r.inMemory = !r.onCPU || place == "memory" || place == "auto" && fits
	return r
}

// table is the embeddings. Where a tied head is a copy with its rows side by side, they stay in the file: so little of
// them is read.
func (r *weightReader) table(p *layer.Pass, name string, tied bool) weight {
	part := r.model.Parts(name)[0]
	if tied && r.isInterleaved(part) {
		return weight{data: r.inPlace(p, part), format: cuda.Format(part.Format.Code)}
	}
	return weight{data: r.rows(p, name), format: cuda.Format(part.Format.Code)}
}

// tiedHead is the output matrix of a tied model: the table of embeddings, or its copy with rows side by side.
func (r *weightReader) tiedHead(p *layer.Pass, name string, embedding weight) weight {
	if r.isInterleaved(r.model.Parts(name)[0]) {
		return r.matrix(p, name)
	}
	return embedding
}

// isInterleaved says whether a matrix, or each expert's, is copied with its rows side by side.
func (r *weightReader) isInterleaved(part formats.StoredTensor) bool {
	_, has := part.Format.Interleaved()
	return r.vectors && r.inMemory && has && part.Shape[len(part.Shape)-2]%formats.InterleavedRows == 0
}

// matrix is a matrix of a product, or those of the experts, one below the other.
func (r *weightReader) matrix(p *layer.Pass, name string) weight {
	part := r.model.Parts(name)[0]
	format := cuda.Format(part.Format.Code)
	if !r.isInterleaved(part) {
		return weight{data: r.rows(p, name), format: format}
	}
	code, _ := part.Format.Interleaved()
	copied := r.copied(p, name, func(rows []byte, place *tensor.Tensor) {
		if r.isReordered(name) || part.Made != nil { // these rows are the garbage collector's, which a context must not keep
			source := p.Empty(cuda.U8, place.Dim(0), place.Dim(1))
			p.Check(source.Upload(rows))
			p.Check(tensor.InterleaveRows(source, place, part.Columns(), format))
			p.Free(source)
			return
		}
		source := borrowed(p, rows, place.Dim(0), place.Dim(1))
		p.Check(tensor.InterleaveRows(source, place, part.Columns(), format))
	})
	return weight{data: copied, format: cuda.Format(code)}
}

// besideZeros is a vector as the first row of a matrix in f32, whose second row is zeros.
func (r *weightReader) besideZeros(p *layer.Pass, name string) weight {
	row, err := r.model.Parts(name)[0].Floats()
	p.Check(err)
	data := make([]byte, 2*4*len(row))
	for at, value := range row {
		binary.LittleEndian.PutUint32(data[4*at:], math.Float32bits(value))
	}
	made := r.keep.empty(p, cuda.U8, 2, 4*len(row))
	p.Check(made.Upload(data))
	return weight{data: made, format: cuda.FormatF32}
}

// vector is a norm's gain, or biases one after the other, in f32.
func (r *weightReader) vector(p *layer.Pass, names ...string) *tensor.Tensor {
	var values []float32
	for _, name := range names {
		more, err := r.model.Parts(name)[0].Floats()
		p.Check(err)
		if r.model.Config.NormsLessOne && stored.IsNorm(name) {
			for at := range more {
				more[at]++
			}
		}
		values = append(values, more...)
	}
	return from(r.keep, p, cuda.F32, values)
}

// rows are the rows of a matrix, of all experts one below the other: u8 [rows, row bytes].
func (r *weightReader) rows(p *layer.Pass, name string) *tensor.Tensor {
	// What is in no file is the garbage collector's.
	if parts := r.model.Parts(name); !r.inMemory && parts[0].Pages != nil && parts[0].Made == nil && !r.isReordered(name) {
		if whole, follow := inOnePiece(parts); follow {
			return r.inPlace(p, whole)
		}
	}
	return r.copied(p, name, func(rows []byte, place *tensor.Tensor) { p.Check(place.Upload(rows)) })
}

// inOnePiece gives matrices that follow one another in their file as one; whether they do.
func inOnePiece(parts []formats.StoredTensor) (formats.StoredTensor, bool) {
	whole := parts[0]
	size := len(whole.Data)
	first := uintptr(unsafe.Pointer(unsafe.SliceData(whole.Data)))
	for at, part := range parts {
		place := uintptr(unsafe.Pointer(unsafe.SliceData(part.Data)))
		if part.Pages != whole.Pages || len(part.Data) != size || place != first+uintptr(at*size) {
			return whole, false
		}
	}
	if len(parts) > 1 {
		whole.Shape = append([]int{len(parts)}, whole.Shape...)
		whole.Data = unsafe.Slice(unsafe.SliceData(whole.Data), len(parts)*size) // all of it is the one mapping's
	}
	return whole, true
}

// inPlace is a tensor over the pages of the file.
func (r *weightReader) inPlace(p *layer.Pass, part formats.StoredTensor) *tensor.Tensor {
	return borrowed(p, part.Data, part.Rows(), part.RowBytes())
}

// borrowed is a tensor u8 [rows, row bytes] over memory of the program.
func borrowed(p *layer.Pass, data []byte, rows, rowBytes int) *tensor.Tensor {
	buffer, err := p.Context().Borrow(data)
	if err == nil {
		var made *tensor.Tensor
		if made, err = tensor.Over(buffer, 0, cuda.U8, rows, rowBytes); err == nil {
			return made
		}
	}
	p.Check(err)
	return tensor.Failed(err, cuda.U8, rows, rowBytes)
}

// copied is a copy, piece by piece; `put` puts some rows into their place.
func (r *weightReader) copied(p *layer.Pass, name string, put func(rows []byte, place *tensor.Tensor)) *tensor.Tensor {
	parts := r.model.Parts(name)
	if r.isReordered(name) {
		parts = slices.Clone(parts)
		for at, part := range parts {
			parts[at] = part.RowsInOrder(r.order)
		}
	}
	rows, rowBytes := 0, parts[0].RowBytes()
	for _, part := range parts {
		rows += part.Rows()
	}
	whole, first := r.keep.empty(p, cuda.U8, rows, rowBytes), 0
	// Whole groups of rows; behind a piece the file's pages are given back, so that they do not count besides the copy.
	step := max(1, pieceBytes/(formats.InterleavedRows*rowBytes)) * formats.InterleavedRows
	for _, part := range parts {
		if part.Made != nil {
			part.Data, part.Pages = part.Made(), nil
		}
		for at := 0; at < part.Rows() && p.Err() == nil; at += step {
			count := min(step, part.Rows()-at)
			piece := part.Data[at*rowBytes : (at+count)*rowBytes]
			put(piece, p.Narrow(whole, 0, first+at, count))
			part.Pages.Release(piece)
		}
		first += part.Rows()
	}
	return whole
}

// isReordered says whether a part of each head alone is rotated, in half-split pairs, and these rows are of queries or keys.
func (r *weightReader) isReordered(name string) bool {
	return r.order != nil && stored.IsRotated(name)
}

// orderOfPart is the rows of a head whose first `part` make half-split pairs, in the order in which these are pairs of the
// whole: in the first half those that begin a pair and half of those that stay, in the second the others.
func orderOfPart(headDim, part int) []int {
	half, stay := part/2, (headDim-part)/2
	order := make([]int, 0, headDim)
	for _, span := range [][2]int{{0, half}, {part, part + stay}, {half, part}, {part + stay, headDim}} {
		for row := span[0]; row < span[1]; row++ {
			order = append(order, row)
		}
	}
	return order
}

// checkPlace refuses a name of none of the places.
func checkPlace(place string) error {
	for _, known := range Places {
		if place == known {
			return nil
		}
	}
	return wrongOption("weights", "weights is '%s'; it must be one of %s", place, strings.Join(Places, ", "))
}

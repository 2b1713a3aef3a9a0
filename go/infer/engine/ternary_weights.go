package engine

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// The weights of a model with ternary weights: packed as products read them, whatever form the files have.
//
// They are always copied: matrices that are multiplied with the same rows are one, packed again with a scale an output.
// One matrix at a time is packed, while a goroutine decodes the next, and the file's pages are given back after it, so
// that loading takes less memory than running.

// groupRows lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
const groupRows = 16

// ternaryWeight is a matrix from kernel ternary_pack, u8 [stored, row bytes], and the scale of each of its outputs, f32
// [n].
type ternaryWeight struct{ data, scale *tensor.Tensor }

// ternaryLayer is a block's weights. qkv and gateUp are several matrices, one below the other; the norms are f32, and
// those before o and down nil in a model that lacks them.
type ternaryLayer struct {
	inputNorm     *tensor.Tensor
	qkv           ternaryWeight
	attentionNorm *tensor.Tensor
	o             ternaryWeight
	postNorm      *tensor.Tensor
	gateUp        ternaryWeight
	ffnNorm       *tensor.Tensor
	down          ternaryWeight
}

// readOrder are the matrices of a layer as they are read, one after the other, and how many of them are packed as one.
var readOrder = []struct {
	names []string
}{
	{[]string{"self_attn.q", "self_attn.k", "self_attn.v"}}, {[]string{"self_attn.o"}},
	{[]string{"mlp.gate", "mlp.up"}}, {[]string{"mlp.down"}},
}

// ternaryLayers are the layers of a model.
func ternaryLayers(p *layer.Pass, keep *store, model *stored.Model) []ternaryLayer {
	vector := func(name string) *tensor.Tensor {
		values, err := model.Parts(name)[0].Floats()
		p.Check(err)
		return from(keep, p, cuda.F32, values)
	}
	var order []*ternary.Matrix
	for number := range model.Config.NumLayers {
		for _, group := range readOrder {
			for _, name := range group.names {
				order = append(order, model.Matrices[fmt.Sprintf("model.layers.%d.%s_proj.weight", number, name)])
			}
		}
	}
	ahead := newDecoding(order)
	defer ahead.stop()
	layers := make([]ternaryLayer, model.Config.NumLayers)
	for number := range layers {
		block, made := fmt.Sprintf("model.layers.%d.", number), &layers[number]
		made.inputNorm = vector(block + "input_layernorm.weight")
		made.postNorm = vector(block + "post_attention_layernorm.weight")
		if model.Config.SubNorms {
			made.attentionNorm = vector(block + "self_attn.attn_sub_norm.weight")
			made.ffnNorm = vector(block + "mlp.ffn_sub_norm.weight")
		}
		for at, target := range []*ternaryWeight{&made.qkv, &made.o, &made.gateUp, &made.down} {
			group := make([]decoded, len(readOrder[at].names))
			for i := range group {
				group[i] = ahead.next()
			}
			*target = packed(p, keep, group)
		}
	}
	return layers
}

// decoded is a matrix with its codes; these are nil where a kernel makes them, or none are needed.
type decoded struct {
	matrix *ternary.Matrix
	codes  []int8
	scale  float32
	err    error
}

// decoding decodes one matrix after the other, each while the one before is packed.
type decoding struct {
	results chan decoded
	stopped chan struct{}
}

func newDecoding(order []*ternary.Matrix) *decoding {
	d := &decoding{make(chan decoded), make(chan struct{})}
	go func() {
		for _, matrix := range order {
			one := decoded{matrix: matrix}
			if !matrix.IsMaster && matrix.Form != "tern2" {
				one.codes, one.scale, one.err = matrix.Codes()
			}
			select {
			case d.results <- one:
			case <-d.stopped:
				return
			}
		}
	}()
	return d
}

func (d *decoding) next() decoded { return <-d.results }
func (d *decoding) stop()         { close(d.stopped) }

// packed makes one weight of matrices of as many columns as one, the rows of the first on top.
func packed(p *layer.Pass, keep *store, group []decoded) ternaryWeight {
	rows, columns, apart := 0, group[0].matrix.Columns, true
	for at, one := range group {
		p.Check(one.err)
		rows += one.matrix.Rows
		apart = apart && (at == len(group)-1 || one.matrix.Rows%groupRows == 0)
	}
	storedRows, rowBytes := ternary.Tern2Shape(rows, columns)
	data := keep.empty(p, cuda.U8, storedRows, rowBytes)
	var scales []float32
	pieces := [][]decoded{group}
	if apart {
		pieces = slices.Collect(slices.Chunk(group, 1))
	}
	first := 0
	for _, piece := range pieces {
		if p.Err() != nil {
			break
		}
		height := 0
		for _, one := range piece {
			height += one.matrix.Rows
		}
		count, _ := ternary.Tern2Shape(height, columns)
		scales = append(scales, put(p, piece, p.Narrow(data, 0, first, count))...)
		first += count
		for _, one := range piece {
			one.matrix.Pages.Release(one.matrix.Data) // so that the file's pages do not count besides the copy
		}
	}
	return ternaryWeight{data, from(keep, p, cuda.F32, scales)}
}

// put packs matrices into their place and gives the scale of each row.
func put(p *layer.Pass, piece []decoded, place *tensor.Tensor) []float32 {
	var scales []float32
	repeat := func(scale float32, count int) {
		for range count {
			scales = append(scales, scale)
		}
	}
	if first := piece[0].matrix; first.Form == "tern2" && len(piece) == 1 {
		bytes, scale, err := first.Tern2()
		if p.Check(err); err == nil {
			p.Check(place.Upload(bytes))
		}
		repeat(scale, first.Rows)
		return scales
	}
	rows := 0
	for _, one := range piece {
		rows += one.matrix.Rows
	}
	codes, at := p.Empty(cuda.I8, rows, piece[0].matrix.Columns), 0
	for _, one := range piece {
		repeat(codesOf(p, one, p.Narrow(codes, 0, at, one.matrix.Rows)), one.matrix.Rows)
		at += one.matrix.Rows
	}
	p.Check(tensor.TernaryPack(codes, place))
	p.Free(codes)
	return scales
}

// codesOf puts a matrix's codes into their place, i8 [n, k], and gives its scale.
func codesOf(p *layer.Pass, one decoded, place *tensor.Tensor) float32 {
	if one.matrix.IsMaster {
		return quantized(p, one.matrix, place)
	}
	codes, scale, err := one.codes, one.scale, one.err
	if codes == nil && err == nil { // tern2 among others
		codes, scale, err = one.matrix.Codes()
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

package engine

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// The weights of a model with ternary weights: packed as products read them, whatever form the files have.
//
// They are always copied: matrices that are multiplied with the same rows are one, packed again with a scale an output, unless
// an adapter is beside one of them. One matrix at a time is packed, while a goroutine decodes the next, and the file's pages
// are given back after it, so that loading takes less memory than running.

// groupRows lie side by side in a packed matrix; matrices of whole such groups are packed on their own.
const groupRows = 16

// ternaryWeight is a matrix from kernel ternary_pack, u8 [stored, row bytes], and the scale of each of its outputs, f32
// [n]; and what each adapter adds to its product, by number, or nil.
type ternaryWeight struct {
	data, scale *tensor.Tensor
	lowRank     []*lowRank
}

// bytes are those of the matrix.
func (w ternaryWeight) bytes() int64 { return w.data.Bytes() + w.scale.Bytes() }

// ternaryLayer is a block's weights. qkv and gateUp are one matrix, with those of these one below the other, or each by
// itself, where one of them has an adapter; the norms are f32, and those before o and down nil in a model that lacks them.
type ternaryLayer struct {
	inputNorm     *tensor.Tensor
	qkv           []ternaryWeight
	attentionNorm *tensor.Tensor
	o             ternaryWeight
	postNorm      *tensor.Tensor
	gateUp        []ternaryWeight
	ffnNorm       *tensor.Tensor
	down          ternaryWeight
}

// readOrder are the matrices of a layer as they are read: those of each product together.
var readOrder = [][]string{
	{"self_attn.q", "self_attn.k", "self_attn.v"}, {"self_attn.o"}, {"mlp.gate", "mlp.up"}, {"mlp.down"},
}

// ternaryLayers are the layers of a model, with what adapters add to their products.
func ternaryLayers(p *layer.Pass, keep *store, model *stored.Model, added *adapters) []ternaryLayer {
	vector := func(name string) *tensor.Tensor {
		values, err := model.Parts(name)[0].Floats()
		p.Check(err)
		return from(keep, p, cuda.F32, values)
	}
	var order []*ternary.Matrix
	for number := range model.Config.NumLayers {
		for _, names := range readOrder {
			for _, name := range names {
				order = append(order, model.Matrices[matrixName(number, name)])
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
		product := func(names []string) []ternaryWeight {
			var group []stored.CodesToPack
			var factors [][]*lowRank
			for _, name := range names {
				group, factors = append(group, ahead.next()), append(factors, added.of(matrixName(number, name)))
			}
			if !slices.ContainsFunc(factors, func(one []*lowRank) bool { return one != nil }) {
				return []ternaryWeight{packed(p, keep, group)}
			}
			var apart []ternaryWeight
			for at, one := range factors {
				weight := packed(p, keep, group[at:at+1])
				weight.lowRank = one
				apart = append(apart, weight)
			}
			return apart
		}
		made.qkv, made.o = product(readOrder[0]), product(readOrder[1])[0]
		made.gateUp, made.down = product(readOrder[2]), product(readOrder[3])[0]
	}
	return layers
}

func matrixName(number int, name string) string {
	return fmt.Sprintf("model.layers.%d.%s_proj.weight", number, name)
}

// decoding decodes one matrix after the other, each while the one before is packed.
type decoding struct {
	results chan stored.CodesToPack
	stopped chan struct{}
}

func newDecoding(order []*ternary.Matrix) *decoding {
	d := &decoding{make(chan stored.CodesToPack), make(chan struct{})}
	go func() {
		for _, matrix := range order {
			select {
			case d.results <- stored.DecodeToPack(matrix):
			case <-d.stopped:
				return
			}
		}
	}()
	return d
}

func (d *decoding) next() stored.CodesToPack { return <-d.results }
func (d *decoding) stop()                    { close(d.stopped) }

// packed makes one weight of matrices of as many columns as one, the rows of the first on top.
func packed(p *layer.Pass, keep *store, group []stored.CodesToPack) ternaryWeight {
	rows, columns, apart := 0, group[0].Matrix.Columns, true
	for at, one := range group {
		p.Check(one.Err)
		rows += one.Matrix.Rows
		apart = apart && (at == len(group)-1 || one.Matrix.Rows%groupRows == 0)
	}
	storedRows, rowBytes := ternary.Tern2Shape(rows, columns)
	data := keep.empty(p, cuda.U8, storedRows, rowBytes)
	var scales []float32
	pieces := [][]stored.CodesToPack{group}
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
			height += one.Matrix.Rows
		}
		count, _ := ternary.Tern2Shape(height, columns)
		scales = append(scales, stored.PackTernary(p, piece, p.Narrow(data, 0, first, count))...)
		first += count
	}
	return ternaryWeight{data: data, scale: from(keep, p, cuda.F32, scales)}
}

package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Embedding takes rows of a table [vocab, hidden], or, with a Dim, of one that stays as it is stored: u8 [vocab, row bytes] in
// Format, of Dim numbers a row, which has no Grad.
type Embedding struct {
	Weight, Grad *tensor.Tensor
	Format       cuda.Format
	Dim          int
}

// Forward takes ids i32 [tokens] to rows [tokens, hidden].
func (e *Embedding) Forward(p *Pass, ids *tensor.Tensor) *tensor.Tensor {
	if e.Dim > 0 {
		y := p.Empty(cuda.F32, ids.Size(), e.Dim)
		p.Check(tensor.EmbeddingQuant(e.Weight, ids, y, e.Format))
		return y
	}
	y := p.Empty(e.Weight.DType(), ids.Size(), e.Weight.Dim(1))
	p.Check(tensor.Embedding(e.Weight, ids, y))
	return y
}

// Backward adds dy [tokens, hidden] to the rows of the gradient that were taken.
func (e *Embedding) Backward(p *Pass, dy, ids *tensor.Tensor) {
	if e.Grad != nil {
		p.Check(tensor.ScatterAdd(dy, ids, e.Grad))
	}
}

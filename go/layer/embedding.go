package layer

import "github.com/nncuda/nncuda/go/tensor"

// Embedding takes rows of a table [vocab, hidden].
type Embedding struct {
	Weight, Grad *tensor.Tensor
}

// Forward takes ids i32 [tokens] to rows [tokens, hidden].
func (e *Embedding) Forward(p *Pass, ids *tensor.Tensor) *tensor.Tensor {
	y := p.Empty(e.Weight.DType(), ids.Size(), e.Weight.Dim(1))
	p.Check(tensor.Embedding(e.Weight, ids, y))
	return y
}

// Backward adds dy [tokens, hidden] to the rows of the gradient that were taken.
func (e *Embedding) Backward(p *Pass, dy, ids *tensor.Tensor) {
	p.Check(tensor.ScatterAdd(dy, ids, e.Grad))
}

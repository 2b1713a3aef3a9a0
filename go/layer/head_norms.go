package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// HeadNorms gives queries, keys and values by products of their own: each weight may be stored in a form of its own, and have
// an adapter. With Norms the former two are normed head by head, as in Qwen3.
type HeadNorms struct {
	Products [3]AddingProjection // of queries, keys and values
	Norms    [2]*RMSNorm         // of queries and keys, with gains [head_dim]; nil where there are none
	HeadDim  int
}

// headNormsKept is what the backward needs: queries and keys before their norms, and of each norm its own.
type headNormsKept struct{ q, k, rstdQ, rstdK *tensor.Tensor }

// forward takes x [tokens, hidden] to q, k, v [tokens, heads, head_dim], which are the caller's, with what backward needs.
func (h *HeadNorms) forward(p *Pass, x *tensor.Tensor) (q, k, v *tensor.Tensor, kept headNormsKept) {
	var parts [3]*tensor.Tensor
	for at, product := range h.Products {
		parts[at] = product.Forward(p, x, nil)
	}
	if h.Norms[0] == nil {
		return parts[0], parts[1], parts[2], kept
	}
	kept = headNormsKept{q: parts[0], k: parts[1]}
	var normed [2]*tensor.Tensor
	for at, norm := range h.Norms {
		rows := p.View(parts[at], -1, h.HeadDim)
		normed[at] = p.Like(parts[at])
		rstd := p.Empty(cuda.F32, rows.Dim(0))
		p.Check(tensor.RMSNorm(rows, norm.Weight, p.View(normed[at], -1, h.HeadDim), rstd, float32(norm.Eps)))
		if at == 0 {
			kept.rstdQ = rstd
		} else {
			kept.rstdK = rstd
		}
	}
	return normed[0], normed[1], parts[2], kept
}

// byToken gives a view [tokens, heads, head_dim] of a part.
func (h *HeadNorms) byToken(p *Pass, part *tensor.Tensor) *tensor.Tensor {
	return p.View(part, part.Dim(0), -1, h.HeadDim)
}

// backward gives the gradient of x from those of q, k and v, [tokens, heads*head_dim] each, which are spent.
func (h *HeadNorms) backward(p *Pass, dq, dk, dv, x *tensor.Tensor, kept headNormsKept, beta float32) *tensor.Tensor {
	if h.Norms[0] != nil {
		h.Norms[0].Backward(p, p.View(dq, -1, h.HeadDim), p.View(kept.q, -1, h.HeadDim), kept.rstdQ, nil)
		h.Norms[1].Backward(p, p.View(dk, -1, h.HeadDim), p.View(kept.k, -1, h.HeadDim), kept.rstdK, nil)
	}
	dx := h.Products[0].Backward(p, dq, x, nil, beta)
	h.Products[1].BackwardAdding(p, dk, x, dx, beta)
	h.Products[2].BackwardAdding(p, dv, x, dx, beta)
	return dx
}

func (k headNormsKept) free(p *Pass) { p.Free(k.q, k.k) }

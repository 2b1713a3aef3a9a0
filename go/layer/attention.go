package layer

import (
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// MQAttention is causal self-attention with rotary embedding and shared key heads:
// out = softmax(q k^T / sqrt(head_dim)) v, through W_o; q, k, v come from one product with W_qkv.
//
// Weights: QKV [(heads + 2 kv_heads) * head_dim, hidden], which may have a bias, Output [hidden, heads * head_dim].
// (Vaswani et al. 2017, eq. 1; Shazeer 2019, multi-query; Su et al. 2021, rotary)
type MQAttention struct {
	QKV, Output    Projection
	Normed         *HeadNorms // in place of QKV where queries, keys and values have products of their own; or nil
	Rope           *RopeTables
	Heads, KVHeads int
}

// Documents says where the documents of packed sequences begin, so that none sees another; nil for sequences of one.
type Documents struct {
	Starts    *tensor.Tensor // i32 [batch, length]: the first token of each token's document
	Positions *tensor.Tensor // i32 [batch*length]: how far each token is from there, where its rotation begins
}

// DocumentsEndedBy finds those of ids i32 [batch*length], each of which ends with the separator.
func DocumentsEndedBy(p *Pass, separator int32, ids *tensor.Tensor, batch int) *Documents {
	ids = p.View(ids, batch, -1)
	starts, positions := p.Like(ids), p.Like(ids)
	p.Check(tensor.DocumentStarts(ids, starts, positions, separator))
	return &Documents{starts, p.View(positions, ids.Size())}
}

// Free gives the memory back; of nil it does nothing.
func (d *Documents) Free(p *Pass) {
	if d != nil {
		p.Free(d.Starts, d.Positions)
	}
}

// MQAttentionKept is what the backward of attention needs of its forward.
type MQAttentionKept struct {
	projected  projected
	heads, lse *tensor.Tensor
}

func (k *MQAttentionKept) free(p *Pass) {
	k.projected.free(p)
	p.Free(k.heads, k.lse)
}

// projected are queries, keys and values [tokens, heads, head_dim]: views of `owned`, which are one fused product, or a tensor
// each.
type projected struct {
	q, k, v *tensor.Tensor
	owned   []*tensor.Tensor
	norms   headNormsKept // where they are normed
}

func (j projected) free(p *Pass) {
	p.Free(j.owned...)
	if j.norms.q != nil {
		j.norms.free(p)
		p.Free(j.norms.rstdQ, j.norms.rstdK)
	}
}

// project gives queries, keys and values of x.
func (a *MQAttention) project(p *Pass, x *tensor.Tensor) projected {
	if a.Normed == nil {
		qkv := a.QKV.Forward(p, x, nil)
		q, k, v := a.split(p, qkv)
		return projected{q: q, k: k, v: v, owned: []*tensor.Tensor{qkv}}
	}
	q, k, v, norms := a.Normed.forward(p, x)
	by := func(part *tensor.Tensor) *tensor.Tensor { return a.Normed.byToken(p, part) }
	return projected{q: by(q), k: by(k), v: by(v), owned: []*tensor.Tensor{q, k, v}, norms: norms}
}

func (a *MQAttention) scale() float32 { return float32(1 / math.Sqrt(float64(a.Rope.HeadDim))) }

// Forward takes x [batch*length, hidden], sequences one after the other, to the same shape.
func (a *MQAttention) Forward(p *Pass, x *tensor.Tensor, batch int, documents *Documents) *tensor.Tensor {
	y, kept := a.ForwardKeeping(p, x, batch, documents)
	kept.free(p)
	return y
}

// ForwardKeeping is Forward with what Backward needs.
func (a *MQAttention) ForwardKeeping(
	p *Pass, x *tensor.Tensor, batch int, documents *Documents,
) (*tensor.Tensor, *MQAttentionKept) {
	rows := x.Dim(0)
	length := rows / batch
	parts := a.project(p, x)
	q, k, v := parts.q, parts.k, parts.v
	cosine, sine := a.Rope.Tables(p, length)
	starts, positions := a.places(p, batch, length, documents)
	p.Check(tensor.RopeQK(q, k, cosine, sine, positions, cuda.RopeHalf))
	heads := p.Empty(x.DType(), rows, a.Heads, a.Rope.HeadDim)
	lse := p.Empty(cuda.F32, batch, a.Heads, length)
	p.Check(tensor.FlashAttention(q, k, v, starts, heads, lse, batch, a.scale(), true))
	return a.Output.Forward(p, p.View(heads, rows, -1), nil), &MQAttentionKept{parts, heads, lse}
}

// places gives the first key that each token sees, nil for 0, and the position that it is rotated by.
func (a *MQAttention) places(p *Pass, batch, length int, documents *Documents) (starts, positions *tensor.Tensor) {
	if documents == nil {
		return nil, a.Rope.Positions(p, batch, length)
	}
	return documents.Starts, documents.Positions
}

// Backward gives the gradient of x from dy, both [batch*length, hidden]; `documents` as in the forward call.
func (a *MQAttention) Backward(
	p *Pass, dy, x *tensor.Tensor, kept *MQAttentionKept, beta float32, documents *Documents,
) *tensor.Tensor {
	heads, lse := kept.heads, kept.lse
	rows, batch := x.Dim(0), lse.Dim(0)
	length := rows / batch
	dheads := a.Output.Backward(p, dy, p.View(heads, rows, -1), nil, beta)
	var gradients []*tensor.Tensor
	for _, part := range kept.projected.owned {
		gradients = append(gradients, p.Like(part))
	}
	q, k, v := kept.projected.q, kept.projected.k, kept.projected.v
	var dq, dk, dv *tensor.Tensor
	if a.Normed == nil {
		dq, dk, dv = a.split(p, gradients[0])
	} else {
		dq, dk, dv = a.Normed.byToken(p, gradients[0]), a.Normed.byToken(p, gradients[1]), a.Normed.byToken(p, gradients[2])
	}
	starts, positions := a.places(p, batch, length, documents)
	shaped := p.View(dheads, rows, a.Heads, a.Rope.HeadDim)
	p.Check(tensor.FlashAttentionBackward(shaped, q, k, v, heads, lse, starts, dq, dk, dv, a.scale(), true))
	cosine, sine := a.Rope.Tables(p, length)
	p.Check(tensor.RopeBackward(dq, cosine, sine, positions, dq, cuda.RopeHalf))
	p.Check(tensor.RopeBackward(dk, cosine, sine, positions, dk, cuda.RopeHalf))
	var dx *tensor.Tensor
	if a.Normed == nil {
		dx = a.QKV.Backward(p, gradients[0], x, nil, beta)
	} else {
		norms := &kept.projected.norms
		dx = a.Normed.backward(p, gradients[0], gradients[1], gradients[2], x, *norms, beta)
		norms.rstdQ, norms.rstdK = nil, nil // which their backward freed
	}
	kept.free(p)
	p.Free(append(gradients, dheads)...)
	return dx
}

// Prefill is Forward for the next tokens of one sequence, x [length, hidden], which follow those in row `row`.
func (a *MQAttention) Prefill(p *Pass, x *tensor.Tensor, cache *KVCache, layer, row int) *tensor.Tensor {
	length, before := x.Dim(0), cache.used[row]
	parts := a.project(p, x)
	q, k, v := parts.q, parts.k, parts.v
	p.Check(tensor.RopeQK(q, k, cache.cosine, cache.sine, p.Narrow(cache.positions, 0, before, length), cuda.RopeHalf))
	keys, values := p.Narrow(cache.keys[layer], 0, row, 1), p.Narrow(cache.values[layer], 0, row, 1)
	p.Check(tensor.KVAppend(k, v, p.Narrow(cache.starts, 0, row, 1), keys, values))
	if before > 0 {
		k = p.Narrow(p.View(keys, cache.capacity, a.KVHeads, a.Rope.HeadDim), 0, 0, before+length)
		v = p.Narrow(p.View(values, cache.capacity, a.KVHeads, a.Rope.HeadDim), 0, 0, before+length)
	}
	heads := p.Empty(x.DType(), length, a.Heads, a.Rope.HeadDim)
	p.Check(tensor.FlashAttention(q, k, v, nil, heads, nil, 1, a.scale(), true))
	y := a.Output.Forward(p, p.View(heads, length, -1), nil)
	parts.free(p)
	p.Free(heads)
	return y
}

// Decode runs one new token a sequence, x [batch, hidden].
func (a *MQAttention) Decode(p *Pass, x *tensor.Tensor, cache *KVCache, layer int) *tensor.Tensor {
	rows := x.Dim(0)
	parts := a.project(p, x)
	q, k, v := parts.q, parts.k, parts.v
	p.Check(tensor.RopeQK(q, k, cache.cosine, cache.sine, cache.starts, cuda.RopeHalf))
	keys, values := cache.keys[layer], cache.values[layer]
	p.Check(tensor.KVAppend(k, v, cache.starts, keys, values))
	heads := p.Empty(x.DType(), rows, a.Heads, a.Rope.HeadDim)
	p.Check(tensor.AttentionDecode(q, keys, values, cache.lengths, heads, a.scale()))
	y := a.Output.Forward(p, p.View(heads, rows, -1), nil)
	parts.free(p)
	p.Free(heads)
	return y
}

// split gives views of the queries, keys and values in the fused product, [tokens, heads, head_dim] each.
func (a *MQAttention) split(p *Pass, qkv *tensor.Tensor) (q, k, v *tensor.Tensor) {
	rows, dim := qkv.Dim(0), a.Rope.HeadDim
	qWidth, kvWidth := a.Heads*dim, a.KVHeads*dim
	q = p.View(p.Narrow(qkv, 1, 0, qWidth), rows, a.Heads, dim)
	k = p.View(p.Narrow(qkv, 1, qWidth, kvWidth), rows, a.KVHeads, dim)
	v = p.View(p.Narrow(qkv, 1, qWidth+kvWidth, kvWidth), rows, a.KVHeads, dim)
	return q, k, v
}

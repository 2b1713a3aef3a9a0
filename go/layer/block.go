package layer

import "github.com/nncuda/nncuda/go/tensor"

// TransformerBlock is pre-norm attention and mixture of experts around the residual stream:
// h = x + attention(norm(x)); out = h + moe(norm(h)).
//
// Kept for Backward: the block's input (which is the output of the block before), the stream between its two halves,
// the norms' outputs, and what the two halves keep. With Recompute the input alone is kept, and Backward finds the rest
// again, by the same calls. (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4)
type TransformerBlock struct {
	InputNorm *RMSNorm
	Attention *MQAttention
	PostNorm  *RMSNorm
	MoE       *MoELayer
	Recompute bool

	// Observe is shown the outputs of "self_attn", without the residual, and of "block_sparse_moe", with it; may be nil.
	Observe func(p *Pass, part string, x *tensor.Tensor)

	x, normed, middle, postNormed *tensor.Tensor
	capacity                      int  // of the experts when x alone was kept
	again                         bool // whether Backward must find the rest
}

// Forward takes x [batch*length, hidden] to the same shape. With `keep` it holds on to x until Backward, else x is
// freed, since nobody else needs it.
func (b *TransformerBlock) Forward(
	p *Pass, x *tensor.Tensor, batch, capacity int, aux *tensor.Tensor, keep bool,
) *tensor.Tensor {
	keepAll := keep && !b.Recompute
	normed, middle, postNormed := b.attend(p, x, batch, keepAll)
	if keep {
		b.x, b.capacity, b.again = x, capacity, b.Recompute
	} else {
		p.Free(x)
	}
	if keepAll {
		b.normed, b.middle, b.postNormed = normed, middle, postNormed
		return b.observe(p, "block_sparse_moe", b.MoE.Forward(p, postNormed, middle, capacity, aux, true))
	}
	p.Free(normed)
	out := b.observe(p, "block_sparse_moe", b.MoE.Forward(p, postNormed, middle, capacity, aux, false))
	p.Free(middle, postNormed)
	return out
}

func (b *TransformerBlock) observe(p *Pass, part string, x *tensor.Tensor) *tensor.Tensor {
	if b.Observe != nil {
		b.Observe(p, part, x)
	}
	return x
}

// attend is the block's first half: the norm of x, the stream behind attention, and the norm of that.
func (b *TransformerBlock) attend(p *Pass, x *tensor.Tensor, batch int, keep bool,
) (normed, middle, postNormed *tensor.Tensor) {
	normed = b.InputNorm.Forward(p, x, keep)
	attended := b.observe(p, "self_attn", b.Attention.Forward(p, normed, batch, keep))
	middle, postNormed = b.PostNorm.ForwardResidual(p, attended, x, keep)
	return normed, middle, postNormed
}

// Backward gives the gradient of the block's input from dout, both [batch*length, hidden]; dout is freed.
func (b *TransformerBlock) Backward(p *Pass, dout *tensor.Tensor, batch int, auxFactor *tensor.Tensor, beta float32,
) *tensor.Tensor {
	if b.again {
		b.again = false
		b.normed, b.middle, b.postNormed = b.attend(p, b.x, batch, true)
		b.MoE.forwardAgain(p, b.postNormed, b.capacity)
	}
	x, normed, middle, postNormed := b.x, b.normed, b.middle, b.postNormed
	b.x, b.normed, b.middle, b.postNormed = nil, nil, nil, nil
	dnormed := b.MoE.Backward(p, dout, postNormed, auxFactor, beta)
	p.Free(postNormed)
	dmiddle := b.PostNorm.Backward(p, dnormed, middle, dout)
	p.Free(middle, dout)
	dnormed = b.Attention.Backward(p, dmiddle, normed, batch, beta)
	dx := b.InputNorm.Backward(p, dnormed, x, dmiddle)
	p.Free(x, normed, dmiddle)
	return dx
}

// Prefill runs the next tokens of one sequence into row `row` of the cache, x [length, hidden], which is freed.
func (b *TransformerBlock) Prefill(p *Pass, x *tensor.Tensor, cache *KVCache, layer, row int) *tensor.Tensor {
	normed := b.InputNorm.Forward(p, x, false)
	return b.second(p, x, normed, b.Attention.Prefill(p, normed, cache, layer, row))
}

// Decode runs one new token a sequence, x [batch, hidden], which is freed.
func (b *TransformerBlock) Decode(p *Pass, x *tensor.Tensor, cache *KVCache, layer int) *tensor.Tensor {
	normed := b.InputNorm.Forward(p, x, false)
	return b.second(p, x, normed, b.Attention.Decode(p, normed, cache, layer))
}

// second is the block's second half, without gradients or limits of experts.
func (b *TransformerBlock) second(p *Pass, x, normed, attended *tensor.Tensor) *tensor.Tensor {
	middle, postNormed := b.PostNorm.ForwardResidual(p, attended, x, false)
	p.Free(x, normed)
	out := b.MoE.Forward(p, postNormed, middle, 0, nil, false)
	p.Free(middle, postNormed)
	return out
}

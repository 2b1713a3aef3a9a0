package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// TransformerBlock is pre-norm attention and mixture of experts, or dense network, around the residual stream:
// h = x + attention(norm(x)); out = h + moe(norm(h)).
type TransformerBlock struct {
	InputNorm *RMSNorm
	Attention *MQAttention
	PostNorm  *RMSNorm
	MoE       *MoELayer

	// Recompute keeps the block's input alone; Backward finds the rest again, by the same calls.
	// (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4)
	Recompute bool

	Name string // in labels of a trace: "model.layers.3"
}

// What labels of a trace begin with on the way back, and the halves of a block in them; each begins with its norm.
const (
	BackwardLabel = "backward of "

	attentionLabel = ".self_attn"
	moeLabel       = ".block_sparse_moe"
	denseLabel     = ".mlp"
)

// secondLabel is that of the block's second half.
func (b *TransformerBlock) secondLabel() string {
	if b.MoE.dense() {
		return denseLabel
	}
	return moeLabel
}

// BlockKept is what the backward of a block needs of its forward: the block's input (which is the output of the block
// before), and the rest unless that is found again.
type BlockKept struct {
	x         *tensor.Tensor
	batch     int
	documents *Documents
	capacity  int // slots of an expert
	attended  *attended
	moe       *MoEKept // nil when this and attended are found again
}

// attended is the stream between the block's halves, the norms' outputs and deviations, and what attention keeps.
type attended struct {
	normed, rstd, middle, postNormed, postRstd *tensor.Tensor
	attention                                  *MQAttentionKept
}

// Forward takes x [batch*length, hidden], which is freed, to the same shape. No expert drops a token.
func (b *TransformerBlock) Forward(p *Pass, x *tensor.Tensor, batch int, documents *Documents) *tensor.Tensor {
	p.Label(b.Name, attentionLabel)
	normed := b.InputNorm.Forward(p, x)
	return b.second(p, x, normed, b.Attention.Forward(p, normed, batch, documents))
}

// ForwardKeeping is Forward with an expert's capacity (0 for no limit) and what Backward needs, x among it; it adds the
// balancing loss to `aux`. It also gives how the experts were used, which is the caller's to close after Backward.
func (b *TransformerBlock) ForwardKeeping(
	p *Pass, x *tensor.Tensor, batch int, documents *Documents, capacity int, aux *tensor.Tensor,
) (*tensor.Tensor, ExpertUse, *BlockKept) {
	kept := &BlockKept{x: x, batch: batch, documents: documents, capacity: capacity}
	first := b.attend(p, x, batch, documents, !b.Recompute)
	keepInside := !b.Recompute && !b.MoE.Recompute
	out, moe := b.MoE.forward(p, first.postNormed, first.middle, capacity, aux, keepInside)
	experts := moe.expertUse(p)
	if b.Recompute {
		moe.free(p)
		p.Free(first.middle, first.postNormed)
	} else {
		kept.attended, kept.moe = first, moe
	}
	return out, experts, kept
}

// attend is the block's first half; unless it is kept, only the stream and its norm stay.
func (b *TransformerBlock) attend(
	p *Pass, x *tensor.Tensor, batch int, documents *Documents, keep bool,
) *attended {
	made := &attended{}
	p.Label(b.Name, attentionLabel)
	if !keep {
		made.normed = b.InputNorm.Forward(p, x)
		made.middle = b.Attention.Forward(p, made.normed, batch, documents)
		p.Label(b.Name, b.secondLabel())
		made.postNormed = b.PostNorm.ForwardResidual(p, made.middle, x)
		p.Free(made.normed)
		return made
	}
	made.normed, made.rstd = b.InputNorm.ForwardKeeping(p, x)
	made.middle, made.attention = b.Attention.ForwardKeeping(p, made.normed, batch, documents)
	p.Label(b.Name, b.secondLabel())
	made.postNormed, made.postRstd = b.PostNorm.ForwardResidualKeeping(p, made.middle, x)
	return made
}

// Backward gives the gradient of the block's input from dout, both [batch*length, hidden]; dout is freed.
func (b *TransformerBlock) Backward(
	p *Pass, dout *tensor.Tensor, kept *BlockKept, auxFactor *tensor.Tensor, beta float32,
) *tensor.Tensor {
	first, moe := kept.attended, kept.moe
	if moe == nil {
		first = b.attend(p, kept.x, kept.batch, kept.documents, true)
		moe = b.MoE.forwardAgain(p, first.postNormed, kept.capacity)
	}
	p.Label(BackwardLabel, b.Name, b.secondLabel())
	dnormed := b.MoE.Backward(p, dout, first.postNormed, moe, auxFactor, beta)
	p.Free(first.postNormed)
	dmiddle := b.PostNorm.Backward(p, dnormed, first.middle, first.postRstd, dout)
	p.Free(first.middle, dout)
	p.Label(BackwardLabel, b.Name, attentionLabel)
	dnormed = b.Attention.Backward(p, dmiddle, first.normed, first.attention, beta, kept.documents)
	dx := b.InputNorm.Backward(p, dnormed, kept.x, first.rstd, dmiddle)
	p.Free(kept.x, first.normed, dmiddle)
	return dx
}

// ServeForward runs the rows that other ranks have for this rank's experts, in a round in which it has none of its own.
// With `keep` it gives what ServeBackward needs, which is nil where the block finds it again.
func (b *TransformerBlock) ServeForward(p *Pass, keep bool) *Served {
	p.Label(b.Name, b.secondLabel())
	return b.MoE.serveForward(p, keep && !b.Recompute && !b.MoE.Recompute)
}

// ServeBackward is the backward of ServeForward.
func (b *TransformerBlock) ServeBackward(p *Pass, kept *Served) {
	if b.Recompute {
		p.Label(b.Name, b.secondLabel())
		kept = b.MoE.serveForward(p, true)
	}
	p.Label(BackwardLabel, b.Name, b.secondLabel())
	b.MoE.serveBackward(p, kept)
}

// AddUp carries out what becomes, in a round, of sums of the gradients of the experts that this rank has.
func (b *TransformerBlock) AddUp(p *Pass, event cuda.ExpertEvent) { b.MoE.addUp(p, event) }

// Prefill runs the next tokens of one sequence into row `row` of the cache, x [length, hidden], which is freed.
func (b *TransformerBlock) Prefill(p *Pass, x *tensor.Tensor, cache *KVCache, layer, row int) *tensor.Tensor {
	p.Label(b.Name, attentionLabel)
	normed := b.InputNorm.Forward(p, x)
	return b.second(p, x, normed, b.Attention.Prefill(p, normed, cache, layer, row))
}

// Decode runs one new token a sequence, x [batch, hidden], which is freed.
func (b *TransformerBlock) Decode(p *Pass, x *tensor.Tensor, cache *KVCache, layer int) *tensor.Tensor {
	p.Label(b.Name, attentionLabel)
	normed := b.InputNorm.Forward(p, x)
	return b.second(p, x, normed, b.Attention.Decode(p, normed, cache, layer))
}

// second is the block's second half, without gradients or limits of experts.
func (b *TransformerBlock) second(p *Pass, x, normed, middle *tensor.Tensor) *tensor.Tensor {
	p.Label(b.Name, b.secondLabel())
	postNormed := b.PostNorm.ForwardResidual(p, middle, x)
	p.Free(x, normed)
	out := b.MoE.Forward(p, postNormed, middle)
	p.Free(middle, postNormed)
	return out
}

package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// routing is where each token goes: what router and experts hand to one another.
type routing struct {
	weights *tensor.Tensor // f32 [tokens, k]
	indices *tensor.Tensor // i32 [tokens, k]
	probs   *tensor.Tensor // f32 [tokens, experts]
	counts  *tensor.Tensor // i32 [experts], slots that chose each expert, dropped ones included
	offsets *tensor.Tensor // i32 [experts + 1]
	slotRow *tensor.Tensor // i32 [tokens, k]
	rowSlot *tensor.Tensor // i32 [tokens * k]
}

// free gives back all but what an ExpertUse holds.
func (r *routing) free(p *Pass) {
	p.Free(r.weights, r.indices, r.probs, r.counts, r.offsets, r.slotRow, r.rowSlot)
}

// Router takes the softmax over the experts, the k most likely, and plans which row each slot takes. The load-balancing
// loss is alpha * sum over experts of f * P. (Fedus, Zoph, Shazeer 2021, eq. 4-6)
type Router struct {
	Gate  *Linear
	K     int
	Norm  bool // whether a token's weights are divided by their sum
	Alpha float64
}

// forward routes x [tokens, hidden]; it adds the load-balancing loss to `aux` f32 [1] where given.
//
// The logits are f32 in every precision: rounded to 16 bits, experts would tie that are not alike.
func (r *Router) forward(p *Pass, x *tensor.Tensor, capacity int, aux *tensor.Tensor) *routing {
	tokens, experts := x.Dim(0), r.Gate.Weight.Dim(0)
	logits := r.Gate.Forward(p, x, p.Empty(cuda.F32, tokens, experts))
	made := &routing{
		weights: p.Empty(cuda.F32, tokens, r.K),
		indices: p.Empty(cuda.I32, tokens, r.K),
		probs:   p.Empty(cuda.F32, tokens, experts),
	}
	p.Check(tensor.SoftmaxTopK(logits, made.weights, made.indices, made.probs, r.Norm))
	p.Free(logits)
	made.counts = p.Empty(cuda.I32, experts)
	made.offsets = p.Empty(cuda.I32, experts+1)
	made.slotRow = p.Empty(cuda.I32, tokens, r.K)
	made.rowSlot = p.Empty(cuda.I32, tokens*r.K)
	p.Check(tensor.MoEPlan(made.indices, made.counts, made.offsets, made.slotRow, made.rowSlot, int64(capacity)))
	if aux != nil {
		p.Check(tensor.AuxLossForward(made.probs, made.counts, aux, float32(r.Alpha)))
	}
	return made
}

// backward adds to dx what reaches x through the weights and, times auxFactor f32 [1], through the balancing loss.
func (r *Router) backward(p *Pass, taken *routing, dweights, x, dx, auxFactor *tensor.Tensor, beta float32) {
	dprobs := p.Like(taken.probs)
	p.Check(tensor.AuxLossBackward(taken.counts, auxFactor, dprobs, float32(r.Alpha)))
	dlogits := p.Empty(x.DType(), taken.probs.Shape()...)
	p.Check(tensor.SoftmaxTopKBackward(dweights, taken.weights, taken.indices, taken.probs, dprobs, dlogits, r.Norm))
	r.Gate.BackwardInto(p, dlogits, x, dx, beta)
	p.Free(dprobs, dlogits)
}

// MoELayer is out = residual + sum over a token's experts of weight * W2 (silu(W1 x) * (W3 x)).
//
// Weights: W13 [experts, 2*ffn, hidden] with the rows of W1 before those of W3, W2 [experts, hidden, ffn].
// Tokens are sorted by expert, so that each product runs over all experts at once. (Gale et al. 2022)
//
// With Recompute, what the experts' products take in and give between is not kept but found again by the same calls.
type MoELayer struct {
	Router          *Router
	W13, W2         *tensor.Tensor
	W13Grad, W2Grad *tensor.Tensor
	Recompute       bool
}

// MoEKept is what the backward of a mixture needs of its forward.
type MoEKept struct {
	routing *routing
	y       *tensor.Tensor // [slots, hidden]
	inside  *inside        // nil when it is found again
}

func (k *MoEKept) free(p *Pass) {
	k.routing.free(p)
	p.Free(k.y)
	k.inside.free(p)
}

// inside is what lies between the experts' input and their last product, in row order.
type inside struct {
	rows   *tensor.Tensor // [slots, hidden]
	gateUp *tensor.Tensor // [slots, 2*ffn]
	active *tensor.Tensor // [slots, ffn]
}

func (i *inside) free(p *Pass) {
	if i != nil {
		p.Free(i.rows, i.gateUp, i.active)
	}
}

// ExpertUse is how a call used the experts, for whoever watches the balance.
type ExpertUse struct {
	Counts  *tensor.Tensor // i32 [experts], slots that chose each expert, dropped ones included
	Choices *tensor.Tensor // i32 [tokens, k], experts of each token, most likely first
}

// Close frees the tensors.
func (u ExpertUse) Close() error { return closeAll(u.Counts, u.Choices) }

// expertUse makes what was chosen outlive the pass.
func (k *MoEKept) expertUse(p *Pass) ExpertUse {
	return ExpertUse{p.Keep(k.routing.counts), p.Keep(k.routing.indices)}
}

// Forward takes x and residual [tokens, hidden] to the same shape. No expert drops a token.
func (m *MoELayer) Forward(p *Pass, x, residual *tensor.Tensor) *tensor.Tensor {
	out, kept := m.forward(p, x, residual, 0, nil, false)
	kept.free(p)
	return out
}

// forward takes an expert's capacity, 0 for no limit, and adds the balancing loss to `aux` where given.
func (m *MoELayer) forward(
	p *Pass, x, residual *tensor.Tensor, capacity int, aux *tensor.Tensor, keepInside bool,
) (*tensor.Tensor, *MoEKept) {
	routing := m.Router.forward(p, x, capacity, aux)
	y, inside := m.experts(p, x, routing, keepInside)
	out := p.Like(x)
	p.Check(tensor.MoECombine(y, routing.weights, routing.slotRow, residual, out))
	return out, &MoEKept{routing, y, inside}
}

// forwardAgain finds what the forward of x did not keep. The balancing loss has been counted already.
func (m *MoELayer) forwardAgain(p *Pass, x *tensor.Tensor, capacity int) *MoEKept {
	routing := m.Router.forward(p, x, capacity, nil)
	y, inside := m.experts(p, x, routing, true)
	return &MoEKept{routing, y, inside}
}

// experts gives their outputs in row order, [slots, hidden], and what is inside, nil unless it is to be kept.
func (m *MoELayer) experts(
	p *Pass, x *tensor.Tensor, routing *routing, keepInside bool,
) (y *tensor.Tensor, kept *inside) {
	inside := m.enter(p, x, routing)
	y = p.Like(inside.rows)
	p.Check(tensor.GroupedGemm(inside.active, m.W2, routing.offsets, y, 0, true))
	if keepInside {
		return y, inside
	}
	inside.free(p)
	return y, nil
}

// enter puts the tokens in row order and runs what their experts make of them before W2.
func (m *MoELayer) enter(p *Pass, x *tensor.Tensor, routing *routing) *inside {
	slots, hidden, ffn := routing.rowSlot.Size(), x.Dim(1), m.W2.Dim(2)
	rows := p.Empty(x.DType(), slots, hidden)
	p.Check(tensor.MoEGather(x, routing.rowSlot, rows))
	gateUp := p.Empty(x.DType(), slots, 2*ffn)
	p.Check(tensor.GroupedGemm(rows, m.W13, routing.offsets, gateUp, 0, true))
	return &inside{rows, gateUp, SwiGLU(p, gateUp)}
}

// Backward gives the gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself.
func (m *MoELayer) Backward(
	p *Pass, dout, x *tensor.Tensor, kept *MoEKept, auxFactor *tensor.Tensor, beta float32,
) *tensor.Tensor {
	routing, y, inside := kept.routing, kept.y, kept.inside
	if inside == nil {
		inside = m.enter(p, x, routing)
	}
	rows, gateUp, active := inside.rows, inside.gateUp, inside.active
	dweights := p.Like(routing.weights)
	dy := y
	p.Check(tensor.MoECombineBackward(dout, y, routing.weights, routing.slotRow, routing.rowSlot, dy, dweights))
	p.Check(tensor.GroupedGemmWGrad(dy, active, routing.offsets, m.W2Grad, beta))
	p.Free(active)
	dactive := p.Empty(dy.DType(), dy.Dim(0), m.W2.Dim(2))
	p.Check(tensor.GroupedGemm(dy, m.W2, routing.offsets, dactive, 0, false))
	p.Free(dy)
	SwiGLUBackward(p, dactive, gateUp)
	p.Free(dactive)
	p.Check(tensor.GroupedGemmWGrad(gateUp, rows, routing.offsets, m.W13Grad, beta))
	drows := rows
	p.Check(tensor.GroupedGemm(gateUp, m.W13, routing.offsets, drows, 0, false))
	dx := p.Like(x)
	p.Check(tensor.MoEGatherBackward(drows, routing.slotRow, dx))
	m.Router.backward(p, routing, dweights, x, dx, auxFactor, beta)
	routing.free(p)
	p.Free(dweights, gateUp, rows)
	return dx
}

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
	if r == nil {
		return
	}
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

// forward routes x [tokens, hidden], and gives x in the order of rows, too; it adds the load-balancing loss to `aux`
// f32 [1] where given.
//
// The logits are f32 in every precision: rounded to 16 bits, experts would tie that are not alike.
func (r *Router) forward(
	p *Pass, x *tensor.Tensor, capacity int, aux *tensor.Tensor,
) (made *routing, rows *tensor.Tensor) {
	tokens, experts := x.Dim(0), r.Gate.Weight.Dim(0)
	logits := r.Gate.Forward(p, x, p.Empty(cuda.F32, tokens, experts))
	made = &routing{
		weights: p.Empty(cuda.F32, tokens, r.K),
		indices: p.Empty(cuda.I32, tokens, r.K),
		probs:   p.Empty(cuda.F32, tokens, experts),
		counts:  p.Empty(cuda.I32, experts),
		offsets: p.Empty(cuda.I32, experts+1),
		slotRow: p.Empty(cuda.I32, tokens, r.K),
		rowSlot: p.Empty(cuda.I32, tokens*r.K),
	}
	rows = p.Empty(x.DType(), tokens*r.K, x.Dim(1))
	p.Check(tensor.MoERoute(logits, x, made.weights, made.indices, made.probs, made.counts, made.offsets, made.slotRow,
		made.rowSlot, rows, aux, r.Norm, int64(capacity), float32(r.Alpha)))
	p.Free(logits)
	return made, rows
}

// backward puts the gradient of the experts' outputs y into their place, from that of the layer's output, and gives that of
// the logits: through the weights and, times auxFactor f32 [1], through the balancing loss.
func (r *Router) backward(p *Pass, taken *routing, dout, y, auxFactor *tensor.Tensor) (dlogits *tensor.Tensor) {
	dweights := p.Like(taken.weights)
	dlogits = p.Empty(y.DType(), taken.probs.Shape()...)
	p.Check(tensor.MoEOutputBackward(dout, y, taken.weights, taken.indices, taken.probs, taken.counts, taken.slotRow,
		taken.rowSlot, auxFactor, y, dweights, dlogits, r.Norm, float32(r.Alpha)))
	p.Free(dweights)
	return dlogits
}

// backwardInput gives the gradient of x from those of the logits, which is freed, and of the rows that x was brought to.
func (r *Router) backwardInput(p *Pass, taken *routing, dlogits, x, drows *tensor.Tensor, beta float32) *tensor.Tensor {
	dx := p.Like(x)
	p.Check(tensor.MoEInputBackward(dlogits, x, r.Gate.Weight, drows, taken.slotRow, dx, r.Gate.Grad, beta))
	p.Free(dlogits)
	return dx
}

// MoELayer is out = residual + sum over a token's experts of weight * W2 (silu(W1 x) * (W3 x)).
//
// Weights: W13 [experts, 2*ffn, hidden] with the rows of W1 before those of W3, W2 [experts, hidden, ffn].
// Tokens are sorted by expert, so that each product runs over all experts at once. (Gale et al. 2022)
//
// With Recompute, what the experts' products take in and give between is not kept but found again by the same calls.
//
// With Parallel, the weights are those of the own experts alone, whose gradients go to the sums of Parallel.
type MoELayer struct {
	Router          *Router
	W13, W2         *tensor.Tensor
	W13Grad, W2Grad *tensor.Tensor
	Recompute       bool
	FP8             bool // whether the experts' products round their factors to 8 bits

	AllRows *AllRows // of a dense network, which has one expert and no Router; nil else
	Network Network  // in place of the weights and AllRows of one whose weights are of another kind; nil else

	Parallel *ExpertParallel // nil where all experts are here
	Index    int             // of the layer in the sums of Parallel
}

// MoEKept is what the backward of a mixture needs of its forward.
type MoEKept struct {
	routing *routing       // nil of a dense network
	y       *tensor.Tensor // [slots, hidden]; nil of a dense network
	inside  *inside        // nil when it is found again, and with Parallel
	served  *Served        // nil when it is found again, and without Parallel
}

func (k *MoEKept) free(p *Pass) {
	k.routing.free(p)
	p.Free(k.y)
	k.inside.free(p)
	k.served.free(p)
}

// inside is what lies between the experts' input and their last product, in row order.
type inside struct {
	rows     *tensor.Tensor // [slots, hidden]
	gateUp   *tensor.Tensor // [slots, 2*ffn]
	gate, up *tensor.Tensor // [slots, ffn] each, of Gated in place of gateUp
	active   *tensor.Tensor // [slots, ffn]
}

func (i *inside) free(p *Pass) {
	if i != nil {
		p.Free(i.rows, i.gateUp, i.gate, i.up, i.active)
	}
}

// ExpertUse is how a call used the experts, for whoever watches the balance.
type ExpertUse struct {
	Counts  *tensor.Tensor // i32 [experts], slots that chose each expert, dropped ones included
	Choices *tensor.Tensor // i32 [tokens, k], experts of each token, most likely first
}

// Close frees the tensors.
func (u ExpertUse) Close() error { return closeAll(u.Counts, u.Choices) }

// expertUse makes what was chosen outlive the pass; nothing of a dense network.
func (k *MoEKept) expertUse(p *Pass) ExpertUse {
	if k.routing == nil {
		return ExpertUse{}
	}
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
	if m.dense() {
		return m.denseForward(p, x, residual, keepInside)
	}
	routing, rows := m.Router.forward(p, x, capacity, aux)
	kept := m.experts(p, rows, routing, keepInside)
	out := p.Like(x)
	p.Check(tensor.MoECombine(kept.y, kept.routing.weights, kept.routing.slotRow, residual, out))
	return out, kept
}

// forwardAgain finds what the forward of x did not keep. The balancing loss has been counted already.
func (m *MoELayer) forwardAgain(p *Pass, x *tensor.Tensor, capacity int) *MoEKept {
	if m.dense() {
		return m.denseAgain(p, x)
	}
	routing, rows := m.Router.forward(p, x, capacity, nil)
	return m.experts(p, rows, routing, true)
}

// experts gives their outputs of rows in their order, and what is inside if it is to be kept.
func (m *MoELayer) experts(p *Pass, rows *tensor.Tensor, routing *routing, keepInside bool) *MoEKept {
	kept := &MoEKept{routing: routing}
	if m.Parallel != nil {
		kept.y = rows
		kept.served = m.runAll(p, rows, routing.offsets, keepInside)
	} else {
		kept.inside = m.beforeW2(p, rows, routing.offsets)
		kept.y = p.Like(rows)
		m.outputs(p, kept.inside.active, routing.offsets, kept.y)
	}
	if !keepInside {
		kept.inside.free(p)
		kept.inside = nil
	}
	return kept
}

// gather puts the tokens in row order, [slots, hidden].
func gather(p *Pass, x *tensor.Tensor, routing *routing) *tensor.Tensor {
	rows := p.Empty(x.DType(), routing.rowSlot.Size(), x.Dim(1))
	p.Check(tensor.MoEGather(x, routing.rowSlot, rows))
	return rows
}

// beforeW2 runs rows in the order of experts through what these do before W2.
func (m *MoELayer) beforeW2(p *Pass, rows, offsets *tensor.Tensor) *inside {
	gateUp := p.Empty(rows.DType(), rows.Dim(0), m.W13.Dim(1))
	active := p.Empty(rows.DType(), rows.Dim(0), m.W13.Dim(1)/2)
	m.gated(p, rows, offsets, gateUp, active)
	return &inside{rows: rows, gateUp: gateUp, active: active}
}

// Backward gives the gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself.
func (m *MoELayer) Backward(
	p *Pass, dout, x *tensor.Tensor, kept *MoEKept, auxFactor *tensor.Tensor, beta float32,
) *tensor.Tensor {
	if m.dense() {
		return m.denseBackward(p, dout, x, kept, beta)
	}
	routing, y, inside, served := kept.routing, kept.y, kept.inside, kept.served
	if inside == nil && served == nil {
		rows := gather(p, x, routing)
		if m.Parallel != nil {
			served = m.arrive(p, rows, routing.offsets)
		} else {
			inside = m.beforeW2(p, rows, routing.offsets)
		}
	}
	dlogits, dy := m.Router.backward(p, routing, dout, y, auxFactor), y
	var drows *tensor.Tensor
	if served != nil {
		m.backwardAll(p, served, dy, routing.offsets)
		drows = dy
	} else {
		m.productsBackward(p, dy, inside, routing.offsets, m.W13Grad, m.W2Grad, beta)
		drows = inside.rows
	}
	dx := m.Router.backwardInput(p, routing, dlogits, x, drows, beta)
	routing.free(p)
	inside.free(p)
	p.Free(drows)
	return dx
}

// productsBackward gives the gradients of the experts' matrices, and, in place of the rows, that of the rows, from that
// of the outputs dy, which is freed, all in the order of experts. Of what is inside, gateUp is spent, and active freed.
func (m *MoELayer) productsBackward(
	p *Pass, dy *tensor.Tensor, inside *inside, offsets, w13Grad, w2Grad *tensor.Tensor, beta float32,
) {
	m.weightGradient(p, dy, inside.active, offsets, w2Grad, beta)
	p.Free(inside.active)
	m.innerGradient(p, dy, offsets, inside.gateUp)
	p.Free(dy)
	m.weightGradient(p, inside.gateUp, inside.rows, offsets, w13Grad, beta)
	m.rowsGradient(p, inside.gateUp, offsets, inside.rows)
}

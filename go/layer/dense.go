package layer

import (
	"maps"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// AllRows says for products that run over experts that all rows are of one, the first. It must be closed.
type AllRows struct{ offsets map[int]*tensor.Tensor }

// Offsets gives 0 and the number of rows, i32 [2]; made once, so that a captured step finds it.
func (a *AllRows) Offsets(p *Pass, rows int) *tensor.Tensor {
	if found := a.offsets[rows]; found != nil {
		return found
	}
	made := p.Empty(cuda.I32, 2)
	p.Check(tensor.Write(made, []int32{0, int32(rows)}))
	if p.Err() == nil {
		if a.offsets == nil {
			a.offsets = make(map[int]*tensor.Tensor)
		}
		a.offsets[rows] = p.Keep(made)
	}
	return made
}

// Close frees what was made. Closing nil is fine.
func (a *AllRows) Close() error {
	if a == nil {
		return nil
	}
	err := closeAll(slices.Collect(maps.Values(a.offsets))...)
	a.offsets = nil
	return err
}

// The dense network is out = residual + W2 (silu(W1 x) * (W3 x)), one SwiGLU for all tokens: a layer with one expert and no
// router, by the same products, or one whose weights are of another kind. (Shazeer 2020, "GLU Variants", eq. 6)

// Network is a dense network whose weights are of another kind: Gated or TernaryNetwork.
type Network interface {
	// inside gives what lies between the products of x [tokens, hidden].
	inside(p *Pass, x *tensor.Tensor) *inside
	// outputs takes active [tokens, ffn] to [tokens, hidden].
	outputs(p *Pass, active *tensor.Tensor) *tensor.Tensor
	// backward gives the gradient of x from dout, both [tokens, hidden], and frees what lies between.
	backward(p *Pass, dout, x *tensor.Tensor, inside *inside, beta float32) *tensor.Tensor
}

// dense reports whether the layer is such a one.
func (m *MoELayer) dense() bool { return m.AllRows != nil || m.Network != nil }

// denseForward takes x and residual [tokens, hidden] to the same shape.
func (m *MoELayer) denseForward(p *Pass, x, residual *tensor.Tensor, keepInside bool) (*tensor.Tensor, *MoEKept) {
	kept := m.denseAgain(p, x)
	var out *tensor.Tensor
	if m.Network != nil {
		out = m.Network.outputs(p, kept.inside.active)
	} else {
		out = p.Like(x)
		m.outputs(p, kept.inside.active, m.AllRows.Offsets(p, x.Dim(0)), out)
	}
	p.Check(tensor.Add(out, residual, out))
	if !keepInside {
		kept.inside.free(p)
		kept.inside = nil
	}
	return out, kept
}

// denseAgain gives what denseBackward needs of x.
func (m *MoELayer) denseAgain(p *Pass, x *tensor.Tensor) *MoEKept {
	if m.Network != nil {
		return &MoEKept{inside: m.Network.inside(p, x)}
	}
	inside := m.beforeW2(p, x, m.AllRows.Offsets(p, x.Dim(0)))
	inside.rows = nil // which are x itself, and the caller's
	return &MoEKept{inside: inside}
}

// denseBackward gives the gradient of x from dout, both [tokens, hidden].
func (m *MoELayer) denseBackward(p *Pass, dout, x *tensor.Tensor, kept *MoEKept, beta float32) *tensor.Tensor {
	inside := kept.inside
	if inside == nil {
		inside = m.denseAgain(p, x).inside
	}
	if m.Network != nil {
		return m.Network.backward(p, dout, x, inside, beta)
	}
	offsets := m.AllRows.Offsets(p, x.Dim(0))
	m.weightGradient(p, dout, inside.active, offsets, m.W2Grad, beta)
	p.Free(inside.active)
	m.innerGradient(p, dout, offsets, inside.gateUp)
	m.weightGradient(p, inside.gateUp, x, offsets, m.W13Grad, beta)
	dx := p.Like(x)
	m.rowsGradient(p, inside.gateUp, offsets, dx)
	p.Free(inside.gateUp)
	return dx
}

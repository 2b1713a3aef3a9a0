package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// LowRank is what is trained beside a weight [out, in]: A f32 [rank, in] and B f32 [out, rank], whose product, times Scale, is
// added to it. (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
type LowRank struct {
	A, B, AGrad, BGrad *tensor.Tensor
	Scale              float32
}

// inner is x A^T.
func (l *LowRank) inner(p *Pass, x *tensor.Tensor) *tensor.Tensor {
	made := p.Empty(cuda.F32, x.Dim(0), l.A.Dim(0))
	p.Check(tensor.Gemm(x, l.A, made, false, true))
	return made
}

// add is y += Scale (x A^T) B^T.
func (l *LowRank) add(p *Pass, x, y *tensor.Tensor) {
	inner := l.inner(p, x)
	p.Check(tensor.GemmBeta(inner, l.B, y, l.Scale, 1, false, true))
	p.Free(inner)
}

// backward adds to the gradients of both, times `beta`, those of this call; it gives Scale (dy B) [rows, rank], whose product
// with A is the gradient of x. What A makes of x is found again: little work for much memory.
func (l *LowRank) backward(p *Pass, dy, x *tensor.Tensor, beta float32) *tensor.Tensor {
	inner := l.inner(p, x)
	p.Check(tensor.GemmBeta(dy, inner, l.BGrad, l.Scale, beta, true, false))
	p.Free(inner)
	dinner := p.Empty(cuda.F32, dy.Dim(0), l.A.Dim(0))
	p.Check(tensor.GemmBeta(dy, l.B, dinner, l.Scale, 0, false, false))
	p.Check(tensor.GemmBeta(dinner, x, l.AGrad, 1, beta, true, false))
	return dinner
}

// FrozenLinear is y = x W^T, or x W^T + b, and what an adapter adds, for a weight that stays as it is stored: u8 [out, row
// bytes] in Format. x, y and the bias are f32. Only the adapter, nil where there is none, has gradients.
//
// The product is that of the engine, which for some formats rounds x, so that an adapter is trained for the model as it is
// run; backward takes that rounding as the identity. (Bengio, Léonard, Courville 2013, "Estimating or Propagating Gradients
// Through Stochastic Neurons", section 4)
//
// With Scale, f32 [out], Weight is ternary, packed u8 [stored, row bytes]; there is no bias then, and Format says nothing.
type FrozenLinear struct {
	Weight  *tensor.Tensor
	Format  cuda.Format
	Scale   *tensor.Tensor
	Bias    *tensor.Tensor
	LowRank *LowRank
}

// Forward takes x [rows, in] to y [rows, out], which may be given.
func (l *FrozenLinear) Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor {
	if y == nil {
		y = p.Empty(x.DType(), x.Dim(0), l.outputs())
	}
	if l.Scale != nil {
		p.Check(tensor.BitLinearNorm(x, nil, l.Weight, l.Scale, nil, y, 0))
	} else {
		p.Check(tensor.GemmQuant(x, l.Weight, nil, l.Bias, nil, y, cuda.ActivationNone, l.Format))
	}
	if l.LowRank != nil {
		l.LowRank.add(p, x, y)
	}
	return y
}

func (l *FrozenLinear) outputs() int {
	if l.Scale != nil {
		return l.Scale.Dim(0)
	}
	return l.Weight.Dim(0)
}

// Backward is that of Linear; weight and bias have no gradients.
func (l *FrozenLinear) Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor {
	return l.backward(p, dy, x, dx, beta, 0)
}

// BackwardAdding is Backward that adds the gradient of x to the dx that is there.
func (l *FrozenLinear) BackwardAdding(p *Pass, dy, x, dx *tensor.Tensor, beta float32) {
	l.backward(p, dy, x, dx, beta, 1)
}

func (l *FrozenLinear) backward(p *Pass, dy, x, dx *tensor.Tensor, beta, old float32) *tensor.Tensor {
	var dinner *tensor.Tensor
	if l.LowRank != nil {
		dinner = l.LowRank.backward(p, dy, x, beta)
	}
	if dx == nil {
		dx = p.Like(x)
	}
	if l.Scale != nil {
		p.Check(tensor.BitLinearBackward(dy, l.Weight, l.Scale, dx, old))
	} else {
		p.Check(tensor.GemmQuantBackward(dy, l.Weight, nil, dx, old, l.Format))
	}
	if l.LowRank != nil {
		p.Check(tensor.GemmBeta(dinner, l.LowRank.A, dx, 1, 1, false, false))
		p.Free(dinner)
	}
	return dx
}

// NormedProjection is a product with a norm of its rows before it: that of a BitNet's projections back to the stream. The norm
// is made again in the backward direction, where it takes little beside the product.
type NormedProjection struct {
	Norm *RMSNorm
	Of   Projection
}

// Forward takes x [rows, in] to y [rows, out], or to the y that is given.
func (n *NormedProjection) Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor {
	normed := n.Norm.Forward(p, x)
	y = n.Of.Forward(p, normed, y)
	p.Free(normed)
	return y
}

// Backward gives the gradient of x [rows, in] from dy [rows, out], into a dx that may be given.
func (n *NormedProjection) Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor {
	normed, rstd := n.Norm.ForwardKeeping(p, x)
	dx = n.Of.Backward(p, dy, normed, dx, beta)
	p.Free(normed)
	return n.Norm.Backward(p, dx, x, rstd, nil)
}

// Gated is a feed-forward network whose weights stay as they are stored: out = residual + Down (silu(Gate x) * (Up x)), or with
// max(Gate x, 0)^2 in place of the SiLU. (Shazeer 2020, "GLU Variants", eq. 6; Ma et al. 2025, "BitNet b1.58 2B4T Technical
// Report", section 2)
type Gated struct {
	Gate, Up    *FrozenLinear
	Down        Projection
	SquaredReLU bool
}

func (g *Gated) inside(p *Pass, x *tensor.Tensor) *inside {
	made := &inside{gate: g.Gate.Forward(p, x, nil), up: g.Up.Forward(p, x, nil)}
	made.active = p.Like(made.gate)
	gated(p, g.SquaredReLU, made.gate, made.up, made.active)
	return made
}

func (g *Gated) outputs(p *Pass, active *tensor.Tensor) *tensor.Tensor {
	return g.Down.Forward(p, active, nil)
}

func (g *Gated) backward(p *Pass, dout, x *tensor.Tensor, inside *inside, beta float32) *tensor.Tensor {
	dactive := g.Down.Backward(p, dout, inside.active, nil, beta)
	gatedBackward(p, g.SquaredReLU, dactive, inside.gate, inside.up)
	p.Free(dactive)
	dx := g.Gate.Backward(p, inside.gate, x, nil, beta)
	g.Up.BackwardAdding(p, inside.up, x, dx, beta)
	inside.free(p)
	return dx
}

package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/tensor"
)

// TernaryLinear is y = x W^T with the bits of the engine, of weights -1, 0 and 1 times a number, made anew from their master
// weights f32 [out, in] whenever they are used. The rows of several matrices may lie one below the other, Heights of them
// each, with a scale each. With Norm rows are normed before they are rounded to 8 bits.
//
// Both roundings count as the identity in the backward direction: the gradient of a product goes to the master weights as if
// it had taken them, with the rows and the weights that it did take. (Bengio, Léonard, Courville 2013, "Estimating or
// Propagating Gradients Through Stochastic Neurons", section 4; Ma et al. 2024, "The Era of 1-bit LLMs", section 2; Ma et al.
// 2025, "BitNet b1.58 2B4T Technical Report", section 2)
type TernaryLinear struct {
	Weight, Grad *tensor.Tensor
	Heights      []int
	Norm         *RMSNorm // or nil
}

// Forward takes x [rows, in] to y [rows, out], or to the y that is given.
func (l *TernaryLinear) Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor {
	if y == nil {
		y = p.Empty(x.DType(), x.Dim(0), l.Weight.Dim(0))
	}
	var gain *tensor.Tensor
	var eps float32
	if l.Norm != nil {
		gain, eps = l.Norm.Weight, float32(l.Norm.Eps)
	}
	packed, scale := l.rounded(p)
	p.Check(tensor.BitLinearNorm(x, gain, packed, scale, nil, y, eps))
	p.Free(packed, scale)
	return y
}

// Backward gives the gradient of x [rows, in] from dy [rows, out]; a dx may be given. What the product made of both factors is
// made again: that takes little beside the products, and less memory. The master weights' gradient is added to `beta` times
// what is there.
func (l *TernaryLinear) Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor {
	normed, rstd := x, (*tensor.Tensor)(nil)
	if l.Norm != nil {
		normed, rstd = l.Norm.ForwardKeeping(p, x)
	}
	codes, scale, taken := p.Empty(cuda.I8, x.Shape()...), p.Empty(cuda.F32, x.Dim(0)), p.Like(x)
	p.Check(tensor.ActQuantI8(normed, codes, scale))
	p.Check(tensor.ActDequantI8(codes, scale, taken))
	p.Free(codes, scale)
	if l.Norm != nil {
		p.Free(normed)
	}
	p.Check(tensor.GemmBeta(dy, taken, l.Grad, 1, beta, true, false))
	p.Free(taken)
	if dx == nil {
		dx = p.Like(x)
	}
	packed, scales := l.rounded(p)
	p.Check(tensor.BitLinearBackward(dy, packed, scales, dx, 0))
	p.Free(packed, scales)
	if l.Norm != nil {
		l.Norm.Backward(p, dx, x, rstd, nil)
	}
	return dx
}

// rounded gives the weights of this moment, packed, and the scale of each output.
func (l *TernaryLinear) rounded(p *Pass) (packed, scale *tensor.Tensor) {
	rows, columns := l.Weight.Dim(0), l.Weight.Dim(1)
	codes, scales := p.Empty(cuda.I8, rows, columns), p.Empty(cuda.F32, len(l.Heights), 1)
	owner := p.Empty(cuda.I32, rows) // which matrix an output is of
	first := 0
	for matrix, height := range l.Heights {
		part, one := p.Narrow(codes, 0, first, height), p.View(p.Narrow(scales, 0, matrix, 1), 1)
		p.Check(tensor.TernaryQuantize(p.Narrow(l.Weight, 0, first, height), part, one))
		p.Check(tensor.Fill(p.Narrow(owner, 0, first, height), float32(matrix)))
		first += height
	}
	stored, rowBytes := ternary.Tern2Shape(rows, columns)
	packed, scale = p.Empty(cuda.U8, stored, rowBytes), p.Empty(cuda.F32, rows)
	p.Check(tensor.TernaryPack(codes, packed))
	p.Check(tensor.Embedding(scales, owner, p.View(scale, rows, 1)))
	p.Free(codes, scales, owner)
	return packed, scale
}

// TernaryNetwork is the inside of out = residual + W2 norm(max(W1 x, 0)^2 * (W3 x)), or with silu(W1 x) in place of the squared
// ReLU.
type TernaryNetwork struct {
	GateUp      *TernaryLinear // with W1 and W3, one below the other, of rows that are normed
	Down        *TernaryLinear // with W2, which has the norm
	SquaredReLU bool
}

func (n *TernaryNetwork) inside(p *Pass, x *tensor.Tensor) *inside {
	made := &inside{gateUp: n.GateUp.Forward(p, x, nil)}
	gate, up := halves(p, made.gateUp)
	made.active = p.Empty(x.DType(), x.Dim(0), gate.Dim(1))
	gated(p, n.SquaredReLU, gate, up, made.active)
	return made
}

func (n *TernaryNetwork) outputs(p *Pass, active *tensor.Tensor) *tensor.Tensor {
	return n.Down.Forward(p, active, nil)
}

func (n *TernaryNetwork) backward(p *Pass, dout, x *tensor.Tensor, kept *inside, beta float32) *tensor.Tensor {
	dactive := n.Down.Backward(p, dout, kept.active, nil, beta)
	p.Free(kept.active)
	gate, up := halves(p, kept.gateUp)
	gatedBackward(p, n.SquaredReLU, dactive, gate, up)
	p.Free(dactive)
	dx := n.GateUp.Backward(p, kept.gateUp, x, nil, beta)
	p.Free(kept.gateUp)
	return dx
}

// gated makes gate and up one: silu(gate) * up, or max(gate, 0)^2 * up.
func gated(p *Pass, squaredReLU bool, gate, up, active *tensor.Tensor) {
	if squaredReLU {
		p.Check(tensor.ReLU2Gate(gate, up, active))
	} else {
		p.Check(tensor.SwiGLU(gate, up, nil, active))
	}
}

// gatedBackward puts the gradients of gate and up in their places.
func gatedBackward(p *Pass, squaredReLU bool, dactive, gate, up *tensor.Tensor) {
	if squaredReLU {
		p.Check(tensor.ReLU2GateBackward(dactive, gate, up, gate, up))
	} else {
		p.Check(tensor.SwiGLUBackward(dactive, gate, up, nil, gate, up))
	}
}

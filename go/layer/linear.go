package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// Projection is a product with a weight: trained, as it is stored, or ternary.
type Projection interface {
	// Forward takes x [rows, in] to y [rows, out], or to the y that is given.
	Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor
	// Backward gives the gradient of x [rows, in] from dy [rows, out], into a dx that may be given.
	Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor
}

// AddingProjection is one whose backward can add to what is there.
type AddingProjection interface {
	Projection
	// BackwardAdding adds the gradient of x to the dx that is there.
	BackwardAdding(p *Pass, dy, x, dx *tensor.Tensor, beta float32)
}

// Linear is y = x W^T, or x W^T + b, for a weight [out, in] and a bias [out], which is nil where there is none.
type Linear struct {
	Weight, Grad   *tensor.Tensor
	Bias, BiasGrad *tensor.Tensor
}

// Forward takes x [rows, in] to y [rows, out] of the same dtype, or to the y that is given, whose dtype may be f32 where
// there is no bias.
func (l *Linear) Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor {
	if y == nil {
		y = p.Empty(x.DType(), x.Dim(0), l.Weight.Dim(0))
	}
	if l.Bias != nil {
		p.Check(tensor.GemmEpilogue(x, l.Weight, l.Bias, nil, y, cuda.ActivationNone))
		return y
	}
	p.Check(tensor.Gemm(x, l.Weight, y, false, true))
	return y
}

// Backward gives the gradient of x [rows, in] from dy [rows, out]. A dx may be given; it may be x itself, whose values
// are then spent. The weight's gradient is added to `beta` times what is there, the bias's always to what is there, as gains'
// are.
func (l *Linear) Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor {
	p.Check(tensor.GemmBeta(dy, x, l.Grad, 1, beta, true, false))
	if l.BiasGrad != nil {
		ones := p.Empty(dy.DType(), 1, dy.Dim(0)) // a product with which adds columns up, in f32
		p.Check(tensor.Fill(p.View(ones, dy.Dim(0)), 1))
		p.Check(tensor.GemmBeta(ones, dy, p.View(l.BiasGrad, 1, dy.Dim(1)), 1, 1, false, false))
		p.Free(ones)
	}
	if dx == nil {
		dx = p.Empty(dy.DType(), dy.Dim(0), l.Weight.Dim(1))
	}
	p.Check(tensor.Gemm(dy, l.Weight, dx, false, false))
	return dx
}

// BackwardAdding is Backward of a layer without a bias that adds the gradient of x to the dx that is there.
func (l *Linear) BackwardAdding(p *Pass, dy, x, dx *tensor.Tensor, beta float32) {
	p.Check(tensor.GemmBeta(dy, x, l.Grad, 1, beta, true, false))
	p.Check(tensor.GemmBeta(dy, l.Weight, dx, 1, 1, false, false))
}

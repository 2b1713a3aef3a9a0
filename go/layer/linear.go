package layer

import "github.com/nncuda/nncuda/go/tensor"

// Linear is y = x W^T for a weight [out, in], without a bias.
type Linear struct {
	Weight, Grad *tensor.Tensor
}

// Forward takes x [rows, in] to y [rows, out] of the same dtype, or to the y that is given, whose dtype may be f32.
func (l *Linear) Forward(p *Pass, x, y *tensor.Tensor) *tensor.Tensor {
	if y == nil {
		y = p.Empty(x.DType(), x.Dim(0), l.Weight.Dim(0))
	}
	p.Check(tensor.Gemm(x, l.Weight, y, false, true))
	return y
}

// Backward gives the gradient of x [rows, in] from dy [rows, out]. A dx may be given; it may be x itself, whose values
// are then spent.
func (l *Linear) Backward(p *Pass, dy, x, dx *tensor.Tensor, beta float32) *tensor.Tensor {
	p.Check(tensor.GemmBeta(dy, x, l.Grad, 1, beta, true, false))
	if dx == nil {
		dx = p.Empty(dy.DType(), dy.Dim(0), l.Weight.Dim(1))
	}
	p.Check(tensor.Gemm(dy, l.Weight, dx, false, false))
	return dx
}

package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// RMSNorm is y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)
type RMSNorm struct {
	Weight, Grad *tensor.Tensor
	Eps          float64
}

// Forward takes x [rows, cols] to y.
func (n *RMSNorm) Forward(p *Pass, x *tensor.Tensor) *tensor.Tensor {
	y := p.Like(x)
	p.Check(tensor.RMSNorm(x, n.Weight, y, nil, float32(n.Eps)))
	return y
}

// ForwardKeeping is Forward with what Backward needs, the reciprocal of each row's deviation.
func (n *RMSNorm) ForwardKeeping(p *Pass, x *tensor.Tensor) (y, rstd *tensor.Tensor) {
	y, rstd = p.Like(x), p.Empty(cuda.F32, x.Dim(0))
	p.Check(tensor.RMSNorm(x, n.Weight, y, rstd, float32(n.Eps)))
	return y, rstd
}

// ForwardResidual gives the norm of the sum x + residual, which takes the place of x.
func (n *RMSNorm) ForwardResidual(p *Pass, x, residual *tensor.Tensor) *tensor.Tensor {
	y := p.Like(x)
	p.Check(tensor.RMSNormResidual(x, residual, n.Weight, x, y, nil, float32(n.Eps)))
	return y
}

// ForwardResidualKeeping is ForwardResidual with what Backward needs.
func (n *RMSNorm) ForwardResidualKeeping(p *Pass, x, residual *tensor.Tensor) (y, rstd *tensor.Tensor) {
	y, rstd = p.Like(x), p.Empty(cuda.F32, x.Dim(0))
	p.Check(tensor.RMSNormResidual(x, residual, n.Weight, x, y, rstd, float32(n.Eps)))
	return y, rstd
}

// Backward gives the gradient of x, plus `dresidual` if given; it takes the place of dy. It frees rstd.
func (n *RMSNorm) Backward(p *Pass, dy, x, rstd, dresidual *tensor.Tensor) *tensor.Tensor {
	p.Check(tensor.RMSNormBackward(dy, x, n.Weight, rstd, dresidual, dy, n.Grad))
	p.Free(rstd)
	return dy
}

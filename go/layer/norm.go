package layer

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// RMSNorm is y = x / sqrt(mean(x^2) + eps) * weight, row by row. (Zhang, Sennrich 2019, eq. 4)
type RMSNorm struct {
	Weight, Grad *tensor.Tensor
	Eps          float64

	rstd *tensor.Tensor
}

// Forward takes x [rows, cols] to y; `keep` prepares for Backward.
func (n *RMSNorm) Forward(p *Pass, x *tensor.Tensor, keep bool) *tensor.Tensor {
	y := p.Like(x)
	p.Check(tensor.RMSNorm(x, n.Weight, y, n.keep(p, x, keep), float32(n.Eps)))
	return y
}

// ForwardResidual gives the sum x + residual, which takes the place of x, and its norm.
func (n *RMSNorm) ForwardResidual(p *Pass, x, residual *tensor.Tensor, keep bool) (sum, y *tensor.Tensor) {
	y = p.Like(x)
	p.Check(tensor.RMSNormResidual(x, residual, n.Weight, x, y, n.keep(p, x, keep), float32(n.Eps)))
	return x, y
}

func (n *RMSNorm) keep(p *Pass, x *tensor.Tensor, keep bool) *tensor.Tensor {
	if !keep {
		return nil
	}
	n.rstd = p.Empty(cuda.F32, x.Dim(0))
	return n.rstd
}

// Backward gives the gradient of x, plus `dresidual` if given; it takes the place of dy.
func (n *RMSNorm) Backward(p *Pass, dy, x, dresidual *tensor.Tensor) *tensor.Tensor {
	p.Check(tensor.RMSNormBackward(dy, x, n.Weight, n.rstd, dresidual, dy, n.Grad))
	p.Free(n.rstd)
	n.rstd = nil
	return dy
}

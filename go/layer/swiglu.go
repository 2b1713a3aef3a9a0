package layer

import "github.com/nncuda/nncuda/go/tensor"

// SwiGLU is silu(gate) * up of the halves of a fused product [rows, 2*ffn]. (Shazeer 2020, eq. 6)
func SwiGLU(p *Pass, gateUp *tensor.Tensor) *tensor.Tensor {
	gate, up := halves(p, gateUp)
	y := p.Empty(gateUp.DType(), gate.Shape()...)
	p.Check(tensor.SwiGLU(gate, up, y))
	return y
}

// SwiGLUBackward puts the gradients of the two halves in their places, from dy [rows, ffn].
func SwiGLUBackward(p *Pass, dy, gateUp *tensor.Tensor) {
	gate, up := halves(p, gateUp)
	p.Check(tensor.SwiGLUBackward(dy, gate, up, gate, up))
}

func halves(p *Pass, gateUp *tensor.Tensor) (gate, up *tensor.Tensor) {
	ffn := gateUp.Dim(1) / 2
	return p.Narrow(gateUp, 1, 0, ffn), p.Narrow(gateUp, 1, ffn, ffn)
}

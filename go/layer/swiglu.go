package layer

import "github.com/nncuda/nncuda/go/tensor"

// SwiGLU is silu(gate) * up of the halves of a fused product [rows, 2*ffn] of experts, of whose rows the last of `offsets`
// says how many there are: the rest is only room. (Shazeer 2020, eq. 6)
func SwiGLU(p *Pass, gateUp, offsets *tensor.Tensor) *tensor.Tensor {
	gate, up := halves(p, gateUp)
	y := p.Empty(gateUp.DType(), gate.Shape()...)
	p.Check(tensor.SwiGLU(gate, up, used(p, offsets), y))
	return y
}

// SwiGLUBackward puts the gradients of the two halves in their places, from dy [rows, ffn].
func SwiGLUBackward(p *Pass, dy, gateUp, offsets *tensor.Tensor) {
	gate, up := halves(p, gateUp)
	p.Check(tensor.SwiGLUBackward(dy, gate, up, used(p, offsets), gate, up))
}

func used(p *Pass, offsets *tensor.Tensor) *tensor.Tensor {
	return p.Narrow(offsets, 0, offsets.Dim(0)-1, 1)
}

func halves(p *Pass, gateUp *tensor.Tensor) (gate, up *tensor.Tensor) {
	ffn := gateUp.Dim(1) / 2
	return p.Narrow(gateUp, 1, 0, ffn), p.Narrow(gateUp, 1, ffn, ffn)
}

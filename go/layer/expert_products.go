package layer

import "github.com/nncuda/nncuda/go/tensor"

// The products of experts: of rows in the order of experts, in their dtype, or with FP8 of factors that are rounded to
// 8 bits as they are multiplied, where all else, the gate between products too, is as it was.
// (Gale et al. 2022, "MegaBlocks"; DeepSeek-AI 2024, "DeepSeek-V3", 3.3)

// gated gives what rows become before W2: gate and up side by side, and silu(gate) * up.
func (m *MoELayer) gated(p *Pass, rows, offsets, gateUp, active *tensor.Tensor) {
	if !m.FP8 {
		p.Check(tensor.GroupedGemmSwiGLU(rows, m.W13, offsets, gateUp, active))
		return
	}
	p.Check(tensor.GroupedGemmFP8(rows, m.W13, offsets, gateUp, true))
	gate, up, used := gateParts(p, gateUp, offsets)
	p.Check(tensor.SwiGLU(gate, up, used, active))
}

// outputs gives those of the experts, of the order and shape of their rows.
func (m *MoELayer) outputs(p *Pass, active, offsets, y *tensor.Tensor) {
	if m.FP8 {
		p.Check(tensor.GroupedGemmFP8(active, m.W2, offsets, y, true))
	} else {
		p.Check(tensor.GroupedGemm(active, m.W2, offsets, y, 0, true))
	}
}

// innerGradient puts into the place of gate and up their gradients, from that of the outputs.
func (m *MoELayer) innerGradient(p *Pass, dy, offsets, gateUp *tensor.Tensor) {
	if !m.FP8 {
		p.Check(tensor.GroupedGemmSwiGLUBackward(dy, m.W2, offsets, gateUp))
		return
	}
	dactive := p.Empty(dy.DType(), dy.Dim(0), m.W2.Dim(2))
	p.Check(tensor.GroupedGemmFP8(dy, m.W2, offsets, dactive, false))
	gate, up, used := gateParts(p, gateUp, offsets)
	p.Check(tensor.SwiGLUBackward(dactive, gate, up, used, gate, up))
	p.Free(dactive)
}

// rowsGradient gives that of the rows from that of gate and up.
func (m *MoELayer) rowsGradient(p *Pass, gateUp, offsets, rows *tensor.Tensor) {
	if m.FP8 {
		p.Check(tensor.GroupedGemmFP8(gateUp, m.W13, offsets, rows, false))
	} else {
		p.Check(tensor.GroupedGemm(gateUp, m.W13, offsets, rows, 0, false))
	}
}

// weightGradient adds that of matrices that took rows x to what dy is the gradient of, to beta times grad.
func (m *MoELayer) weightGradient(p *Pass, dy, x, offsets, grad *tensor.Tensor, beta float32) {
	if m.FP8 {
		p.Check(tensor.GroupedGemmWGradFP8(dy, x, offsets, grad, beta))
	} else {
		p.Check(tensor.GroupedGemmWGrad(dy, x, offsets, grad, beta))
	}
}

// gateParts are the halves of gate and up, and how many rows there are, [1].
func gateParts(p *Pass, gateUp, offsets *tensor.Tensor) (gate, up, used *tensor.Tensor) {
	gate, up = halves(p, gateUp)
	return gate, up, p.Narrow(offsets, 0, offsets.Size()-1, 1)
}

// halves are gate and up, views of their common product [rows, 2*ffn].
func halves(p *Pass, gateUp *tensor.Tensor) (gate, up *tensor.Tensor) {
	ffn := gateUp.Dim(1) / 2
	return p.Narrow(gateUp, 1, 0, ffn), p.Narrow(gateUp, 1, ffn, ffn)
}

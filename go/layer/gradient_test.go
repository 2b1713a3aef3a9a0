package layer_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// block is a block with random weights, and the values that its gradients are taken of.
type block struct {
	layer.TransformerBlock
	weights, grads []*tensor.Tensor
}

const (
	hidden, heads, kvHeads, headDim, experts, chosen, ffn = 16, 2, 1, 8, 3, 2, 12
	batch, length                                         = 2, 5
)

func newBlock(t testing.TB, ctx *cuda.Context, random *rand.Rand) *block {
	t.Helper()
	made := &block{}
	pair := func(shape ...int) (weight, grad *tensor.Tensor) {
		size := 1
		for _, extent := range shape {
			size *= extent
		}
		weight = floats(t, ctx, random, size, 0.4, shape...)
		grad = must.Get(tensor.Zeros(ctx, cuda.F32, shape...))(t)
		made.weights, made.grads = append(made.weights, weight), append(made.grads, grad)
		return weight, grad
	}
	linear := func(shape ...int) *layer.Linear {
		weight, grad := pair(shape...)
		return &layer.Linear{Weight: weight, Grad: grad}
	}
	norm := func() *layer.RMSNorm {
		weight, grad := pair(hidden)
		return &layer.RMSNorm{Weight: weight, Grad: grad, Eps: 1e-5}
	}
	rope := &layer.RopeTables{HeadDim: headDim, Base: 100, NTKAlpha: 1}
	t.Cleanup(func() { _ = rope.Close() })
	made.InputNorm, made.PostNorm = norm(), norm()
	made.Attention = &layer.MQAttention{
		QKV: linear((heads+2*kvHeads)*headDim, hidden), Output: linear(hidden, heads*headDim), Rope: rope,
		Heads: heads, KVHeads: kvHeads,
	}
	made.MoE = &layer.MoELayer{Router: &layer.Router{Gate: linear(experts, hidden), K: chosen, Norm: true, Alpha: 0.5}}
	made.MoE.W13, made.MoE.W13Grad = pair(experts, 2*ffn, hidden)
	made.MoE.W2, made.MoE.W2Grad = pair(experts, hidden, ffn)
	return made
}

func floats(t testing.TB, ctx *cuda.Context, random *rand.Rand, size int, scale float64, shape ...int) *tensor.Tensor {
	t.Helper()
	values := make([]float32, size)
	for at := range values {
		values[at] = float32(random.NormFloat64() * scale)
	}
	made := must.Get(tensor.From(ctx, values, shape...))(t)
	return made
}

func read(t testing.TB, from *tensor.Tensor) []float32 {
	t.Helper()
	values := must.Get(tensor.Read[float32](from))(t)
	return values
}

// TestBlockGradients compares the gradients of sum(direction * out) + balancing loss, by the block's input and by every
// weight, with the slope between two steps along a random direction.
func TestBlockGradients(t *testing.T) {
	ctx, random := newContext(t), rand.New(rand.NewPCG(1, 2))
	made := newBlock(t, ctx, random)
	x := floats(t, ctx, random, batch*length*hidden, 1, batch*length, hidden)
	direction := floats(t, ctx, random, batch*length*hidden, 1, batch*length, hidden)
	towards := read(t, direction)
	// Both forward passes route alike only while the choice of experts does, which a small step does not change.
	loss := func() float64 {
		var total float64
		run(t, ctx, func(p *layer.Pass) {
			aux := p.Empty(cuda.F32, 1)
			p.Check(aux.Zero())
			input := p.Like(x)
			p.Check(input.Copy(x))
			out, use, _ := made.ForwardKeeping(p, input, batch, nil, 0, aux)
			for at, value := range read(t, out) {
				total += float64(value) * float64(towards[at])
			}
			total += float64(read(t, aux)[0])
			p.Check(use.Close())
		})
		return total
	}
	var dx []float32
	run(t, ctx, func(p *layer.Pass) {
		aux, scale := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1)
		p.Check(aux.Zero())
		p.Check(tensor.Fill(scale, 1))
		input, dout := p.Like(x), p.Like(x)
		p.Check(input.Copy(x))
		p.Check(dout.Copy(direction))
		_, use, kept := made.ForwardKeeping(p, input, batch, nil, 0, aux)
		dx = read(t, made.Backward(p, dout, kept, scale, 0))
		p.Check(use.Close())
	})
	gradients := [][]float32{dx}
	for _, grad := range made.grads {
		gradients = append(gradients, read(t, grad))
	}
	for at, values := range append([]*tensor.Tensor{x}, made.weights...) {
		before, step := read(t, values), make([]float64, values.Size())
		var wanted float64
		for i := range step {
			step[i] = random.NormFloat64()
			wanted += step[i] * float64(gradients[at][i])
		}
		const size = 1e-3
		move := func(by float64) float64 {
			moved := make([]float32, len(before))
			for i := range moved {
				moved[i] = float32(float64(before[i]) + by*step[i])
			}
			must.Do(t, tensor.Write(values, moved))
			return loss()
		}
		slope := (move(size) - move(-size)) / (2 * size)
		must.Do(t, tensor.Write(values, before))
		// Values of about 10 in f32, over 2e-3, know a slope to about 1e-3; the curve bends it by about as much.
		if math.Abs(slope-wanted) > 2e-2*max(1, math.Abs(wanted)) {
			t.Errorf("tensor %d: the slope is %v, the gradient says %v", at, slope, wanted)
		}
	}
}

func run(t testing.TB, ctx *cuda.Context, pass func(p *layer.Pass)) {
	t.Helper()
	must.Do(t, layer.Run(ctx, pass))
}

// TestBlockGivesBackItsMemory: after forward and backward nothing is left but what the layers hold on purpose.
func TestBlockGivesBackItsMemory(t *testing.T) {
	ctx, random := newContext(t), rand.New(rand.NewPCG(3, 4))
	made := newBlock(t, ctx, random)
	var before int64
	for round := range 5 {
		// What is computed twice leaves no more behind, and what was kept for it is let go, too.
		made.Recompute, made.MoE.Recompute = round == 3, round == 4
		run(t, ctx, func(p *layer.Pass) {
			x, dout := p.Empty(cuda.F32, batch*length, hidden), p.Empty(cuda.F32, batch*length, hidden)
			scale, aux := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1)
			for _, values := range []*tensor.Tensor{x, dout, scale, aux} {
				p.Check(tensor.Fill(values, 0.5))
			}
			inside := used(t, ctx)
			out, use, kept := made.ForwardKeeping(p, x, batch, nil, 2, aux)
			p.Free(out)
			dx := made.Backward(p, dout, kept, scale, 1)
			p.Check(use.Close())
			// x and dout were spent; dx came instead, and in the first round what is made once.
			if now := used(t, ctx); round > 0 && now != inside-x.Bytes()-dout.Bytes()+dx.Bytes() {
				t.Errorf("%d bytes are used, %d before", now, inside)
			}
		})
		if round > 0 && used(t, ctx) != before {
			t.Errorf("%d bytes are used, %d after the round before", used(t, ctx), before)
		}
		before = used(t, ctx)
	}
}

package tensor_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// BenchmarkCall is the cost of one kernel call with its checks: the sum of one element.
func BenchmarkCall(b *testing.B) {
	x := must(tensor.Zeros(newContext(b), cuda.F32, 1))
	b.ReportAllocs()
	for b.Loop() {
		if err := tensor.Add(x, x, x); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManyTensors is the cost of a call with eight tensors of three dimensions; it does nothing, as there are none
// of them.
func BenchmarkManyTensors(b *testing.B) {
	ctx := newContext(b)
	x := must(tensor.Zeros(ctx, cuda.F32, 0, 1, 8))
	lse := must(tensor.Zeros(ctx, cuda.F32, 1, 1, 0))
	b.ReportAllocs()
	for b.Loop() {
		if err := tensor.FlashAttentionBackward(x, x, x, x, x, lse, x, x, x, 1, true); err != nil {
			b.Fatal(err)
		}
	}
}

package tensor_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tensor"
)

// BenchmarkCall is the cost of one kernel call with its checks: the sum of one element.
func BenchmarkCall(b *testing.B) {
	x := sure(tensor.Zeros(newContext(b), cuda.F32, 1))
	b.ReportAllocs()
	for b.Loop() {
		must.Do(b, tensor.Add(x, x, x))
	}
}

// BenchmarkManyTensors is the cost of a call with eight tensors of three dimensions; it does nothing, as there are none
// of them.
func BenchmarkManyTensors(b *testing.B) {
	ctx := newContext(b)
	x := sure(tensor.Zeros(ctx, cuda.F32, 0, 1, 8))
	lse := sure(tensor.Zeros(ctx, cuda.F32, 1, 1, 0))
	b.ReportAllocs()
	for b.Loop() {
		must.Do(b, tensor.FlashAttentionBackward(x, x, x, x, x, lse, nil, x, x, x, 1, true))
	}
}

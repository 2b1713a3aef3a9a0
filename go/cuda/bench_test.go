package cuda_test

import (
	"fmt"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// BenchmarkCall is the cost of one kernel call: the sum of one element.
func BenchmarkCall(b *testing.B) {
	ctx := newContext(b, cuda.WithThreads(1))
	x := filled(b, ctx, 4)
	b.ReportAllocs()
	for b.Loop() {
		must.Do(b, ctx.Add(x.At(0), x.At(0), x.At(0), 1, cuda.F32))
	}
}

// BenchmarkAllocate is the cost of a buffer from the pool, and of giving it back.
func BenchmarkAllocate(b *testing.B) {
	ctx := newContext(b, cuda.WithThreads(1))
	b.ReportAllocs()
	for b.Loop() {
		buffer := must.Get(ctx.Allocate(4096))(b)
		must.Do(b, buffer.Close())
	}
}

// BenchmarkGemm is a product of square matrices; the operations a second are 2*n^3 a call.
func BenchmarkGemm(b *testing.B) {
	for _, n := range []int64{64, 256, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := newContext(b)
			x, y := filled(b, ctx, 4*n*n), filled(b, ctx, 4*n*n)
			calls := 0
			for b.Loop() {
				must.Do(b, ctx.Gemm(x.At(0), x.At(0), y.At(0), n, n, n, false, true, cuda.F32, cuda.F32))
				calls++
			}
			b.ReportMetric(2*float64(n*n*n)*float64(calls)/b.Elapsed().Seconds()/1e9, "Gflop/s")
		})
	}
}

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestTrace(t *testing.T) {
	ctx := newContext(t)
	x := filled(t, ctx, 64)
	must.Do(t, errors.Join(
		ctx.Label("lost"), // there is no trace yet
		ctx.BeginTrace(2),
		ctx.Label("model.", "layers.3"),
		ctx.Fill(x.At(0), 16, 2.5, cuda.F32),
		ctx.EndTrace(),
	))
	text, err := ctx.TraceText()
	if err != nil || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "model.layers.3: ") ||
		!strings.Contains(text, "fill") || !strings.Contains(text, "2.5") {
		t.Errorf("the trace is %q (%v)", text, err)
	}
	must.Refuse(t, ctx.BeginTrace(65), cuda.ErrInvalidValue, "values")
}

// TestFirstNonfinite: in what is read, in what is written, and nowhere.
func TestFirstNonfinite(t *testing.T) {
	ctx := newContext(t)
	x, y := filled(t, ctx, 64), filled(t, ctx, 64)
	scale := func(alpha float32) func() error {
		return func() error { return errors.Join(ctx.Label("a"), ctx.Scale(x.At(0), y.At(0), 16, alpha, cuda.F32)) }
	}
	if found := must.Get(ctx.FirstNonfinite(scale(2)))(t); found != nil {
		t.Errorf("%+v", found)
	}
	must.Do(t, ctx.Fill(x.At(0), 16, 3e38, cuda.F32))
	found := must.Get(ctx.FirstNonfinite(scale(-2)))(t)
	if found == nil || found.Kernel != "cuda_scale" || found.Argument != "y" || found.Use != "out" || found.In() != "cuda_scale in a" ||
		found.Value != "-inf" || found.Address != y.At(0).Address() {
		t.Errorf("%+v", found)
	}
	must.Do(t, ctx.Upload(x.At(12), []byte{0, 0, 192, 127}))
	found = must.Get(ctx.FirstNonfinite(scale(1)))(t)
	if found == nil || found.Argument != "x" || found.Use != "in" || found.Index[0] != 3 || found.Value != "nan" ||
		found.Address != x.At(12).Address() {
		t.Errorf("%+v", found)
	}
	failure := errors.New("enough")
	if _, err := ctx.FirstNonfinite(func() error { return failure }); !errors.Is(err, failure) {
		t.Error(err)
	}
	must.Refuse(t, ctx.EndTrace(), cuda.ErrState, "") // what failed has ended
}

func TestShadow(t *testing.T) {
	ctx, reference := newContext(t, cuda.WithThreads(2)), newContext(t, cuda.WithThreads(1), cuda.WithISA(cuda.Baseline))
	x, y := filled(t, ctx, 256), filled(t, ctx, 256)
	calls := func() error {
		return errors.Join(
			ctx.Normal(x.At(0), 64, 0, 1, 7, 0, 0, cuda.F32),
			ctx.Gemm(x.At(0), x.At(0), y.At(0), 8, 8, 8, false, true, cuda.F32, cuda.F32),
			ctx.Copy(x.At(0), y.At(0), 256),
		)
	}
	told := must.Get(ctx.Shadow(reference, calls))(t)
	if told.Calls != 3 || told.Compared != 2 || told.Moves != 1 || told.Over != 0 || told.First != nil ||
		len(told.Kernels) != 2 || told.Kernels[0].Kernel != "cuda_gemm" || told.Kernels[0].Calls != 1 {
		t.Errorf("%+v", told)
	}
	must.Refuse(t, must.Err(ctx.Shadow(reference, reference.Close)), cuda.ErrState, "")
	must.Refuse(t, must.Err(ctx.Shadow(ctx, calls)), cuda.ErrInvalidValue, "")
	must.Do(t, reference.Close())
	must.Refuse(t, must.Err(ctx.Shadow(reference, calls)), cuda.ErrInvalidContext, "")
}

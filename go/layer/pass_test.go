package layer_test

import (
	"errors"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

func newContext(t testing.TB) *cuda.Context {
	t.Helper()
	return withlibrary.Context(t, cuda.WithThreads(1))
}

func used(t testing.TB, ctx *cuda.Context) int64 {
	t.Helper()
	bytes, err := ctx.BytesUsed()
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestPassGivesBackWhatItMade(t *testing.T) {
	ctx := newContext(t)
	var kept *tensor.Tensor
	err := layer.Run(ctx, func(p *layer.Pass) {
		freed := p.Empty(cuda.F32, 10)
		p.Free(freed, nil)
		p.Free(freed) // twice is fine
		p.Empty(cuda.F32, 20)
		kept = p.Keep(p.Like(p.Empty(cuda.I32, 3, 4)))
		p.Free(kept) // no longer the pass's
	})
	if err != nil || kept.Size() != 12 || kept.DType() != cuda.I32 {
		t.Fatal(kept, err)
	}
	if bytes := used(t, ctx); bytes != kept.Bytes() {
		t.Errorf("%d bytes are used, of which %d were kept", bytes, kept.Bytes())
	}
	if err := kept.Close(); err != nil || used(t, ctx) != 0 {
		t.Error(err)
	}
}

func TestPassEndsAtTheFirstError(t *testing.T) {
	ctx := newContext(t)
	failure := errors.New("enough")
	for _, fail := range []func(p *layer.Pass){
		func(p *layer.Pass) { p.Check(failure) },
		func(p *layer.Pass) { p.Check(errors.Join(failure, errors.New("more"))) },
	} {
		err := layer.Run(ctx, func(p *layer.Pass) {
			p.Empty(cuda.F32, 10)
			fail(p)
			t.Error("it went on")
		})
		if !errors.Is(err, failure) || used(t, ctx) != 0 {
			t.Errorf("%v, and %d bytes are used", err, used(t, ctx))
		}
	}
	err := layer.Run(ctx, func(p *layer.Pass) { p.View(p.Empty(cuda.F32, 10), 3, 4) })
	if !errors.Is(err, cuda.ErrInvalidSize) {
		t.Error(err)
	}
	err = layer.Run(ctx, func(p *layer.Pass) { p.Narrow(p.Empty(cuda.F32, 10), 0, 5, 6) })
	if !errors.Is(err, cuda.ErrOutOfRange) {
		t.Error(err)
	}
}

// TestPanicsGoThrough: a defect is no error of a call.
func TestPanicsGoThrough(t *testing.T) {
	ctx := newContext(t)
	defer func() {
		if recover() != "defect" || used(t, ctx) != 0 {
			t.Error("the panic did not come through, or memory was lost")
		}
	}()
	_ = layer.Run(ctx, func(p *layer.Pass) {
		p.Empty(cuda.F32, 10)
		panic("defect")
	})
}

package layer_test

import (
	"errors"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
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
	bytes := must.Get(ctx.BytesUsed())(t)
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

// TestPassKeepsTheFirstError: what follows it gets tensors without memory, so no kernel runs and nothing is kept.
func TestPassKeepsTheFirstError(t *testing.T) {
	ctx := newContext(t)
	failure := errors.New("enough")
	for wanted, fail := range map[error]func(p *layer.Pass) *tensor.Tensor{
		failure:             func(p *layer.Pass) *tensor.Tensor { p.Check(failure); return p.Empty(cuda.F32, 3, 4) },
		cuda.ErrInvalidSize: func(p *layer.Pass) *tensor.Tensor { return p.View(p.Empty(cuda.F32, 10), 3, 4) },
		cuda.ErrOutOfRange:  func(p *layer.Pass) *tensor.Tensor { return p.Narrow(p.Empty(cuda.F32, 3, 4), 1, 1, 4) },
		cuda.ErrInvalidDType: func(p *layer.Pass) *tensor.Tensor {
			p.Check(tensor.Write(p.Empty(cuda.F32, 2), []int32{1, 2}))
			return p.Empty(cuda.F32, 3, 4)
		},
	} {
		outlives := must.Get(tensor.From(ctx, []float32{7}))(t)
		err := layer.Run(ctx, func(p *layer.Pass) {
			made := fail(p)
			if made.Dim(0) != 3 || made.Dim(1) != 4 || made.DType() != cuda.F32 || p.Err() == nil {
				t.Error(made, p.Err())
			}
			p.Check(errors.New("a later one"))
			next := p.Keep(p.Narrow(p.View(p.Like(made), 12), 0, 2, 1))
			_, read := tensor.Read[float32](next)
			for at, err := range []error{
				tensor.Add(next, outlives, outlives), tensor.Add(outlives, outlives, next), next.Zero(), read,
				outlives.Copy(next), next.Copy(outlives), next.Upload(nil),
			} {
				if !errors.Is(err, wanted) {
					t.Errorf("call %d: %v, not %v", at, err, wanted)
				}
			}
		})
		values, failure := tensor.Read[float32](outlives)
		if !errors.Is(err, wanted) || failure != nil || values[0] != 7 {
			t.Errorf("%v, not %v; %v, %v", err, wanted, values, failure)
		}
		if err := outlives.Close(); err != nil || used(t, ctx) != 0 {
			t.Errorf("%v, and %d bytes are used", err, used(t, ctx))
		}
	}
}

// TestPanicsGoThrough: a defect is not an error of a call.
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

package cuda_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// download is the first bytes of a buffer.
func download(t *testing.T, ctx *cuda.Context, buffer *cuda.Buffer, count int) []byte {
	t.Helper()
	got := make([]byte, count)
	must.Do(t, ctx.Download(got, buffer.At(0)))
	return got
}

// A step of several kernels, with memory that is allocated and given back in between.
func step(ctx *cuda.Context, x, y *cuda.Buffer) error {
	const n = 64
	scratch, err := ctx.Allocate(4 * n * n)
	if err != nil {
		return err
	}
	err = errors.Join(
		ctx.Gemm(x.At(0), x.At(0), scratch.At(0), n, n, n, false, true, cuda.F32, cuda.F32),
		ctx.Softmax(scratch.At(0), scratch.At(0), n, n, cuda.F32),
		scratch.Close(),
	)
	again, failure := ctx.Allocate(4 * n * n)
	if err = errors.Join(err, failure); err != nil {
		return err
	}
	return errors.Join(
		ctx.SiLU(x.At(0), again.At(0), n*n, cuda.F32),
		ctx.Add(again.At(0), x.At(0), x.At(0), n*n, cuda.F32),
		ctx.Copy(y.At(0), x.At(0), 4*n*n),
		again.Close(),
	)
}

func TestReplayHasTheBitsOfTheCalls(t *testing.T) {
	const bytesOfMatrix = 4 * 64 * 64
	results := map[bool][]byte{}
	for _, captured := range []bool{false, true} {
		ctx := newContext(t, cuda.WithThreads(2))
		x, y := filled(t, ctx, bytesOfMatrix), filled(t, ctx, bytesOfMatrix)
		must.Do(t, ctx.Normal(x.At(0), 64*64, 0, 1, 42, 0, 0, cuda.F32))
		run := func() error { return step(ctx, x, y) }
		if captured {
			graph := must.Get(ctx.Capture(run))(t)
			defer graph.Close()
			if size, err := graph.Size(); err != nil || size != 5 {
				t.Errorf("the graph holds %d calls (%v)", size, err)
			}
			must.Do(t, ctx.Set(y.At(0), 0, bytesOfMatrix))
			run = graph.Launch
		}
		for range 5 {
			must.Do(t, run())
		}
		results[captured] = download(t, ctx, y, bytesOfMatrix)
	}
	if !bytes.Equal(results[false], results[true]) {
		t.Error("the replay gives other bits than the calls")
	}
	if bytes.Equal(results[false], make([]byte, bytesOfMatrix)) {
		t.Error("nothing was computed")
	}
}

// What a graph's calls use stays while the graph lives, closed or not, and is given back with it.
func TestGraphKeepsItsMemory(t *testing.T) {
	ctx := newContext(t)
	used := func() int64 {
		t.Helper()
		bytes := must.Get(ctx.BytesUsed())(t)
		return bytes
	}
	before, result := filled(t, ctx, 4096), filled(t, ctx, 4096)
	base := used()
	var inside *cuda.Buffer
	graph, err := ctx.Capture(func() error {
		first, err := ctx.Allocate(4096)
		if err != nil {
			return err
		}
		if err := errors.Join(ctx.Add(before.At(0), before.At(0), first.At(0), 1024, cuda.F32), first.Close()); err != nil {
			return err
		}
		if inside, err = ctx.Allocate(4096); err != nil {
			return err
		}
		return errors.Join(
			ctx.Add(before.At(0), before.At(0), inside.At(0), 1024, cuda.F32),
			ctx.Add(inside.At(0), inside.At(0), result.At(0), 1024, cuda.F32),
			before.Close(), // in use, and allocated before
		)
	})
	must.Do(t, err)
	if used() != base+4096 {
		t.Errorf("the second buffer of the capture did not take the first one's place: %d bytes, %d before", used(), base)
	}
	must.Do(t, inside.Close())
	others := []*cuda.Buffer{filled(t, ctx, 4096), filled(t, ctx, 4096), filled(t, ctx, 4096)}
	must.Do(t, ctx.Fill(others[0].At(0), 1024, 7, cuda.F32))
	want := download(t, ctx, others[0], 4096)
	must.Do(t, graph.Launch())
	if !bytes.Equal(download(t, ctx, others[0], 4096), want) {
		t.Error("the graph wrote to memory that is another's")
	}
	must.Refuse(t, ctx.Fill(before.At(0), 1, 1, cuda.F32), cuda.ErrInvalidContext, "closed")
	for _, other := range others {
		must.Do(t, other.Close())
	}
	must.Do(t, errors.Join(graph.Close(), graph.Close()))
	must.Refuse(t, graph.Launch(), cuda.ErrInvalidContext, "the graph is closed")
	must.Do(t, result.Close())
	if used() != 0 {
		t.Errorf("%d bytes are used after all was closed", used())
	}
}

func TestFailedCaptureLeavesNothing(t *testing.T) {
	ctx := newContext(t)
	mine := errors.New("mine")
	if _, err := ctx.Capture(func() error {
		_, err := ctx.Allocate(64)
		return errors.Join(mine, err)
	}); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = ctx.Capture(func() error { panic("mine") })
	}()
	_, err := ctx.Capture(func() error {
		if err := ctx.Synchronize(); !errors.Is(err, cuda.ErrCapturing) {
			t.Errorf("synchronising while capturing: %v", err)
		}
		_, err := ctx.Capture(func() error { return nil })
		return err
	})
	must.Refuse(t, err, cuda.ErrState, "captured already")
	if err := ctx.Synchronize(); err != nil {
		t.Errorf("the context still captures: %v", err)
	}
}

// What is closed while a graph is captured is given back afterwards.
func TestClosingWhileCapturing(t *testing.T) {
	ctx := newContext(t)
	buffer := filled(t, ctx, 4096)
	old := must.Get(ctx.Capture(func() error { return ctx.Fill(buffer.At(0), 4, 1, cuda.F32) }))(t)
	stream := must.Get(ctx.NewStream())(t)
	unused := filled(t, ctx, 4096)
	graph, err := ctx.Capture(func() error {
		must.Refuse(t, stream.Close(), cuda.ErrCapturing, "")
		return errors.Join(old.Close(), buffer.Close(), unused.Close())
	})
	must.Do(t, err)
	must.Refuse(t, old.Launch(), cuda.ErrInvalidContext, "closed")
	must.Do(t, errors.Join(graph.Close(), stream.Close()))
	if used, err := ctx.BytesUsed(); err != nil || used != 0 {
		t.Errorf("%d bytes are used (%v)", used, err)
	}
}

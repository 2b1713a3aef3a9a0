package cuda_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestCopies(t *testing.T) {
	ctx := newContext(t)
	device, other := filled(t, ctx, 16), filled(t, ctx, 16)
	host := must.Get(ctx.AllocateHost(16))(t)
	defer host.Close()
	got := make([]byte, 8)
	must.Do(t, errors.Join(
		ctx.Upload(device.At(4), []byte("abcdefgh")),
		ctx.Copy(other.At(0), device.At(4), 8),
		ctx.Set(other.At(1), 'x', 2),
		ctx.Download(got, other.At(0)),
	))
	if string(got) != "axxdefgh" {
		t.Errorf("got %q", got)
	}
	must.Do(t, errors.Join(ctx.Upload(host.At(8), []byte("12345678")), ctx.Download(got, host.At(8))))
	if string(got) != "12345678" {
		t.Errorf("got %q from host memory", got)
	}
	if err := errors.Join(
		ctx.Upload(device.At(16), nil),
		ctx.Download(nil, device.At(16)),
		ctx.Set(cuda.Memory{}, 0, 0),
	); err != nil {
		t.Errorf("no bytes: %v", err)
	}
}

func TestMemoryOutsideIsRefused(t *testing.T) {
	ctx, stranger := newContext(t), newContext(t)
	buffer, foreign := filled(t, ctx, 16), filled(t, stranger, 16)
	host := must.Get(ctx.AllocateHost(16))(t)
	defer host.Close()
	five := make([]byte, 5)
	for _, place := range []cuda.Memory{buffer.At(12), buffer.At(-1), buffer.At(17), buffer.At(1 << 62), {}} {
		must.Refuse(t, ctx.Upload(place, five), cuda.ErrInvalidSize, "bytes")
		must.Refuse(t, ctx.Download(five, place), cuda.ErrInvalidSize, "bytes")
		must.Refuse(t, ctx.Set(place, 0, 5), cuda.ErrInvalidSize, "bytes")
		must.Refuse(t, ctx.Copy(place, buffer.At(0), 5), cuda.ErrInvalidSize, "bytes")
		must.Refuse(t, ctx.Copy(buffer.At(0), place, 5), cuda.ErrInvalidSize, "bytes")
	}
	must.Refuse(t, ctx.Set(buffer.At(0), 0, -1), cuda.ErrInvalidSize, "-1 bytes")
	must.Refuse(t, ctx.Upload(foreign.At(0), five), cuda.ErrWrongDevice, "destination belongs to another context")
	must.Refuse(t, ctx.Add(buffer.At(0), foreign.At(0), buffer.At(0), 1, cuda.F32), cuda.ErrWrongDevice,
		"cuda_add: b belongs to another context")
	must.Refuse(t, ctx.Set(host.At(0), 0, 1), cuda.ErrWrongDevice, "host memory")
	must.Refuse(t, ctx.Copy(buffer.At(0), host.At(0), 1), cuda.ErrWrongDevice, "host memory")
	must.Refuse(t, must.Err(ctx.Allocate(-1)), cuda.ErrInvalidSize, "bytes is -1")

	var detail *cuda.Error
	if err := ctx.Add(buffer.At(0), cuda.Memory{}, buffer.At(0), 1, cuda.F32); !errors.As(err, &detail) ||
		detail.Status != cuda.ErrNullPointer || detail.Function != "cuda_add" {
		t.Errorf("a null pointer: %v", err)
	}
}

func TestClosedBufferIsRefused(t *testing.T) {
	ctx := newContext(t)
	buffer, closed := filled(t, ctx, 16), filled(t, ctx, 16)
	must.Do(t, errors.Join(closed.Close(), closed.Close()))
	must.Refuse(t, ctx.Add(buffer.At(0), closed.At(0), buffer.At(0), 1, cuda.F32), cuda.ErrInvalidContext,
		"cuda_add: b is closed")
	must.Refuse(t, ctx.Upload(closed.At(0), []byte{1}), cuda.ErrInvalidContext, "closed")
	if err := ctx.Add(buffer.At(0), buffer.At(0), buffer.At(0), 1, cuda.F32); err != nil {
		t.Errorf("the context is no longer usable: %v", err)
	}
}

func TestOutOfMemoryLeavesTheContextUsable(t *testing.T) {
	ctx := newContext(t)
	must.Refuse(t, must.Err(ctx.Allocate(1<<60)), cuda.ErrOutOfMemory, "bytes")
	buffer := filled(t, ctx, 4)
	must.Do(t, ctx.Fill(buffer.At(0), 1, 1, cuda.F32))
	got := make([]byte, 4)
	if err := ctx.Download(got, buffer.At(0)); err != nil || !bytes.Equal(got, []byte{0, 0, 0x80, 0x3f}) {
		t.Errorf("got %v (%v)", got, err)
	}
}

// eventually runs the garbage collector until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 200 {
		if condition() {
			return
		}
		runtime.GC()
		time.Sleep(time.Millisecond) // finalizers run beside the program
	}
	t.Errorf("%s did not happen", what)
}

func TestForgottenThingsAreFreed(t *testing.T) {
	ctx := newContext(t)
	func() {
		for range 10 {
			kept := filled(t, ctx, 1<<16)
			stream := must.Get(ctx.NewStream())(t)
			host := must.Get(ctx.AllocateHost(64))(t)
			must.Do(t, ctx.CopyAsync(stream, kept.At(0), host.At(0), 64))
			if _, err := ctx.Capture(func() error { return ctx.Fill(kept.At(0), 4, 1, cuda.F32) }); err != nil {
				t.Fatal(err)
			}
			if _, err := ctx.NewEvent(); err != nil {
				t.Fatal(err)
			}
		}
	}()
	eventually(t, "freeing the buffers", func() bool {
		used, err := ctx.BytesUsed()
		return err == nil && used == 0
	})
}

func TestForgottenContextIsFreed(t *testing.T) {
	before := threads(t)
	func() {
		var contexts []*cuda.Context
		for range 5 {
			ctx := must.Get(cuda.New("cpu", cuda.WithThreads(3)))(t)
			contexts = append(contexts, ctx)
			x := filled(t, ctx, 4*512*512)
			must.Do(t, ctx.Gemm(x.At(0), x.At(0), filled(t, ctx, 4*512*512).At(0), 512, 512, 512, false, false, cuda.F32,
				cuda.F32))
			if _, err := ctx.Capture(func() error { return ctx.Fill(x.At(0), 4, 1, cuda.F32) }); err != nil {
				t.Fatal(err)
			}
			must.Do(t, ctx.CopyAsync(nil, x.At(0), x.At(1024), 64))
		}
		if now := threads(t); now < before+10 {
			t.Errorf("%d threads, %d before: the contexts have no workers to be ended", now, before)
		}
		runtime.KeepAlive(contexts)
	}()
	// The runtime's own threads may be a few more than before.
	eventually(t, "ending the workers", func() bool { return threads(t) < before+10 })
}

func TestBorrowedMemory(t *testing.T) {
	ctx := newContext(t)
	memory := []byte("abcdefgh")
	borrowed := must.Get(ctx.Borrow(memory))(t)
	if used := must.Get(ctx.BytesUsed())(t); used != 0 || borrowed.Size() != 8 {
		t.Errorf("%d bytes are the context's", used)
	}
	other, got := filled(t, ctx, 8), make([]byte, 8)
	must.Do(t, errors.Join(ctx.Copy(other.At(0), borrowed.At(0), 8), ctx.Download(got, other.At(0))))
	if string(got) != "abcdefgh" {
		t.Errorf("got %q", got)
	}
	must.Refuse(t, ctx.Copy(other.At(0), borrowed.At(1), 8), cuda.ErrInvalidSize, "8 bytes from byte 1 on")
	must.Do(t, errors.Join(borrowed.Close(), borrowed.Close()))
	must.Refuse(t, ctx.Copy(other.At(0), borrowed.At(0), 8), cuda.ErrInvalidContext, "source is closed")
	if string(memory) != "abcdefgh" {
		t.Error("closing touched the memory")
	}
	nothing := must.Get(ctx.Borrow(nil))(t)
	must.Do(t, nothing.Close())
	must.Do(t, ctx.Close())
	must.Refuse(t, must.Err(ctx.Borrow(memory)), cuda.ErrInvalidContext, "the context is closed")
}

package cuda_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestStreamsAndEvents(t *testing.T) {
	ctx := newContext(t)
	stream := must.Get(ctx.NewStream())(t)
	start := must.Get(ctx.NewEvent())(t)
	end := must.Get(ctx.NewEvent())(t)
	const size = 1 << 20
	from := must.Get(ctx.AllocateHost(size))(t)
	to := must.Get(ctx.AllocateHost(size))(t)
	device, other := filled(t, ctx, size), filled(t, ctx, size)
	content := bytes.Repeat([]byte("nncuda"), size/6+1)[:size]
	must.Do(t, errors.Join(
		ctx.Upload(from.At(0), content),
		start.Record(stream),
		ctx.CopyAsync(stream, device.At(0), from.At(0), size),
		end.Record(stream),
		ctx.Wait(end), // the context's own stream must find what the other one brought
		ctx.CopyAsync(nil, other.At(0), device.At(0), size),
		start.Synchronize(),
		end.Synchronize(),
	))
	if happened, err := end.Happened(); err != nil || !happened {
		t.Errorf("the event has not happened (%v)", err)
	}
	if elapsed, err := start.Elapsed(end); err != nil || elapsed < 0 {
		t.Errorf("%v elapsed (%v)", elapsed, err)
	}
	must.Do(t, errors.Join(
		end.Record(nil),
		stream.Wait(end),
		ctx.CopyAsync(stream, to.At(0), other.At(0), size),
		stream.Synchronize(),
	))
	got := make([]byte, size)
	if err := ctx.Download(got, to.At(0)); err != nil || !bytes.Equal(got, content) {
		t.Errorf("what came back is not what went (%v)", err)
	}
	must.Refuse(t, ctx.CopyAsync(stream, to.At(0), from.At(0), 1), cuda.ErrWrongDevice, "both sides are host memory")
	must.Refuse(t, ctx.CopyAsync(stream, to.At(0), device.At(size), 1), cuda.ErrInvalidSize, "source")
	must.Do(t, errors.Join(stream.Close(), stream.Close(), start.Close(), end.Close(), end.Close()))
	must.Refuse(t, stream.Synchronize(), cuda.ErrInvalidContext, "the stream is closed")
	must.Refuse(t, end.Record(nil), cuda.ErrInvalidContext, "the event is closed")
	must.Refuse(t, ctx.CopyAsync(stream, device.At(0), from.At(0), 1), cuda.ErrInvalidContext, "the stream is closed")
}

func TestHandlesOfAnotherContextAreRefused(t *testing.T) {
	ctx, stranger := newContext(t), newContext(t)
	stream := must.Get(stranger.NewStream())(t)
	event := must.Get(stranger.NewEvent())(t)
	buffer := filled(t, ctx, 8)
	must.Refuse(t, ctx.CopyAsync(stream, buffer.At(0), buffer.At(4), 4), cuda.ErrWrongDevice,
		"the stream belongs to another context")
	must.Refuse(t, ctx.Wait(event), cuda.ErrWrongDevice, "the event belongs to another context")
}

// Memory that a copy still uses stays when it is closed, and is given back when the stream is synchronised.
func TestStreamKeepsMemory(t *testing.T) {
	ctx := newContext(t)
	for _, own := range []bool{false, true} {
		stream := must.Get(ctx.NewStream())(t)
		synchronize := stream.Synchronize
		if own {
			stream, synchronize = nil, ctx.Synchronize
		}
		buffer := filled(t, ctx, 4096)
		must.Do(t, errors.Join(ctx.CopyAsync(stream, buffer.At(0), buffer.At(2048), 2048), buffer.Close()))
		if used, err := ctx.BytesUsed(); err != nil || used != 4096 {
			t.Errorf("%d bytes are used (%v)", used, err)
		}
		must.Do(t, synchronize())
		if used, err := ctx.BytesUsed(); err != nil || used != 0 {
			t.Errorf("%d bytes are used after synchronising (%v)", used, err)
		}
	}
}

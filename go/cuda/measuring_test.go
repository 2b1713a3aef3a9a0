package cuda_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// TestMeasuring: a GPU that need not be here, and a processor of another kind; memory that costs none, and kernels that
// are counted.
func TestMeasuring(t *testing.T) {
	for _, machine := range []cuda.Machine{
		{Device: cuda.CUDA, Capability: 90, Multiprocessors: 132},
		{Device: cuda.CPU, Threads: 7, ISA: cuda.AMX, HasISA: true},
	} {
		ctx := must.Get(cuda.NewMeasuring(machine))(t)
		measures, err := ctx.Measures()
		if found, failure := ctx.Machine(); found != machine || !measures || err != nil || failure != nil {
			t.Errorf("%+v, not %+v; %v %v %v", found, machine, measures, err, failure)
		}
		const size = 1 << 40
		buffer := must.Get(ctx.Allocate(size))(t)
		bytes := []byte{1, 2, 3}
		if err := errors.Join(ctx.Upload(buffer.At(0), bytes), ctx.Download(bytes, buffer.At(0))); err != nil {
			t.Error(err)
		}
		if !slices.Equal(bytes, []byte{0, 0, 0}) {
			t.Errorf("read %v", bytes)
		}
		if err := ctx.Add(buffer.At(0), buffer.At(64), buffer.At(128), 16, cuda.F32); err != nil {
			t.Error(err)
		}
		if err := ctx.Add(buffer.At(0), buffer.At(64), buffer.At(130), 16, cuda.F32); !errors.Is(err, cuda.ErrMisaligned) {
			t.Error(err)
		}
		peak, err := ctx.BytesPeak()
		held, failure := ctx.BytesHeld()
		if err != nil || failure != nil || peak != size || held < peak {
			t.Errorf("%d bytes, held %d; %v %v", peak, held, err, failure)
		}
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, machine := range []cuda.Machine{{Device: cuda.CPU, Threads: 257}, {Device: cuda.CUDA, Capability: 20}} {
		if _, err := cuda.NewMeasuring(machine); !errors.Is(err, cuda.ErrInvalidValue) {
			t.Errorf("%+v: %v", machine, err)
		}
	}
	ctx := newContext(t)
	if measures, err := ctx.Measures(); err != nil || measures {
		t.Error(measures, err)
	}
}

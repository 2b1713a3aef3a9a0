package cuda_test

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// Many goroutines on one context: every call is right, and errors are those of the call that made them.
func TestManyGoroutinesShareAContext(t *testing.T) {
	ctx := newContext(t, cuda.WithThreads(2))
	var group sync.WaitGroup
	for number := range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := range 100 {
				buffer, err := ctx.Allocate(4)
				if err != nil {
					t.Error(err)
					return
				}
				value := float32(1000*number + round)
				bad := ctx.Fill(buffer.At(0), int64(-1-number), 0, cuda.F32)
				if !errors.Is(bad, cuda.ErrInvalidSize) || !strings.Contains(bad.Error(), "n is "+strconv.Itoa(-1-number)+";") {
					t.Errorf("goroutine %d got the error %v", number, bad)
				}
				got := make([]byte, 4)
				if err := errors.Join(
					ctx.Fill(buffer.At(0), 1, value, cuda.F32),
					ctx.Add(buffer.At(0), buffer.At(0), buffer.At(0), 1, cuda.F32),
					ctx.Download(got, buffer.At(0)),
					buffer.Close(),
				); err != nil {
					t.Error(err)
				}
				if result := math.Float32frombits(binary.LittleEndian.Uint32(got)); result != 2*value {
					t.Errorf("%v, not %v", result, 2*value)
				}
				if round%25 == 0 {
					runtime.GC()
				}
			}
		}()
	}
	group.Wait()
}

// Closing in the middle of the work of others gives them errors, never a crash.
func TestClosingUnderWork(t *testing.T) {
	for range 20 {
		ctx := must.Get(cuda.New("cpu", cuda.WithThreads(2)))(t)
		shared := filled(t, ctx, 4096)
		started := make(chan struct{}, 8)
		var group sync.WaitGroup
		for number := range 8 {
			group.Add(1)
			go func() {
				defer group.Done()
				started <- struct{}{}
				for {
					err := ctx.Add(shared.At(0), shared.At(0), shared.At(0), 1024, cuda.F32)
					if number == 0 && err == nil {
						err = errors.Join(shared.Close(), shared.Close())
					}
					if number == 1 && err == nil {
						var stream *cuda.Stream
						if stream, err = ctx.NewStream(); err == nil {
							err = stream.Close()
						}
					}
					if err != nil {
						if !errors.Is(err, cuda.ErrInvalidContext) {
							t.Error(err)
						}
						return
					}
				}
			}()
		}
		for range 8 {
			<-started
		}
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
	}
}

// Different contexts work beside each other, and the number of system threads stays what their workers need.
func TestManyContexts(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				ctx, err := cuda.New("cpu", cuda.WithThreads(2))
				if err != nil {
					t.Error(err)
					return
				}
				x, err := ctx.Allocate(4 * 128 * 128)
				if err != nil {
					t.Error(err)
					return
				}
				y, err := ctx.Allocate(4 * 128 * 128)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(
					ctx.Fill(x.At(0), 128*128, 1, cuda.F32),
					ctx.Gemm(x.At(0), x.At(0), y.At(0), 128, 128, 128, false, false, cuda.F32, cuda.F32),
				); err != nil {
					t.Error(err)
				}
				got := make([]byte, 4)
				if err := ctx.Download(got, y.At(0)); err != nil ||
					math.Float32frombits(binary.LittleEndian.Uint32(got)) != 128 {
					t.Errorf("got %v (%v)", got, err)
				}
				if err := ctx.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
}

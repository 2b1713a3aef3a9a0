package cuda_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
)

// TestMain says once that the library is missing and what to do, instead of once a test.
func TestMain(m *testing.M) {
	if err := cuda.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newContext is a context of the CPU engine, closed when the test ends.
func newContext(t testing.TB, options ...cuda.Option) *cuda.Context {
	t.Helper()
	ctx, err := cuda.New("cpu", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx
}

// filled is a buffer of zeros.
func filled(t testing.TB, ctx *cuda.Context, bytes int64) *cuda.Buffer {
	t.Helper()
	buffer, err := ctx.Allocate(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Set(buffer.At(0), 0, bytes); err != nil {
		t.Fatal(err)
	}
	return buffer
}

package cuda_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
)

func TestMain(m *testing.M) { withlibrary.Main(m) }

func newContext(t testing.TB, options ...cuda.Option) *cuda.Context {
	t.Helper()
	return withlibrary.Context(t, options...)
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

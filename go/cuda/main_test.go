package cuda_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
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
	buffer := must.Get(ctx.Allocate(bytes))(t)
	must.Do(t, ctx.Set(buffer.At(0), 0, bytes))
	return buffer
}

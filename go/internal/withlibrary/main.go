// Package withlibrary is for the tests of packages that need libnncuda.
package withlibrary

import (
	"fmt"
	"os"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
)

// Main runs a package's tests, or says once that the library is missing and what to do, instead of once a test. Use it
// as
//
//	func TestMain(m *testing.M) { withlibrary.Main(m) }
func Main(m *testing.M) {
	if err := cuda.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Context is a context of the CPU engine, closed when the test ends.
func Context(t testing.TB, options ...cuda.Option) *cuda.Context {
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

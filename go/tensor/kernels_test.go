package tensor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/tensor"
)

func newContext(t testing.TB) *cuda.Context {
	t.Helper()
	return withlibrary.Context(t, cuda.WithThreads(1))
}

// sure is a value whose error would be a fault of the test itself.
func sure[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestGemmFindsItsSizes(t *testing.T) {
	ctx := newContext(t)
	x := sure(tensor.From(ctx, []float32{1, 2, 3, 4, 5, 6}, 2, 3))
	w := sure(tensor.From(ctx, []float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, 4, 3))
	y := sure(tensor.New(ctx, cuda.F32, 2, 4))
	must.Do(t, tensor.Gemm(x, w, y, false, true))
	got := sure(tensor.Read[float32](y))
	if want := []float32{1, 2, 3, 6, 4, 5, 6, 15}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestShapesThatDisagreeAreNamed(t *testing.T) {
	ctx := newContext(t)
	matrix := func(dtype cuda.DType, shape ...int) *tensor.Tensor { return sure(tensor.New(ctx, dtype, shape...)) }
	x, w, y := matrix(cuda.F32, 2, 3), matrix(cuda.F32, 4, 3), matrix(cuda.F32, 2, 4)
	for _, test := range []struct {
		err    error
		status cuda.Status
		words  []string
	}{
		{tensor.Gemm(x, w, y, false, false), cuda.ErrInvalidSize, []string{"gemm: b has shape [4 3]", "[k, n], here [3 3]"}},
		{tensor.Gemm(x, nil, y, false, true), cuda.ErrNullPointer, []string{"gemm: b is nil"}},
		{tensor.Gemm(x, matrix(cuda.BF16, 4, 3), y, false, true), cuda.ErrInvalidDType, []string{"b is bf16", "f32"}},
		{tensor.Add(x, y, y), cuda.ErrInvalidSize, []string{"add: b has shape [2 4], but a has shape [2 3]"}},
		{tensor.Softmax(sure(y.Narrow(1, 0, 2)), matrix(cuda.F32, 2, 2)), cuda.ErrInvalidSize,
			[]string{"softmax: x must be dense", "rows of 2 elements lie 4 apart"}},
	} {
		if !errors.Is(test.err, test.status) {
			t.Errorf("%v: not %v", test.err, test.status)
			continue
		}
		for _, words := range test.words {
			if !strings.Contains(test.err.Error(), words) {
				t.Errorf("%q does not say %q", test.err, words)
			}
		}
	}
}

func Example() {
	ctx, err := cuda.New("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ctx.Close()

	x, _ := tensor.From(ctx, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	w, _ := tensor.From(ctx, []float32{1, 0, 0, 1, 1, 1}, 2, 3) // two outputs of three inputs each
	y, _ := tensor.New(ctx, cuda.F32, 2, 2)
	if err := tensor.Gemm(x, w, y, false, true); err != nil {
		fmt.Println(err)
		return
	}
	values, _ := tensor.Read[float32](y)
	fmt.Println(values)

	fmt.Println(tensor.Gemm(x, y, w, false, true))
	// Output:
	// [1 6 4 15]
	// gemm: b has shape [2 2]; [n, k], here [2 3], was expected (m and k from a, n from b)
}

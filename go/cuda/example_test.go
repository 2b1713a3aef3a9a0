package cuda_test

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
)

// The kernels as bindings.h declares them: every size is given.
func Example() {
	ctx, err := cuda.New("cpu", cuda.WithThreads(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ctx.Close()

	memory, err := ctx.Allocate(16)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer memory.Close()
	if err := ctx.Fill(memory.At(0), 4, 0.5, cuda.F32); err != nil {
		fmt.Println(err)
		return
	}
	values := make([]byte, 16)
	if err := ctx.Download(values, memory.At(0)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(values[12:])

	err = ctx.Fill(memory.At(0), -4, 0.5, cuda.F32)
	fmt.Println(errors.Is(err, cuda.ErrInvalidSize), err)
	// Output:
	// [0 0 0 63]
	// true cuda_fill: n is -4; it must be at least 0
}

// A captured step is checked and recorded once, and run as often as wanted without the work of calling it.
func ExampleContext_Capture() {
	ctx, err := cuda.New("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ctx.Close()
	count, _ := ctx.Allocate(4)
	_ = ctx.Set(count.At(0), 0, 4)

	graph, err := ctx.Capture(func() error { return ctx.Increment(count.At(0), 1, 3) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer graph.Close()
	for range 5 {
		if err := graph.Launch(); err != nil {
			fmt.Println(err)
			return
		}
	}
	value := make([]byte, 4)
	_ = ctx.Download(value, count.At(0))
	fmt.Println(value[0])
	// Output: 15
}

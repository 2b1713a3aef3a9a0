// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// RandomBits calls cuda_random_bits as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.RandomBits.
func (ctx *Context) RandomBits(y Memory, n, seed, stream, offset int64) error {
	in := ctx.enter()
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_random_bits")
	}
	status := C.call_cuda_random_bits(in.handle, yAt, C.int64_t(n), C.int64_t(seed), C.int64_t(stream),
		C.int64_t(offset))
	return in.leave("cuda_random_bits", status)
}

// Uniform calls cuda_uniform as it is in bindings.h: sizes are not compared with those of the buffers. See
// tensor.Uniform.
func (ctx *Context) Uniform(y Memory, n int64, low, high float32, seed, stream, offset int64, dtype DType) error {
	in := ctx.enter()
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_uniform")
	}
	status := C.call_cuda_uniform(in.handle, yAt, C.int64_t(n), C.float(low), C.float(high), C.int64_t(seed),
		C.int64_t(stream), C.int64_t(offset), C.int32_t(dtype))
	return in.leave("cuda_uniform", status)
}

// Normal calls cuda_normal as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Normal.
func (ctx *Context) Normal(y Memory, n int64, mean, std float32, seed, stream, offset int64, dtype DType) error {
	in := ctx.enter()
	yAt := in.at("y", y)
	if in.refused() {
		return in.refuse("cuda_normal")
	}
	status := C.call_cuda_normal(in.handle, yAt, C.int64_t(n), C.float(mean), C.float(std), C.int64_t(seed),
		C.int64_t(stream), C.int64_t(offset), C.int32_t(dtype))
	return in.leave("cuda_normal", status)
}

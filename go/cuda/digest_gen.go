// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

/*
#include "calls_gen.h"
*/
import "C"

// Digest calls cuda_digest as it is in bindings.h: sizes are not compared with those of the buffers. See tensor.Digest.
func (ctx *Context) Digest(x, sums Memory, n, width, first int64) error {
	in := ctx.enter()
	xAt := in.at("x", x)
	sumsAt := in.at("sums", sums)
	if in.refused() {
		return in.refuse("cuda_digest")
	}
	status := C.call_cuda_digest(in.handle, xAt, sumsAt, C.int64_t(n), C.int64_t(width), C.int64_t(first))
	return in.leave("cuda_digest", status)
}

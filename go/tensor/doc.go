// Package tensor has tensors in a context's memory, and every kernel of nncuda as a function of tensors.
//
// The functions named after the kernels take their tensors, options and flags in the order of bindings.h. Sizes,
// strides and element types follow from the tensors; what disagrees is refused with a sentence that names the kernel
// and the tensor. Outputs are tensors that the caller made:
//
//	y, err := tensor.New(ctx, cuda.F32, 2, 3)
//	...
//	err = tensor.Gemm(x, w, y, false, true) // y = x * w^T
//
// How a tensor's shape meets the header's: a shape of one dimension takes any dense tensor, flattened, and leading
// dimensions beyond those of the header's shape are folded into the first, so that [rows, cols] takes 4 x 5 x cols.
package tensor

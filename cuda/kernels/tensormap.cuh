/*
 * Tensor maps: how the copy engine of sm_90+ (kernels/instructions_tensor.cuh) finds the boxes of a tensor. A host
 * function makes one for each launch and passes it by value, as a `const __grid_constant__ CUtensorMap` parameter; a
 * graph keeps it.
 */
#ifndef NN_KERNELS_TENSORMAP_CUH
#define NN_KERNELS_TENSORMAP_CUH

#include "kernels/wgmma_descriptor.cuh"
#include <cuda.h>
#include <stdint.h>

/*
 * Describes a tensor of `rank` (1 to 5) dimensions, the contiguous one first: `dims` in elements, `strides` in elements
 * of the dimensions after the first (rank - 1 of them). A copy moves `box` elements, 1 to 256 in each dimension, and
 * rows of the box (box[0] elements) are as wide as the swizzle, or, with NN_SWIZZLE_NONE, a multiple of 16 bytes.
 * dtype: NNCUDA_F32, F16, BF16 or I8.
 *
 * False if there is no such map, and the caller must use a kernel without: the base or a stride is not a multiple of 16
 * bytes, a size is 0 or too large, or the driver knows no tensor maps.
 */
bool nn_tensor_map(CUtensorMap *map, int32_t dtype, int rank, const void *base, const int64_t *dims,
                   const int64_t *strides, const int32_t *box, nn_swizzle swizzle);

#endif

/*
 * Descriptors of wgmma's operands in shared memory (PTX 9.7.15.5.1.2). No instructions: plain arithmetic on 64 bits.
 *
 * A matrix operand is 64 or N rows (of A, or columns of B: "mn") by 16 of k, 2 bytes an element. With byte offsets from
 * the start address, LBO and SBO short for the two strides, and W the width of the swizzle (the canonical layouts of
 * PTX 9.7.15.5.1.2.1.3 with T = 8):
 *
 *   k contiguous,  W = 128, 64, 32:  mn % 8 * W + mn / 8 * SBO + k * 2
 *   k contiguous,  no swizzle:       mn % 8 * 16 + mn / 8 * SBO + k % 8 * 2 + k / 8 * LBO
 *   mn contiguous, W = 128, 64, 32:  mn % (W / 2) * 2 + mn / (W / 2) * LBO + k % 8 * W + k / 8 * SBO
 *   mn contiguous, no swizzle:       mn % 8 * 2 + mn / 8 * SBO + k % 8 * 16 + k / 8 * LBO
 *
 * Then the low bits of the address's number of 128-byte lines (bits 7-9, 7-8 or 7) are XORed into its number of 16-byte
 * units (bits 4-6, 4-5 or 4): what a tensor map with the same swizzle does to a box. Patterns must start at multiples
 * of 8 * W bytes; a start address inside of one is allowed to step along k or mn.
 */
#ifndef NN_WGMMA_DESCRIPTOR_CUH
#define NN_WGMMA_DESCRIPTOR_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* The width of a row of swizzled shared memory, in the descriptor's code. */
enum nn_swizzle { NN_SWIZZLE_NONE = 0, NN_SWIZZLE_128 = 1, NN_SWIZZLE_64 = 2, NN_SWIZZLE_32 = 3 };

__host__ __device__ constexpr uint32_t nn_swizzle_bytes(nn_swizzle swizzle) {
  return swizzle == NN_SWIZZLE_NONE ? 16 : 256u >> swizzle;
}

/* `shared`, LBO and SBO are multiples of 16. */
__host__ __device__ constexpr uint64_t nn_wgmma_descriptor(uint32_t shared, nn_swizzle swizzle, uint32_t leading_bytes,
                                                           uint32_t stride_bytes) {
  return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)((leading_bytes & 0x3ffff) >> 4) << 16 |
         (uint64_t)((stride_bytes & 0x3ffff) >> 4) << 32 | (uint64_t)swizzle << 62;
}

/* An operand with k contiguous in rows of W bytes, one below the other: what a box {W / 2 of k, rows} becomes. W / 32
 * products fit in a row: step by 32 bytes with nn_wgmma_step. */
template <nn_swizzle SWIZZLE> __host__ __device__ constexpr uint64_t nn_wgmma_descriptor_k_major(uint32_t shared) {
  static_assert(SWIZZLE != NN_SWIZZLE_NONE, "without a swizzle, k is not contiguous beyond 16 bytes");
  return nn_wgmma_descriptor(shared, SWIZZLE, 16, 8 * nn_swizzle_bytes(SWIZZLE));
}

/* An operand with mn contiguous in rows of W bytes, one row for each of k; beyond W / 2 of mn comes another such block
 * `block_bytes` later: what boxes {W / 2 of mn, k} become. Step by 16 * W bytes for the next 16 of k. */
template <nn_swizzle SWIZZLE>
__host__ __device__ constexpr uint64_t nn_wgmma_descriptor_mn_major(uint32_t shared, uint32_t block_bytes) {
  static_assert(SWIZZLE != NN_SWIZZLE_NONE, "without a swizzle, mn is not contiguous beyond 16 bytes");
  return nn_wgmma_descriptor(shared, SWIZZLE, block_bytes, 8 * nn_swizzle_bytes(SWIZZLE));
}

/* The same operand `bytes` (a multiple of 16) further in shared memory. The address field cannot overflow: shared
 * memory ends below its 256 KiB. */
__host__ __device__ constexpr uint64_t nn_wgmma_step(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

#endif

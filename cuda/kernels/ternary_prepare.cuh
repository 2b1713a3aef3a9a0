/*
 * Rows of x to 8 bits by the kernel of the product that multiplies them, as they are or normed: a block rounds one row
 * for itself, or the blocks share a few. The bits are those of ternary_activations.cu, which rounds rows that are many.
 */
#ifndef NN_KERNELS_TERNARY_PREPARE_CUH
#define NN_KERNELS_TERNARY_PREPARE_CUH

#include "kernels/norm_row.cuh"
#include "kernels/ternary_gemm.cuh"

/* put(i, word) for each four codes of a row, by a block of THREADS threads; returns the row's scale. */
template <int THREADS, class PUT>
__device__ __forceinline__ float ternary_round_row(const ternary_raw &raw, int64_t row, int64_t k, PUT put) {
  __shared__ float sums[NN_WARP];
  const float *const x = raw.x + row * k;
  const float rstd = raw.norm == nullptr ? 0.0f : nn_rms_of_row<THREADS>(x, k, raw.eps, sums);
  float most = 0.0f;
  nn_each_quad<THREADS>(x, raw.norm, rstd, k / 4, k, [&](int64_t, const float(&some)[4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) { /* zeros past the end */
      most = nn_larger::of(fabsf(some[e]), most);
    }
  });
  most = nn_block_max<THREADS>(most, sums);
  const ternary_unit unit(most);
  nn_each_quad<THREADS>(x, raw.norm, rstd, k / 4, k, [&](int64_t quad, const float(&some)[4]) {
    if (quad < k / 4) {
      uint32_t word = 0;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        word |= unit.code(some[e]) << (8 * e);
      }
      put(quad, word);
    }
  });
  __syncthreads(); /* `sums` is free */
  return unit.scale();
}

/* All rows, by all blocks. */
template <int THREADS> __device__ __forceinline__ void ternary_prepare_rows(const ternary_product &p) {
  nn_share_work(p.shared, [&](int64_t row) {
    uint32_t *const codes = reinterpret_cast<uint32_t *>(p.raw.codes + row * p.k);
    const float scale =
        ternary_round_row<THREADS>(p.raw, row, p.k, [&](int64_t quad, uint32_t word) { codes[quad] = word; });
    if (threadIdx.x == 0) {
      p.raw.scale[row] = scale;
    }
  });
}

#endif

/* RMSNorm of a row (Zhang and Sennrich 2019): all kernels that norm have these bits. */
#ifndef NN_KERNELS_NORM_ROW_CUH
#define NN_KERNELS_NORM_ROW_CUH

#include "kernels/row_threads.cuh"

/* Adds the squares of a thread's elements, in their order. */
template <int VECTORS, int N>
__device__ __forceinline__ void nn_rms_square(float &squares, const float (&values)[VECTORS][N]) {
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      squares = fmaf(values[v][e], values[v][e], squares);
    }
  }
}

/* 1 / sqrt(mean square + eps) of the sum of a row's squares. */
__device__ __forceinline__ float nn_rms_of(float sum, int64_t cols, float eps) {
  return 1.0f / sqrtf(sum / (float)cols + eps);
}

/* The same from the squares of the LANES threads of a row. `shared` as nn_row_sum has it. */
template <int LANES>
__device__ __forceinline__ float nn_rms_rstd(float squares, int64_t cols, float eps, float *shared) {
  return nn_rms_of(nn_row_sum<LANES>(squares, shared), cols, eps);
}

template <int N> __device__ __forceinline__ void nn_rms_apply(float (&values)[N], float rstd, const float (&gain)[N]) {
#pragma unroll
  for (int e = 0; e < N; e++) {
    values[e] = values[e] * rstd * gain[e];
  }
}

/* ---- a row by whatever block ---- */

/* The squares of a row in the shape that it is normed in elsewhere, by a block of THREADS threads: each stands for
 * several of the row's, or some for none, so that the sums and their order are the same. */
template <class SHAPE, int THREADS>
__device__ __forceinline__ float nn_rms_sum_as(const float *x, int64_t cols, float *sums) {
  constexpr int LANES = SHAPE::LANES, STEP = LANES * SHAPE::VECTORS * SHAPE::N, ROW_WARPS = LANES / NN_WARP;
  static_assert(ROW_WARPS >= 1 && SHAPE::form != NN_ROW_SHORT);
  const int lane = threadIdx.x % NN_WARP;
#pragma unroll 1
  for (int of = threadIdx.x; of < LANES; of += THREADS) { /* whole warps */
    float squares = 0.0f;
#pragma unroll 1
    for (int64_t at = 0; at < cols; at += STEP) {
      float values[SHAPE::VECTORS][SHAPE::N];
#pragma unroll
      for (int v = 0; v < SHAPE::VECTORS; v++) {
        nn_row_load<true>(values[v], x, at + (v * LANES + of) * SHAPE::N, cols, 0.0f);
      }
      nn_rms_square(squares, values);
    }
    squares = nn_warp_sum(squares);
    if (lane == 0) {
      sums[of / NN_WARP] = squares;
    }
  }
  __syncthreads();
  const float sum = ROW_WARPS == 1 ? sums[0] : nn_warp_sum(lane < ROW_WARPS ? sums[lane] : 0.0f);
  __syncthreads();
  return sum;
}

/* Rows that nn_rms_of_row takes: in runs of 16 bytes, and of more than 32 elements. */
inline bool nn_rms_takes(const void *x, int64_t cols) {
  return nn_aligned_16(x) && nn_rows_16(cols, cols, NNCUDA_F32) && nn_row_form_of(cols, NNCUDA_F32) != NN_ROW_SHORT;
}

/* What the elements of a row are multiplied by, beside their gains: the bits of all kernels that norm. A whole block
 * calls it; `sums` has room for NN_WARP elements, and may be used again at once. */
template <int THREADS>
__device__ __forceinline__ float nn_rms_of_row(const float *x, int64_t cols, float eps, float *sums) {
  const nn_row_form form = nn_row_form_of(cols, NNCUDA_F32);
  const float sum = form == NN_ROW_WARP    ? nn_rms_sum_as<nn_row_shape<NN_ROW_WARP, float>, THREADS>(x, cols, sums)
                    : form == NN_ROW_BLOCK ? nn_rms_sum_as<nn_row_shape<NN_ROW_BLOCK, float>, THREADS>(x, cols, sums)
                                           : nn_rms_sum_as<nn_row_shape<NN_ROW_LONG, float>, THREADS>(x, cols, sums);
  return nn_rms_of(sum, cols, eps);
}

/*
 * put(i, x) for each run i of four elements of a row, or of several that are not normed, which is normed where there
 * are gains, and has zeros from element `end` on; by a block of THREADS threads. Whole warps come to `put`, some lanes
 * of them with runs past the end.
 */
template <int THREADS, class PUT>
__device__ __forceinline__ void nn_each_quad(const float *x, const float *gains, float rstd, int64_t quads, int64_t end,
                                             PUT put) {
  constexpr int AHEAD = 3; /* loads; the rest is rolled up, since a block that runs it once waits for instructions */
  const int lane = threadIdx.x % NN_WARP;
  float some[AHEAD + 1][4], gain[AHEAD + 1][4];
  const auto load = [&](int i, int64_t quad) {
    nn_row_load<true>(some[i], x, quad * 4, end, 0.0f);
    if (gains != nullptr) {
      nn_row_load<true>(gain[i], gains, quad * 4, quads * 4, 0.0f);
    }
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) {
    load(i, threadIdx.x + i * THREADS);
  }
#pragma unroll 1
  for (int64_t quad = threadIdx.x; quad - lane < quads; quad += THREADS) { /* whole warps */
    load(AHEAD, quad + AHEAD * THREADS);
    if (gains != nullptr) {
      nn_rms_apply(some[0], rstd, gain[0]);
    }
    put(quad, some[0]);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        some[i][e] = some[i + 1][e];
        gain[i][e] = gain[i + 1][e];
      }
    }
  }
}

#endif

/* RMSNorm of a row in registers (Zhang and Sennrich 2019): all kernels that norm have these bits. */
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

#endif

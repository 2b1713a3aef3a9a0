/*
 * Products that are added to the sum of rows that lie elsewhere: the gradient of a layer's tokens, which comes back
 * from the rows of their experts and through the router. The sum is that of moe_gather_backward, rounded as it rounds
 * it, and what follows is gemm_beta's with beta 1, so that the bits are those of these two calls by the same tiles.
 */
#ifndef NN_KERNELS_GEMM_GATHER_CUH
#define NN_KERNELS_GEMM_GATHER_CUH

#include "kernels/gemm_gate.cuh"

/* Rows whose loads are under way together. By count: three blocks of 128 threads a multiprocessor, 24 KiB. */
constexpr int GEMM_GATHER_AHEAD = 4;

/* Row r, columns c to c + N - 1 of a tile, a multiple of N. */
template <class T, int N>
__device__ __forceinline__ void gemm_put_gathered(const gemm_problem &p, const gemm_place &place, int32_t r, int32_t c,
                                                  const float (&x)[N]) {
  const int64_t row = place.row + r, column = place.column + c;
  const int32_t valid = place.columns - c;
  if (r >= place.rows || valid <= 0) {
    return;
  }
  const bool wide = p.c_wide && valid >= N;
  const T *const rows = static_cast<const T *>(p.rows) + column;
  float sum[N] = {};
  for (int64_t first = row * p.slots; first < (row + 1) * p.slots; first += GEMM_GATHER_AHEAD) {
    int32_t from[GEMM_GATHER_AHEAD];
    float some[GEMM_GATHER_AHEAD][N];
#pragma unroll
    for (int j = 0; j < GEMM_GATHER_AHEAD; j++) {
      from[j] = first + j < (row + 1) * p.slots ? p.slot_row[first + j] : -1;
    }
#pragma unroll
    for (int j = 0; j < GEMM_GATHER_AHEAD; j++) {
      if (from[j] >= 0 && from[j] <= p.row_range.high) {
        gemm_load_some(some[j], rows + from[j] * p.ldc, valid, wide);
      }
    }
#pragma unroll
    for (int j = 0; j < GEMM_GATHER_AHEAD; j++) {
      if (from[j] == -1 || !p.row_range.holds(first + j, from[j])) {
        continue;
      }
#pragma unroll
      for (int e = 0; e < N; e++) {
        sum[e] += some[j][e];
      }
    }
  }
  float y[N];
#pragma unroll
  for (int e = 0; e < N; e++) {
    y[e] = gemm_rounded<T>(sum[e]) + x[e];
  }
  gemm_store_some(static_cast<T *>(p.c) + row * p.ldc + column, y, valid, wide);
}

/* Eight sums of an f32 product are two vectors. */
template <class T, int N>
__device__ __forceinline__ void gemm_put_gathered_any(const gemm_problem &p, const gemm_place &place, int32_t r,
                                                      int32_t c, const float (&x)[N]) {
  constexpr int EACH = sizeof(T) == 2 ? N : 4;
#pragma unroll
  for (int first = 0; first < N; first += EACH) {
    float some[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      some[i] = x[first + i];
    }
    gemm_put_gathered<T, EACH>(p, place, r, c + first, some);
  }
}

#endif

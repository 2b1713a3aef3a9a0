/*
 * Tiles of vectors: up to MR rows by NV vectors of C, summed in registers over one packed depth.
 *
 * The elements of A are broadcast one at a time, from a panel in either layout; each meets the NV vectors of B of its
 * depth. One function a number of rows (even ones: an odd row is padded) and of vectors keeps all sums in registers.
 */
#ifndef NN_CPU_GEMM_TILE_H
#define NN_CPU_GEMM_TILE_H

#include "gemm_job.h"

/* C [rows, nv*VF] = A * B, or += with `add`. Unit p of row r of A lies at [r*row_step + p*unit_step]. */
NN_INLINE void tile_sum(const float *a, const float *b, int64_t depth, float *c, int64_t ldc, int32_t add,
                        const int rows, const int nv, const int row_step, const int unit_step) {
  vf sum[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
      sum[r][v] = vf_set1(0.0f);
      __builtin_prefetch(c + r * ldc + v * VF, 1);
    }
  }
#pragma GCC unroll 2
  for (int64_t p = 0; p < depth; p++) {
    vf x[NV];
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
      x[v] = vf_load(b + v * VF);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
      const vf y = vf_set1(a[r * row_step]);
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) {
        sum[r][v] = unit_dot(y, x[v], sum[r][v]);
      }
    }
    a += unit_step;
    b += nv * VF;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
      float *to = c + r * ldc + v * VF;
      if (add) {
        sum[r][v] += vf_load(to);
      }
      vf_store(to, sum[r][v]);
    }
  }
}

typedef void (*tile_function)(const float *a, const float *b, int64_t depth, float *c, int64_t ldc, int32_t add);

#define TILE(layout, height, nv, row_step, unit_step)                                                                  \
  static void tile_##layout##_##height##_##nv(const float *a, const float *b, int64_t depth, float *c, int64_t ldc,    \
                                              int32_t add) {                                                           \
    tile_sum(a, b, depth, c, ldc, add, height, nv, row_step, unit_step);                                               \
  }
#define TILES_OF(height)                                                                                               \
  TILE(rows, height, 1, DEPTH, 1)                                                                                      \
  TILE(rows, height, 2, DEPTH, 1)                                                                                      \
  TILE(lanes, height, 1, 1, MR)                                                                                        \
  TILE(lanes, height, 2, 1, MR)
#define TILE_NAMES(height)                                                                                             \
  {{tile_rows_##height##_1, tile_rows_##height##_2}, {tile_lanes_##height##_1, tile_lanes_##height##_2}},

TILES_OF(2)
TILES_OF(4)
TILES_OF(6)
#if NN_SIMD_AVX512
TILES_OF(8)
TILES_OF(10)
TILES_OF(12)
TILES_OF(14)
#endif

/* By (rows - 1) / 2, layout of A (0 rows, 1 lanes), vectors - 1. */
static const tile_function tiles[][2][NV] = {TILE_NAMES(2) TILE_NAMES(4) TILE_NAMES(6)
#if NN_SIMD_AVX512
                                                 TILE_NAMES(8) TILE_NAMES(10) TILE_NAMES(12) TILE_NAMES(14)
#endif
};

#undef TILE
#undef TILES_OF
#undef TILE_NAMES

#endif

/*
 * Tiles of vectors: up to MR rows by NV vectors of C, summed in registers over one packed depth.
 *
 * The elements of A are broadcast one at a time, from a panel in either layout; each meets the NV vectors of B of its
 * depth. One function a number of rows and of vectors keeps all sums in registers.
 */
#ifndef NN_CPU_GEMM_TILE_H
#define NN_CPU_GEMM_TILE_H

#include "gemm_job.h"

/* What is fetched while tiles are summed, a few lines every STEP units: many at once would keep those of B waiting. */
enum { STEP = 16 };
typedef struct tile_background {
  const char *a, *end;     /* the next line of the next panel of A, and the end of its row */
  int64_t a_step, a_bytes; /* from row to row, and in a row */
  int64_t a_rows;          /* yet to be fetched */
  int64_t a_lines;         /* a step */
} tile_background;

/* The panel of A that comes next, to be fetched within `steps` steps. */
NN_INLINE void background_next(tile_background *t, const char *a, int64_t step, int64_t rows, int64_t bytes,
                               int64_t steps) {
  t->a = a;
  t->end = a + bytes;
  t->a_step = step;
  t->a_bytes = bytes;
  t->a_rows = rows;
  t->a_lines = nn_ceil_div(rows * nn_ceil_div(bytes, 64), steps < 1 ? 1 : steps);
}

NN_INLINE void background_fetch(tile_background *t) {
  const char *a = t->a;
  if (t->a_rows <= 0) {
    return;
  }
  for (int64_t i = 0; i < t->a_lines; i++, a += 64) {
    __builtin_prefetch(a, 0, 2);
  }
  if (a >= t->end) {
    t->end += t->a_step;
    a = t->end - t->a_bytes;
    t->a_rows--;
  }
  t->a = a;
}

/* C [rows, nv*VF] = A * B, or += with `add`. Unit p of row r of A lies at [r*row_step + p*unit_step]. */
NN_INLINE void tile_sum(const float *a, int64_t row_step, const float *b, int64_t depth, float *c, int64_t ldc,
                        int32_t add, tile_background *background, const int rows, const int nv, const int unit_step) {
  vf sum[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      sum[r][v] = vf_set1(0.0f);
    }
  }
  /* Rows of C are fetched one a step, shortly before they are needed: the passing panel of B would push them out. */
  const float *next = c;
  const int64_t c_from = depth - STEP * (rows + 2), c_to = depth - STEP * 2;
  for (int64_t from = 0; from < depth; from += STEP) {
    if (from >= c_from && from < c_to) {
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) {
        __builtin_prefetch(next + v * VF, 1);
      }
      next += ldc;
    }
    background_fetch(background);
    const int64_t steps = depth - from < STEP ? depth - from : STEP;
#pragma GCC unroll 2
    for (int64_t p = 0; p < steps; p++) {
      vf x[NV];
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) {
        x[v] = vf_load(b + v * VF);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; r++) {
        const vf y = vf_set1(a[r * row_step]);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
          sum[r][v] = unit_dot(y, x[v], sum[r][v]);
        }
      }
      a += unit_step;
      b += nv * VF;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      float *to = c + r * ldc + v * VF;
      if (add) {
        sum[r][v] += vf_load(to);
      }
      vf_store(to, sum[r][v]);
    }
  }
}

typedef void (*tile_function)(const float *a, int64_t row_step, const float *b, int64_t depth, float *c, int64_t ldc,
                              int32_t add, tile_background *background);

#define TILE(height, nv)                                                                                               \
  static void tile_rows_##height##_##nv(const float *a, int64_t row_step, const float *b, int64_t depth, float *c,     \
                                        int64_t ldc, int32_t add, tile_background *background) {                       \
    tile_sum(a, row_step, b, depth, c, ldc, add, background, height, nv, 1);                                           \
  }                                                                                                                    \
  static void tile_lanes_##height##_##nv(const float *a, int64_t row_step, const float *b, int64_t depth, float *c,    \
                                         int64_t ldc, int32_t add, tile_background *background) {                      \
    (void)row_step;                                                                                                    \
    tile_sum(a, 1, b, depth, c, ldc, add, background, height, nv, A_LANES);                                            \
  }
#if NN_SIMD_AVX512
#define TILES_OF(height) TILE(height, 1) TILE(height, 2) TILE(height, 3)
#define TILE_NAMES(layout, height)                                                                                     \
  {tile_##layout##_##height##_1, tile_##layout##_##height##_2, tile_##layout##_##height##_3},
#else
#define TILES_OF(height) TILE(height, 1) TILE(height, 2)
#define TILE_NAMES(layout, height) {tile_##layout##_##height##_1, tile_##layout##_##height##_2},
#endif

#if NN_SIMD_AVX512
#define TILES(of, ...)                                                                                                 \
  of(__VA_ARGS__ 1) of(__VA_ARGS__ 2) of(__VA_ARGS__ 3) of(__VA_ARGS__ 4) of(__VA_ARGS__ 5) of(__VA_ARGS__ 6)          \
      of(__VA_ARGS__ 7) of(__VA_ARGS__ 8)
#else
#define TILES(of, ...)                                                                                                 \
  of(__VA_ARGS__ 1) of(__VA_ARGS__ 2) of(__VA_ARGS__ 3) of(__VA_ARGS__ 4) of(__VA_ARGS__ 5) of(__VA_ARGS__ 6)
#endif
TILES(TILES_OF)

/* By layout of A (0 rows, 1 lanes), rows - 1, vectors - 1. */
static const tile_function tiles[2][MR][NV] = {{TILES(TILE_NAMES, rows, )}, {TILES(TILE_NAMES, lanes, )}};

#undef TILE
#undef TILES_OF
#undef TILE_NAMES
#undef TILES

#endif

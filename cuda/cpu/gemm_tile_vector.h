/*
 * Tiles of vectors: up to GEMM_MR rows by GEMM_NV vectors of C, summed in registers over one packed depth.
 *
 * The elements of A are broadcast one at a time, from a panel in either layout; each meets the GEMM_NV vectors of B of
 * its depth. One function a number of rows and of vectors keeps all sums in registers.
 */
#ifndef NN_CPU_GEMM_TILE_VECTOR_H
#define NN_CPU_GEMM_TILE_VECTOR_H

#include "gemm_pack.h"
#include "gemm_store.h"

/* What is fetched while tiles are summed, a few lines every GEMM_FETCH_STEP units: many at once would keep those of B
 * waiting. */
enum { GEMM_FETCH_STEP = 16 };
typedef struct tile_background {
  const char *a, *end;     /* the next line of the next panel of A, and the end of its row */
  int64_t a_step, a_bytes; /* from row to row, and in a row */
  int64_t a_rows;          /* yet to be fetched */
  int64_t a_lines;         /* a step */
} tile_background;

/* The next panel is fetched, and never packed: 0. */
NN_INLINE int32_t background_next(tile_background *t, const gemm_next *next, float *to) {
  (void)to;
  const int64_t bytes = next->k * next->bytes, steps = next->tiles * next->units / GEMM_FETCH_STEP;
  t->a = next->a;
  t->end = next->a + bytes;
  t->a_step = next->step;
  t->a_bytes = bytes;
  t->a_rows = next->rows;
  t->a_lines = nn_ceil_div(next->rows * nn_ceil_div(bytes, 64), steps < 1 ? 1 : steps);
  return 0;
}

NN_INLINE void background_end(tile_background *t, int64_t units) { (void)t, (void)units; }
NN_INLINE void background_store(tile_background *t) { (void)t; }
NN_INLINE void background_touches(tile_background *t, const void *c, int64_t ld, int32_t dtype) {
  (void)t, (void)c, (void)ld, (void)dtype;
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
NN_INLINE void vectors_sum(const float *a, int64_t row_step, const float *b, int64_t depth, float *c, int64_t ldc,
                           int32_t add, tile_background *background, const int rows, const int nv,
                           const int unit_step) {
  vf sum[GEMM_MR][GEMM_NV];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      sum[r][v] = vf_set1(0.0f);
    }
  }
  /* Rows of C are fetched one a step, shortly before they are needed: the passing panel of B would push them out. */
  const float *next = c;
  const int64_t c_from = depth - GEMM_FETCH_STEP * (rows + 2), c_to = depth - GEMM_FETCH_STEP * 2;
  for (int64_t from = 0; from < depth; from += GEMM_FETCH_STEP) {
    if (from >= c_from && from < c_to) {
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) {
        __builtin_prefetch(next + v * VF, 1);
      }
      next += ldc;
    }
    background_fetch(background);
    const int64_t steps = depth - from < GEMM_FETCH_STEP ? depth - from : GEMM_FETCH_STEP;
#pragma GCC unroll 2
    for (int64_t p = 0; p < steps; p++) {
      vf x[GEMM_NV];
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
        sum[r][v] = vf_add(sum[r][v], vf_load(to));
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
    vectors_sum(a, row_step, b, depth, c, ldc, add, background, height, nv, 1);                                        \
  }                                                                                                                    \
  static void tile_lanes_##height##_##nv(const float *a, int64_t row_step, const float *b, int64_t depth, float *c,    \
                                         int64_t ldc, int32_t add, tile_background *background) {                      \
    (void)row_step;                                                                                                    \
    vectors_sum(a, 1, b, depth, c, ldc, add, background, height, nv, GEMM_A_LANES);                                    \
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
static const tile_function tiles[2][GEMM_MR][GEMM_NV] = {{TILES(TILE_NAMES, rows, )}, {TILES(TILE_NAMES, lanes, )}};

#undef TILE
#undef TILES_OF
#undef TILE_NAMES
#undef TILES

NN_INLINE void tiles_open(void) {}
NN_INLINE void tiles_close(void) {}

NN_INLINE void pack_across(float *to, const char *from, int64_t ld, int64_t rows, int64_t k, int64_t units,
                           int32_t dtype) {
  pack_lanes(to, GEMM_PANEL, GEMM_A_LANES, GEMM_A_LANES, from, ld, rows, k, units, dtype);
}

/* Whole units from anywhere. */
NN_INLINE int32_t tile_reads(const nn_gemm_args *x, const char *a, int64_t columns, int64_t rows, int64_t k,
                             int64_t units) {
  (void)x, (void)a, (void)columns, (void)rows, (void)units;
  return k % GEMM_UNIT == 0;
}

/* Padding is not multiplied. */
NN_INLINE int64_t tile_units(int64_t k, int64_t units) {
  (void)units;
  return nn_ceil_div(k, GEMM_UNIT);
}

/* Rows up to panel_rows(rows), columns up to `width`, on top of `from` unless that is null, else the same as `to`. */
NN_INLINE void tile_sum(int32_t lanes, const float *a, int64_t a_step, const float *b, int64_t units, const float *from,
                        float *to, int64_t ld, int64_t rows, int64_t width, tile_background *background) {
  tiles[lanes][rows - 1][width / VF - 1](a, a_step, b, units, to, ld, from != NULL, background);
}

NN_INLINE void tile_finish(int32_t lanes, const float *a, int64_t a_step, const float *b, int64_t units, float *from,
                           float (*sums)[GEMM_MR * GEMM_NR], int64_t rows, int64_t width, const gemm_target *target,
                           tile_background *background) {
  float *to = from == NULL ? sums[0] : from;
  tile_sum(lanes, a, a_step, b, units, from, to, width, rows, width, background);
  target_store(target, to, width);
}

#endif

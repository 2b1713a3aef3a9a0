/*
 * Sums of units of packed weights with VNNI: the fields are multiplied where they stand. Masked but not shifted they
 * are the codes times 1, 4, 16 and 64, which have a sum each and come out at the end by shifts that are exact; the
 * largest, 192 * 128 * k / 4, stays below 2^31. That is eight instructions on two ports for 64 bytes of weights and one
 * row of activations, four cycles.
 */
#ifndef NN_CPU_TERNARY_GEMM_VNNI_H
#define NN_CPU_TERNARY_GEMM_VNNI_H

#include "ternary_gemm_unit.h"

enum { TERNARY_ROWS_MOST = 6, TERNARY_UNITS_MOST = 4 };

/* of(rows) for each number of rows below TERNARY_ROWS_MOST. */
#define TERNARY_FEWER_ROWS(of) of(1) of(2) of(3) of(4) of(5)

/* The units of a pass with that many rows of activations: 24 sums are what the registers hold. */
NN_INLINE int units_of(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

/* The sums of one field of two bits: `mask` where it stands, x where its columns begin in each row. */
NN_INLINE void field_product(lanes_i32 sum[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], const vi w[TERNARY_UNITS_MOST],
                             vi mask, const int8_t *x, int64_t depth, const int rows, const int units) {
  vi codes[TERNARY_UNITS_MOST];
#pragma GCC unroll 4
  for (int u = 0; u < units; u++) {
    codes[u] = unit_and(w[u], mask);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    const vi four = four_columns(x + r * depth);
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
      sum[r][u] = (lanes_i32)_mm512_dpbusd_epi32((vi)sum[r][u], codes[u], four);
    }
  }
}

NN_INLINE void unit_product(const unit_pass *p, const int rows, const int units) {
  const vi m0 = unit_words(0x03030303), m1 = unit_words(0x0c0c0c0c), m2 = unit_words(0x30303030);
  const vi m3 = unit_words((int32_t)0xc0c0c0c0);
  const unit_pass t = *p;
  lanes_i32 s0[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], s1[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST];
  lanes_i32 s2[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], s3[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
      s0[r][u] = s1[r][u] = s2[r][u] = s3[r][u] = (lanes_i32)unit_zero();
    }
  }
  for (int64_t c = 0; c < t.depth; c += TERNARY_STEP) {
    vi w[TERNARY_UNITS_MOST];
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
      w[u] = unit_load(t.w[u] + c * 4);
      __builtin_prefetch(t.fetch[u] + c * 4, 0, 2);
    }
    field_product(s0, w, m0, t.x + c, t.depth, rows, units);
    field_product(s1, w, m1, t.x + c + 4, t.depth, rows, units);
    field_product(s2, w, m2, t.x + c + 8, t.depth, rows, units);
    field_product(s3, w, m3, t.x + c + 12, t.depth, rows, units);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
      unit_store(t.sums + r * t.ld + u * TERNARY_UNIT,
                 (vi)(s0[r][u] + (s1[r][u] >> 2) + (s2[r][u] >> 4) + (s3[r][u] >> 6)));
    }
  }
}

#endif

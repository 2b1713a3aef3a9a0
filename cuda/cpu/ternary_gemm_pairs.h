/*
 * Sums of units of packed weights without VNNI: products go through 16 bits, where the fields must be shifted, and are
 * added there over eight steps: at most 8 * 8 * 3 * 128.
 */
#ifndef NN_CPU_TERNARY_GEMM_PAIRS_H
#define NN_CPU_TERNARY_GEMM_PAIRS_H

#include "ternary_gemm_unit.h"

enum { TERNARY_ROWS_MOST = 4, TERNARY_UNITS_MOST = 2, TERNARY_STEPS_AT_ONCE = 8 };

/* of(rows) for each number of rows below TERNARY_ROWS_MOST. */
#define TERNARY_FEWER_ROWS(of) of(1) of(2) of(3)

/* The units of a pass with that many rows of activations. */
NN_INLINE int units_of(int rows) { return rows == 1 ? 2 : 1; }

/* The sums of one field of two bits, shifted down: x where its columns begin in each row. */
NN_INLINE void field_product(lanes_i16 half[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], const vi w[TERNARY_UNITS_MOST],
                             const int field, vi mask, const int8_t *x, int64_t depth, const int rows,
                             const int units) {
  vi codes[TERNARY_UNITS_MOST];
#pragma GCC unroll 2
  for (int u = 0; u < units; u++) {
    codes[u] = unit_and(field == 0 ? w[u] : unit_shift(w[u], 2 * field), mask);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    const vi four = four_columns(x + r * depth);
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      half[r][u] += unit_dot(codes[u], four);
    }
  }
}

NN_INLINE void unit_product(const unit_pass *p, const int rows, const int units) {
  const vi mask = unit_words(0x03030303);
  const unit_pass t = *p;
  lanes_i32 sum[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      sum[r][u] = (lanes_i32)unit_zero();
    }
  }
  for (int64_t first = 0; first < t.depth; first += TERNARY_STEPS_AT_ONCE * TERNARY_STEP) {
    const int64_t end = nn_min(first + TERNARY_STEPS_AT_ONCE * TERNARY_STEP, t.depth);
    lanes_i16 half[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
      for (int u = 0; u < units; u++) {
        half[r][u] = (lanes_i16)unit_zero();
      }
    }
    for (int64_t c = first; c < end; c += TERNARY_STEP) {
      vi w[TERNARY_UNITS_MOST];
#pragma GCC unroll 2
      for (int u = 0; u < units; u++) {
        w[u] = unit_load(t.w[u] + c * 4);
        __builtin_prefetch(t.fetch[u] + c * 4, 0, 2);
      }
      field_product(half, w, 0, mask, t.x + c, t.depth, rows, units);
      field_product(half, w, 1, mask, t.x + c + 4, t.depth, rows, units);
      field_product(half, w, 2, mask, t.x + c + 8, t.depth, rows, units);
      field_product(half, w, 3, mask, t.x + c + 12, t.depth, rows, units);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
      for (int u = 0; u < units; u++) {
        sum[r][u] += unit_widen(half[r][u]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      unit_store(t.sums + r * t.ld + u * TERNARY_UNIT, (vi)sum[r][u]);
    }
  }
}

#endif

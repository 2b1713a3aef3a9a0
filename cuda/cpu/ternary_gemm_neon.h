/*
 * Sums of units of packed weights on NEON: a field of two bits is shifted down and multiplied as bytes, whose sums have
 * 32 bits from the start.
 */
#ifndef NN_CPU_TERNARY_GEMM_NEON_H
#define NN_CPU_TERNARY_GEMM_NEON_H

#include "dot_neon.h"
#include "ternary_gemm_unit.h"

enum { TERNARY_ROWS_MOST = 4, TERNARY_UNITS_MOST = 2 };

/* of(rows) for each number of rows below TERNARY_ROWS_MOST. */
#define TERNARY_FEWER_ROWS(of) of(1) of(2) of(3)

/* The units of a pass with that many rows of activations. */
NN_INLINE int units_of(int rows) { return rows <= 2 ? 2 : 1; }

/* The codes of one field, and their sums: x where its columns begin in each row. */
NN_INLINE void field_product(vw sum[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], const vw w[TERNARY_UNITS_MOST],
                             const int field, const int8_t *x, int64_t depth, const int rows, const int units) {
  vw codes[TERNARY_UNITS_MOST];
#pragma GCC unroll 2
  for (int u = 0; u < units; u++) {
    const uint8x16_t low = vreinterpretq_u8_u32(w[u].low) >> 2 * field;
    const uint8x16_t high = vreinterpretq_u8_u32(w[u].high) >> 2 * field;
    codes[u] = (vw){vreinterpretq_u32_u8(low), vreinterpretq_u32_u8(high)};
    if (field < 3) {
      codes[u] = vw_and(codes[u], vw_set1(0x03030303));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    const vw four = four_columns(x + r * depth);
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      sum[r][u] = dot_words(sum[r][u], codes[u], four);
    }
  }
}

NN_INLINE void unit_product(const unit_pass *p, const int rows, const int units) {
  const unit_pass t = *p;
  vw sum[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      sum[r][u] = vw_set1(0);
    }
  }
  for (int64_t c = 0; c < t.depth; c += TERNARY_STEP) {
    vw w[TERNARY_UNITS_MOST];
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      w[u] = vw_load(t.w[u] + c * 4);
      __builtin_prefetch(t.fetch[u] + c * 4, 0, 2);
    }
    field_product(sum, w, 0, t.x + c, t.depth, rows, units);
    field_product(sum, w, 1, t.x + c + 4, t.depth, rows, units);
    field_product(sum, w, 2, t.x + c + 8, t.depth, rows, units);
    field_product(sum, w, 3, t.x + c + 12, t.depth, rows, units);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int u = 0; u < units; u++) {
      vw_store(t.sums + r * t.ld + u * TERNARY_UNIT, sum[r][u]);
    }
  }
}

#endif

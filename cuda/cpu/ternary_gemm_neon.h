/*
 * Sums of units of packed weights on NEON: a field of two bits is shifted down and multiplied as bytes, whose sums have
 * 32 bits from the start.
 */
#ifndef NN_CPU_TERNARY_GEMM_NEON_H
#define NN_CPU_TERNARY_GEMM_NEON_H

#include "dot_neon.h"
#include "pair_neon.h"
#include "ternary_gemm_unit.h"

enum { TERNARY_ROWS_MOST = 4, TERNARY_UNITS_MOST = 2 };

/* of(rows) for each number of rows below TERNARY_ROWS_MOST. */
#define TERNARY_FEWER_ROWS(of) of(1) of(2) of(3)

/* The units of a pass with that many rows of activations. */
NN_INLINE int units_of(int rows) { return rows <= 2 ? 2 : 1; }

NN_INLINE vw field_codes(vw w, const int field) {
  const vw codes = {vreinterpretq_u32_u8(vreinterpretq_u8_u32(w.low) >> 2 * field),
                    vreinterpretq_u32_u8(vreinterpretq_u8_u32(w.high) >> 2 * field)};
  return field < 3 ? vw_and(codes, vw_set1(0x03030303)) : codes;
}

#if NN_NEON_PAIRS
/* A unit with TERNARY_ROWS_MOST rows of activations: two fields are eight columns of each row. */
NN_INLINE void unit_pairs(const unit_pass *p) {
  const unit_pass t = *p;
  pair_sums sum[TERNARY_ROWS_MOST / 2];
#pragma GCC unroll 2
  for (int i = 0; i < TERNARY_ROWS_MOST / 2; i++) {
    sum[i] = pair_zero();
  }
  for (int64_t c = 0; c < t.depth; c += TERNARY_STEP) {
    const vw w = vw_load(t.w[0] + c * 4);
    __builtin_prefetch(t.fetch[0] + c * 4, 0, 2);
    const pair_weights first = pair_of_words(field_codes(w, 0), field_codes(w, 1));
    const pair_weights second = pair_of_words(field_codes(w, 2), field_codes(w, 3));
#pragma GCC unroll 2
    for (int i = 0; i < TERNARY_ROWS_MOST / 2; i++) {
      const int8_t *x = t.x + c + 2 * i * t.depth;
      sum[i] = pair_dot(sum[i], first, pair_activations(x, t.depth));
      sum[i] = pair_dot(sum[i], second, pair_activations(x + 8, t.depth));
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < TERNARY_ROWS_MOST / 2; i++) {
    vw of[2];
    pair_apart(&sum[i], of);
    vw_store(t.sums + 2 * i * t.ld, of[0]);
    vw_store(t.sums + (2 * i + 1) * t.ld, of[1]);
  }
}
#endif

/* The codes of one field, and their sums: x where its columns begin in each row. */
NN_INLINE void field_product(vw sum[TERNARY_ROWS_MOST][TERNARY_UNITS_MOST], const vw w[TERNARY_UNITS_MOST],
                             const int field, const int8_t *x, int64_t depth, const int rows, const int units) {
  vw codes[TERNARY_UNITS_MOST];
#pragma GCC unroll 2
  for (int u = 0; u < units; u++) {
    codes[u] = field_codes(w[u], field);
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
#if NN_NEON_PAIRS
  if (rows == TERNARY_ROWS_MOST && units == 1) {
    unit_pairs(p);
    return;
  }
#endif
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

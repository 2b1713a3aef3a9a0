/*
 * Products with ternary weights in vectors, for few rows or where there are no tile registers.
 *
 * A vector of packed weights has four columns of each of its rows in each of its four fields of two bits: a unit. How
 * units are multiplied is in ternary_gemm_vnni.h, ternary_gemm_pairs.h or ternary_gemm_neon.h, which give the same
 * functions:
 *
 *   units_of       how many units a pass takes beside that many rows of activations
 *   unit_product   their sums
 *
 * Tried: five ternary digits to a byte, which takes a fifth less memory. Two look-ups and two comparisons for 64 bytes
 * make it 10.8 ps a weight on one core of 3.1 GHz beside 5.2 ps here, where reading two bits from memory of 27 GB/s
 * takes 9.3: it would wait for the core instead.
 */
#ifndef NN_CPU_TERNARY_GEMM_VECTOR_H
#define NN_CPU_TERNARY_GEMM_VECTOR_H

#if NN_SIMD_NEON
#include "ternary_gemm_neon.h"
#elif defined(__AVX512VNNI__)
#include "ternary_gemm_vnni.h"
#else
#include "ternary_gemm_pairs.h"
#endif

/* Row r of the activations as it is, zeros after it. */
NN_INLINE void vector_pack_row(const ternary_activations *acts, int64_t r, const int8_t *codes, int64_t k) {
  int8_t *x = (int8_t *)(uintptr_t)acts->x + r * acts->depth;
  int32_t total = 0;
  memcpy(x, codes, (size_t)k);
  memset(x + k, 0, (size_t)(acts->depth - k));
  for (int64_t c = 0; c < k; c++) {
    total += codes[c];
  }
  acts->total[r] = total;
}

/* Units `first` .. `end`-1 with `rows` rows of activations from row `r` of the piece on. */
NN_INLINE void pass_over(const ternary_piece *t, int64_t first, int64_t end, int64_t r, const int rows) {
  const ternary_activations *acts = t->activations;
  unit_pass p = {.x = (const int8_t *)acts->x + (t->row + r) * acts->depth, .depth = acts->depth, .ld = t->ld};
  const int units = units_of(rows);
  for (int64_t u = first; u < end;) {
    const int64_t here = u + units <= end ? units : 1;
    for (int64_t i = 0; i < here; i++) {
      const int64_t panel = (u + i) / TERNARY_PANEL_UNITS, in_panel = (u + i) % TERNARY_PANEL_UNITS * TERNARY_UNIT * 4;
      p.w[i] = t->w + panel * t->panel_bytes + in_panel;
      /* The first rows bring in what comes after these units: as many bytes of it as they read. */
      p.fetch[i] = r > 0 ? p.w[i] : panel_after(t, panel + nn_ceil_div(here, TERNARY_PANEL_UNITS)) + in_panel;
    }
    p.sums = t->sums + r * t->ld + u * TERNARY_UNIT;
    if (here == units) {
      unit_product(&p, rows, units);
    } else {
      unit_product(&p, rows, 1);
    }
    u += here;
  }
}

/* Units that all rows pass over while they are in a cache. */
enum { TERNARY_UNITS_NEAR = 4 };

static void vector_product(const ternary_piece *t) {
  const int64_t units = t->panels * TERNARY_PANEL_UNITS;
  for (int64_t u = 0; u < units; u += TERNARY_UNITS_NEAR) {
    const int64_t end = nn_min(u + TERNARY_UNITS_NEAR, units);
    for (int64_t r = 0; r < t->rows; r += TERNARY_ROWS_MOST) {
      switch (nn_min(TERNARY_ROWS_MOST, t->rows - r)) {
#define CASE(n)                                                                                                        \
  case n:                                                                                                              \
    pass_over(t, u, end, r, n);                                                                                        \
    break;
        TERNARY_FEWER_ROWS(CASE)
      default:
        pass_over(t, u, end, r, TERNARY_ROWS_MOST);
#undef CASE
      }
    }
  }
}

#endif

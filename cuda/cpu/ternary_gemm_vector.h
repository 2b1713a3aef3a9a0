/*
 * Products with ternary weights in vectors, for few rows or where there are no tile registers.
 *
 * A vector of packed weights has four columns of each of its rows in each of its four fields of two bits. With VNNI,
 * the fields are multiplied where they stand: masked but not shifted they are the codes times 1, 4, 16 and 64, which
 * have a sum each and come out at the end by shifts that are exact; the largest, 192 * 128 * k / 4, stays below 2^31.
 * That is eight instructions on two ports for 64 bytes of weights and one row of activations, four cycles. Without VNNI
 * products go through 16 bits, where the fields must be shifted, and are added there over eight steps: at most 8 * 8 *
 * 3 * 128.
 *
 * Tried: five ternary digits to a byte, which takes a fifth less memory. Two look-ups and two comparisons for 64 bytes
 * make it 10.8 ps a weight on one core of 3.1 GHz beside 5.2 ps here, where reading two bits from memory of 27 GB/s
 * takes 9.3: it would wait for the core instead.
 */
#ifndef NN_CPU_TERNARY_GEMM_VECTOR_H
#define NN_CPU_TERNARY_GEMM_VECTOR_H

#include "ternary_gemm_job.h"

#if NN_SIMD_AVX512 || NN_SIMD_AVX2

/* Rows of weights in a vector; the vectors of a panel are its units. */
enum { TERNARY_UNIT = VF, TERNARY_PANEL_UNITS = TERNARY_PANEL / TERNARY_UNIT };

#if NN_SIMD_AVX512
NN_INLINE vi unit_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
NN_INLINE vi unit_and(vi a, vi b) { return _mm512_and_si512(a, b); }
NN_INLINE vi unit_shift(vi a, const unsigned bits) { return _mm512_srli_epi32(a, bits); }
NN_INLINE vi unit_zero(void) { return _mm512_setzero_si512(); }
NN_INLINE void unit_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }
NN_INLINE vi unit_words(int32_t x) { return _mm512_set1_epi32(x); }
#else
NN_INLINE vi unit_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
NN_INLINE vi unit_and(vi a, vi b) { return _mm256_and_si256(a, b); }
NN_INLINE vi unit_shift(vi a, const int bits) { return _mm256_srli_epi32(a, bits); }
NN_INLINE vi unit_zero(void) { return _mm256_setzero_si256(); }
NN_INLINE void unit_store(int32_t *p, vi x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
NN_INLINE vi unit_words(int32_t x) { return _mm256_set1_epi32(x); }
#endif

NN_INLINE vi four_columns(const int8_t *x) {
  int32_t word;
  memcpy(&word, x, sizeof word);
  return unit_words(word);
}

/* What one pass over some units of weights reads and writes. */
typedef struct unit_pass {
  const uint8_t *w[4];     /* of each unit */
  const uint8_t *fetch[4]; /* lines to ask for meanwhile */
  const int8_t *x;
  int64_t depth;
  int32_t *sums;
  int64_t ld;
} unit_pass;

#if defined(__AVX512VNNI__)

enum { TERNARY_ROWS_MOST = 6, TERNARY_UNITS_MOST = 4 };

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

#else

typedef int16_t lanes_i16 __attribute__((vector_size(sizeof(vf))));

#if NN_SIMD_AVX512
NN_INLINE lanes_i16 unit_dot(vi codes, vi x) { return (lanes_i16)_mm512_maddubs_epi16(codes, x); }
NN_INLINE lanes_i32 unit_widen(lanes_i16 a) { return (lanes_i32)_mm512_madd_epi16((vi)a, _mm512_set1_epi16(1)); }
#else
NN_INLINE lanes_i16 unit_dot(vi codes, vi x) { return (lanes_i16)_mm256_maddubs_epi16(codes, x); }
NN_INLINE lanes_i32 unit_widen(lanes_i16 a) { return (lanes_i32)_mm256_madd_epi16((vi)a, _mm256_set1_epi16(1)); }
#endif

enum { TERNARY_ROWS_MOST = 4, TERNARY_UNITS_MOST = 2, TERNARY_STEPS_AT_ONCE = 8 };

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
        CASE(1)
        CASE(2)
        CASE(3)
#if defined(__AVX512VNNI__)
        CASE(4)
        CASE(5)
#endif
      default:
        pass_over(t, u, end, r, TERNARY_ROWS_MOST);
#undef CASE
      }
    }
  }
}

#endif
#endif

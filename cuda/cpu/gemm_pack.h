/*
 * Packing: copies a part of a factor into the layout that the tiles read, as 32-bit units (gemm_job.h).
 *
 * rows: unit p of row r lies at [r*GEMM_DEPTH + p]. This is A as it is stored when k runs along its rows; cheapest,
 * since a tile reads A one element at a time and takes any layout.
 *
 * lanes: unit p of column j lies at [p*width + j] (but see lanes_at). A panel of B, whose columns become the lanes of
 * vectors.
 *
 * The source either has k along its rows ("along"), or across them. `dtype` is a compile-time constant where these are
 * used.
 */
#ifndef NN_CPU_GEMM_PACK_H
#define NN_CPU_GEMM_PACK_H

#include "gemm_job.h"
#include "transpose.h"

/*
 * Where the VF units p of columns j .. j+VF-1 lie in a panel of B of `width` columns. Tile registers load 16 rows of 64
 * bytes: for them these follow each other, which is worth 5 % against rows of the whole panel's width.
 */
NN_INLINE int64_t lanes_at(int64_t p, int64_t j, int64_t width) {
#if NN_GEMM_TILES
  return p / VF * VF * width + j * VF + p % VF * VF;
#else
  return p * width + j;
#endif
}

/*
 * How far ahead rows that lie across k are fetched: processors do not foresee steps that large. Those with AMX do
 * better by themselves, into L2, than by instructions, which share the 16 lines that a core's L1 waits for: without
 * these, grouped products of 256 x 512 take 12 % less with B in L3 (and 2 % more with it in no cache), gradients of
 * weights 6 to 16 % less. Rows along k are another matter: fetching them gains 3 to 5 % from memory, as much as it
 * costs from L3.
 */
#if NN_GEMM_TILES
enum { GEMM_PREFETCH_ROWS = 0 };
#else
enum { GEMM_PREFETCH_ROWS = 8 };
#endif

/* Units p .. p+VF-1 of a row that holds `k` elements from `row` on. Lanes from k on are zero. */
NN_INLINE vf units_along(const void *row, int64_t p, int64_t k, int32_t dtype) {
#if NN_GEMM_PAIRS
  (void)dtype;
  const uint16_t *x = (const uint16_t *)row + GEMM_UNIT * p;
  const int64_t left = k - GEMM_UNIT * p;
  if (left >= GEMM_UNIT * VF) {
    return _mm512_loadu_ps((const float *)(const void *)x);
  }
  if (left <= 0) {
    return vf_set1(0.0f);
  }
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1u), x));
#else
  const int64_t left = k - p;
  if (left >= VF) {
    return vf_load_as(row, p, dtype);
  }
  return left <= 0 ? vf_set1(0.0f) : vf_load_part_as(row, p, left, dtype);
#endif
}

/* Unit p of columns j .. j+VF-1 of a matrix whose rows lie along k and hold `columns`. Lanes from `columns` on are
 * zero. */
NN_INLINE vf units_across(const void *x, int64_t ld, int64_t p, int64_t k, int64_t j, int64_t columns, int32_t dtype) {
  const int64_t left = columns - j;
  if (left <= 0) {
    return vf_set1(0.0f);
  }
#if NN_GEMM_PAIRS
  (void)dtype;
  const uint16_t *even = (const uint16_t *)x + GEMM_UNIT * p * ld + j, *odd = even + ld;
  const __mmask16 mask = left >= VF ? (__mmask16)0xffff : vf_mask(left);
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
  if (GEMM_UNIT * p + 1 == k) {
    return _mm512_castsi512_ps(low);
  }
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
  (void)k;
  return vf_load_upto_as(x, p * ld + j, left, dtype);
#endif
}

/* Rows of A, k along: `depth` units of each, padded with zeros, and zero rows up to `padded`. */
NN_INLINE void pack_rows(float *to, const char *from, int64_t ld, int64_t rows, int64_t padded, int64_t k,
                         int64_t depth, int32_t dtype) {
  const int64_t step = ld * nn_dtype_bytes(dtype);
  for (int64_t r = 0; r < padded; r++) {
    const int64_t length = r < rows ? k : 0;
    for (int64_t p = 0; p < depth; p += VF) {
      vf_store(to + r * GEMM_DEPTH + p, units_along(from + r * step, p, length, dtype));
    }
  }
}

/*
 * Panels of `width` columns (the last of `last` columns), `panel` units apart, k across. All panels at once, so that
 * rows are read as far as they go. Stores run past a panel's end by less than a vector when its width is not a multiple
 * of VF; each is then overwritten by the next.
 */
NN_INLINE void pack_lanes(float *to, int64_t panel, int64_t width, int64_t last, const char *from, int64_t ld,
                          int64_t columns, int64_t k, int64_t depth, int32_t dtype) {
  const int64_t units = nn_ceil_div(k, GEMM_UNIT), bytes = nn_dtype_bytes(dtype);
  for (int64_t p = 0; p < depth; p++) {
    const int64_t ahead = (p + GEMM_PREFETCH_ROWS) * GEMM_UNIT;
    for (int64_t row = ahead; GEMM_PREFETCH_ROWS > 0 && row < ahead + GEMM_UNIT && row < k; row++) {
      for (int64_t at = 0; at < columns * bytes; at += 64) {
        __builtin_prefetch(from + row * ld * bytes + at);
      }
    }
    float *panel_at = to;
    for (int64_t j = 0; j < columns; j += width, panel_at += panel) {
      const int64_t wide = columns - j > width ? width : last;
      for (int64_t v = 0; v < wide; v += VF) {
        vf_store(panel_at + lanes_at(p, v, wide),
                 p < units ? units_across(from, ld, p, k, j + v, columns, dtype) : vf_set1(0.0f));
      }
    }
  }
}

/* A panel of `width` columns, k along: VF x VF units are transposed at a time. */
NN_INLINE void pack_lanes_transposed(float *to, int64_t width, const char *from, int64_t ld, int64_t columns, int64_t k,
                                     int64_t depth, int32_t dtype) {
  const int64_t step = ld * nn_dtype_bytes(dtype);
  for (int64_t j = 0; j < width; j += VF) {
    for (int64_t p = 0; p < depth; p += VF) {
      vf x[VF];
      /* Each line is loaded once, whole: rows a power of two apart share few sets of L1 and would not stay there. For
       * the same reason the next VF rows are fetched to L2; past the end of B that does nothing. */
      for (int64_t i = 0; i < VF; i++) {
        __builtin_prefetch(from + (j + VF + i) * step + p * GEMM_UNIT * nn_dtype_bytes(dtype), 0, 2);
        x[i] = units_along(from + (j + i) * step, p, j + i < columns ? k : 0, dtype);
      }
      transpose(x);
      for (int64_t i = 0; i < VF; i++) {
        vf_store(to + lanes_at(p + i, j, width), x[i]);
      }
    }
  }
}

/* Panels of GEMM_MR rows of A, k across: for tile registers, which want rows. */
NN_INLINE void pack_rows_transposed(float *to, const char *from, int64_t ld, int64_t rows, int64_t padded, int64_t k,
                                    int64_t depth, int32_t dtype) {
  const int64_t units = nn_ceil_div(k, GEMM_UNIT);
  for (int64_t p = 0; p < depth; p += VF) {
    for (int64_t r = 0; r < padded; r += VF) {
      vf x[VF];
      for (int64_t i = 0; i < VF; i++) {
        x[i] = p + i < units ? units_across(from, ld, p + i, k, r, rows, dtype) : vf_set1(0.0f);
      }
      transpose(x);
      for (int64_t i = 0; i < VF; i++) {
        vf_store(to + r / GEMM_MR * GEMM_PANEL + (r % GEMM_MR + i) * GEMM_DEPTH + p, x[i]);
      }
    }
  }
}

#endif

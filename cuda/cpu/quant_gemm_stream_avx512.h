/*
 * Products of few rows with block formats (AVX-512): they wait for memory. Weights are read once, as they lie; 16 rows
 * of them are summed side by side, one a lane. The integers of two blocks come from one vector of a row; a tree of
 * exact additions brings those of 16 rows into one vector a block.
 */
#ifndef NN_CPU_QUANT_GEMM_STREAM_AVX512_H
#define NN_CPU_QUANT_GEMM_STREAM_AVX512_H

#include "quant_gemm_codes_avx512.h"
#include "quant_gemm_rows.h"

/* Four vectors of a row each: in each 128-bit lane the sums of that lane of the four. */
NN_INLINE __m512i quant_add_quads(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i odd = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
  const __m512i ab = _mm512_add_epi32(_mm512_mask_blend_epi32(0xaaaa, a, b), _mm512_permutex2var_epi32(a, odd, b));
  const __m512i cd = _mm512_add_epi32(_mm512_mask_blend_epi32(0xaaaa, c, d), _mm512_permutex2var_epi32(c, odd, d));
  return _mm512_add_epi32(_mm512_mask_blend_epi32(0xcccc, ab, cd),
                          (__m512i)_mm512_shuffle_pd((__m512d)ab, (__m512d)cd, 0x55));
}

/* From four of those: the integers of the first and the second block of 16 rows. */
NN_INLINE void quant_add_halves(const __m512i z[4], __m512i *first, __m512i *second) {
  const __m512i low = _mm512_add_epi32(_mm512_shuffle_i32x4(z[0], z[1], 0x88), _mm512_shuffle_i32x4(z[0], z[1], 0xdd));
  const __m512i high = _mm512_add_epi32(_mm512_shuffle_i32x4(z[2], z[3], 0x88), _mm512_shuffle_i32x4(z[2], z[3], 0xdd));
  *first = _mm512_shuffle_i32x4(low, high, 0x88);
  *second = _mm512_shuffle_i32x4(low, high, 0xdd);
}

/* The scales of the four parts of 16 elements in blocks 2i and 2i+1 of rows 4j .. 4j+3, as quant_add_quads gives
 * their integers. */
NN_INLINE __m512i quant_part_scales(__m512i four, const int j) {
  const __m512i rows = j == 0   ? _mm512_shuffle_i32x4(four, four, 0x00)
                       : j == 1 ? _mm512_shuffle_i32x4(four, four, 0x55)
                       : j == 2 ? _mm512_shuffle_i32x4(four, four, 0xaa)
                                : _mm512_shuffle_i32x4(four, four, 0xff);
  /* Byte l of each row's four into the highest of its lane in 128-bit lane l; the rest zero. */
  const __m512i to =
      _mm512_setr_epi32(0x00ffffff, 0x04ffffff, 0x08ffffff, 0x0cffffff, 0x01ffffff, 0x05ffffff, 0x09ffffff, 0x0dffffff,
                        0x02ffffff, 0x06ffffff, 0x0affffff, 0x0effffff, 0x03ffffff, 0x07ffffff, 0x0bffffff, 0x0fffffff);
  return _mm512_srai_epi32(_mm512_shuffle_epi8(rows, to), 24);
}

/* Blocks 2i and 2i+1 of 16 rows into their sums. */
NN_INLINE void quant_stream_step(quant_rows *w, uint64_t i, int32_t whole, const quant_activations *acts, int64_t first,
                                 int64_t k, vf *sum, const int rows, const int32_t format) {
  const int64_t blocks = k / QUANT_BLOCK;
  const int32_t offset = quant_offset(format);
  __m512i x[QUANT_ROWS_AT_ONCE], start[QUANT_ROWS_AT_ONCE], z[QUANT_ROWS_AT_ONCE][4];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    const int8_t *codes = acts->codes + (first + r) * k + (int64_t)i * 2 * QUANT_BLOCK;
    x[r] = _mm512_maskz_loadu_epi8(whole ? ~(__mmask64)0 : 0xffffffff, codes);
    start[r] = _mm512_setzero_si512();
    if (offset >= 0) { /* what the offset of all codes contributes */
      const __m512i each = quant_dot(start[r], _mm512_set1_epi8(1), x[r], NNCUDA_FORMAT_Q4_0);
      start[r] = _mm512_sub_epi32(start[r], _mm512_slli_epi32(each, (unsigned)offset));
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    __m512i c[4];
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) {
      c[l] = quant_codes(w->row[4 * j + l], i, whole, format);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      z[r][j] = quant_add_quads(quant_dot(start[r], c[0], x[r], format), quant_dot(start[r], c[1], x[r], format),
                                quant_dot(start[r], c[2], x[r], format), quant_dot(start[r], c[3], x[r], format));
    }
  }
  if (nn_format_has_factors(format)) {
    const __m512i four = (__m512i)quant_factor_bytes(w, i, 0, format);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const __m512i scales = quant_part_scales(four, j);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        z[r][j] = _mm512_mullo_epi32(z[r][j], scales);
      }
    }
  }
  vf least[4];
  if (nn_format_has_part_minima(format)) {
    const vw four = quant_factor_bytes(w, i, 1, format);
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
      least[p] = vw_converted(quant_signed_byte(four, p));
    }
  }
  __m512i both[QUANT_ROWS_AT_ONCE][2];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    quant_add_halves(z[r], &both[r][0], &both[r][1]);
  }
  for (int h = 0; h < (whole ? 2 : 1); h++) {
    vf scale, minimum = vf_set1(0.0f);
    quant_factors(w, 2 * i + (uint64_t)h, &scale, &minimum, format);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      const int64_t at = (first + r) * blocks + 2 * (int64_t)i + h;
      sum[r] = vf_fma(vf_set1(acts->scale[at]) * scale, _mm512_cvtepi32_ps(both[r][h]), sum[r]);
      if (nn_format_has_part_minima(format)) {
        const vf integers = quant_least_integers(acts->sums + 2 * at, least[2 * h], least[2 * h + 1]);
        sum[r] = vf_fma(vf_set1(acts->scale[at]) * minimum, integers, sum[r]);
      }
      if (nn_format_has_minimum(format)) {
        sum[r] = vf_fma(vf_set1(acts->total[at]), minimum, sum[r]);
      }
    }
  }
}

/* All columns of a piece against `rows` rows of the activations from row `r0` on. */
NN_INLINE void quant_stream_rows(const quant_piece *t, int64_t r0, const int rows, const int32_t format) {
  const quant_activations *acts = &t->job->activations[QUANT_FORM_BLOCKS];
  const int64_t first = t->panel->tile * QUANT_ROWS + r0, pairs = t->k / (2 * QUANT_BLOCK);
  const int64_t ahead = 16 * t->row_bytes, step = nn_ceil_div(ahead, (pairs > 0 ? pairs : 1) * 64);
  const int32_t large = nn_format_block_of(format).elements > QUANT_BLOCK;
  for (int64_t c = 0; c < t->columns; c += 16) {
    quant_rows w;
    quant_rows_at(&w, t, c);
    vf sum[QUANT_ROWS_AT_ONCE];
    for (int r = 0; r < rows; r++) {
      sum[r] = vf_set1(0.0f);
    }
    const uintptr_t next = quant_next(t, c, 16);
    uint64_t i = 0; /* unsigned, so that 4 * i + j has a remainder known beforehand */
    int64_t line = 0;
    while (i < (uint64_t)pairs) {
      for (int64_t l = 0; l < step * (large ? 4 : 1); l++, line += 64) {
        __builtin_prefetch((const void *)(next + (uintptr_t)line), 0, 2);
      }
      if (large) { /* 256 elements, so that what differs between their parts is constant */
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
          quant_stream_step(&w, i / 4 * 4 + (uint64_t)j, 1, acts, first, t->k, sum, rows, format);
        }
        i += 4;
      } else {
        quant_stream_step(&w, i, 1, acts, first, t->k, sum, rows, format);
        i++;
      }
    }
    if (!large && t->k % (2 * QUANT_BLOCK) != 0) {
      quant_stream_step(&w, i, 0, acts, first, t->k, sum, rows, format);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      vf_store(t->sums + (r0 + r) * t->ld + c, sum[r]);
    }
  }
}

#endif

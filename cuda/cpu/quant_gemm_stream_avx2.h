/*
 * Products with block formats on AVX2: as in quant_gemm_stream_avx512.h, with vectors of one block of a row, and eight
 * rows of weights side by side.
 */
#ifndef NN_CPU_QUANT_GEMM_STREAM_AVX2_H
#define NN_CPU_QUANT_GEMM_STREAM_AVX2_H

#include "quant_gemm_rows.h"

NN_INLINE __m256i quant_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }

/* 16 bytes: their low halves, then their high ones. */
NN_INLINE __m256i quant_nibbles(const uint8_t *p) {
  const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
  return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_srli_epi16(low, 4), 1),
                          _mm256_set1_epi8(15));
}

/* 32 bits as bytes of 16 or 0. */
NN_INLINE __m256i quant_sixteens(uint32_t bits) {
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits),
                          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i each = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each), _mm256_set1_epi8(16));
}

/* 16 bytes of codes that number the values of a table. */
NN_INLINE __m256i quant_valued(const uint8_t *p, int32_t format) {
  return quant_looked_up(quant_signed(quant_table(quant_table_of(format))), quant_nibbles(p));
}

/* Block i of 32 of a row. For formats of 256 elements, i % 8 is to be a constant. */
NN_INLINE __m256i quant_codes(const uint8_t *row, uint64_t i, int32_t format) {
  const __m256i four = _mm256_set1_epi8(15);
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    return quant_nibbles(row + i * 18 + 2);
  case NNCUDA_FORMAT_Q4_1:
    return quant_nibbles(row + i * 20 + 4);
  case NNCUDA_FORMAT_Q5_0:
    return _mm256_or_si256(quant_nibbles(row + i * 22 + 6), quant_sixteens(quant_u32(row + i * 22 + 2)));
  case NNCUDA_FORMAT_Q5_1:
    return _mm256_or_si256(quant_nibbles(row + i * 24 + 8), quant_sixteens(quant_u32(row + i * 24 + 4)));
  case NNCUDA_FORMAT_Q8_0:
    return quant_signed(quant_load(row + i * 34 + 2));
  case NNCUDA_FORMAT_IQ4_NL:
    return quant_valued(row + i * 18 + 2, format);
  case NNCUDA_FORMAT_MXFP4:
    return quant_valued(row + i * 17 + 1, format);
  case NNCUDA_FORMAT_IQ4_XS:
    return quant_valued(row + i / 8 * 136 + 8 + i % 8 * 16, format);
  case NNCUDA_FORMAT_Q4_K:
  case NNCUDA_FORMAT_Q5_K: {
    const uint64_t part = i % 8;
    const uint8_t *p = row + i / 8 * (format == NNCUDA_FORMAT_Q5_K ? 176 : 144);
    __m256i q = quant_load(p + (format == NNCUDA_FORMAT_Q5_K ? 48 : 16) + part / 2 * 32);
    q = _mm256_and_si256(part % 2 ? _mm256_srli_epi16(q, 4) : q, four);
    if (format == NNCUDA_FORMAT_Q5_K) {
      const __m256i bit = _mm256_set1_epi8((char)(1u << part));
      const __m256i high = _mm256_cmpeq_epi8(_mm256_and_si256(quant_load(p + 16), bit), bit);
      q = _mm256_or_si256(q, _mm256_and_si256(high, _mm256_set1_epi8(16)));
    }
    return q;
  }
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q3_K: {
    const uint64_t part = i % 8;
    const uint8_t *p = row + i / 8 * (format == NNCUDA_FORMAT_Q3_K ? 110 : 84);
    const __m256i all = quant_load(p + (format == NNCUDA_FORMAT_Q3_K ? 32 : 16) + part / 4 * 32);
    const __m256i two = _mm256_and_si256(_mm256_srli_epi16(all, (int)(part % 4 * 2)), _mm256_set1_epi8(3));
    if (format == NNCUDA_FORMAT_Q2_K) {
      return two;
    }
    const __m256i bit = _mm256_set1_epi8((char)(1u << part));
    const __m256i high = _mm256_cmpeq_epi8(_mm256_and_si256(quant_load(p), bit), bit);
    return _mm256_or_si256(two, _mm256_and_si256(high, _mm256_set1_epi8(4)));
  }
  default: {
    const uint64_t half = i % 8 / 4, run = i % 4;
    const uint8_t *p = row + i / 8 * 210;
    const __m256i low = quant_load(p + half * 64 + run % 2 * 32), high = quant_load(p + 128 + half * 32);
    const __m256i two = run == 0   ? _mm256_slli_epi16(high, 4)
                        : run == 1 ? _mm256_slli_epi16(high, 2)
                        : run == 2 ? high
                                   : _mm256_srli_epi16(high, 2);
    return _mm256_or_si256(_mm256_and_si256(run / 2 ? _mm256_srli_epi16(low, 4) : low, four),
                           _mm256_and_si256(two, _mm256_set1_epi8(48)));
  }
  }
}

/* Four rows: in each 128-bit lane their sums of that lane. */
NN_INLINE __m256i quant_add_quads(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* Block i of eight rows into their sums. */
NN_INLINE void quant_stream_step(quant_rows *w, uint64_t i, const quant_activations *acts, int64_t first, int64_t k,
                                 vf *sum, const int rows, const int32_t format) {
  const int64_t blocks = k / QUANT_BLOCK;
  const int32_t offset = quant_offset(format);
  vf scale, minimum = vf_set1(0.0f);
  quant_factors(w, i, &scale, &minimum, format);
  const __m256i zero = _mm256_setzero_si256();
  vw factor[2];
  vf least[2];
  if (nn_format_has_factors(format)) {
    quant_half_factors(w, i, 0, factor, format);
  }
  if (nn_format_has_part_minima(format)) {
    vw minima[2];
    quant_half_factors(w, i, 1, minima, format);
    least[0] = vw_converted(minima[0]);
    least[1] = vw_converted(minima[1]);
  }
  __m256i c[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
    c[j] = quant_codes(w->row[j], i, format);
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
    const int64_t at = (first + r) * blocks + (int64_t)i;
    const __m256i x = quant_load((const uint8_t *)acts->codes + at * QUANT_BLOCK);
    const __m256i a = quant_add_quads(quant_dot(zero, c[0], x, format), quant_dot(zero, c[1], x, format),
                                      quant_dot(zero, c[2], x, format), quant_dot(zero, c[3], x, format));
    const __m256i b = quant_add_quads(quant_dot(zero, c[4], x, format), quant_dot(zero, c[5], x, format),
                                      quant_dot(zero, c[6], x, format), quant_dot(zero, c[7], x, format));
    __m256i lower = _mm256_permute2x128_si256(a, b, 0x20), upper = _mm256_permute2x128_si256(a, b, 0x31);
    if (offset >= 0) { /* what the offset of all codes contributes to each half */
      __m256i each = quant_dot(zero, _mm256_set1_epi8(1), x, NNCUDA_FORMAT_Q4_0);
      each = _mm256_slli_epi32(quant_add_quads(each, each, each, each), offset);
      lower = _mm256_sub_epi32(lower, _mm256_permute2x128_si256(each, each, 0x00));
      upper = _mm256_sub_epi32(upper, _mm256_permute2x128_si256(each, each, 0x11));
    }
    if (nn_format_has_factors(format)) {
      lower = _mm256_mullo_epi32(lower, (__m256i)factor[0]);
      upper = _mm256_mullo_epi32(upper, (__m256i)factor[1]);
    }
    const vf integers = _mm256_cvtepi32_ps(_mm256_add_epi32(lower, upper));
    sum[r] = vf_fma(vf_set1(acts->scale[at]) * scale, integers, sum[r]);
    if (nn_format_has_part_minima(format)) {
      const vf whole = quant_least_integers(acts->sums + 2 * at, least[0], least[1]);
      sum[r] = vf_fma(vf_set1(acts->scale[at]) * minimum, whole, sum[r]);
    }
    if (nn_format_has_minimum(format)) {
      sum[r] = vf_fma(vf_set1(acts->total[at]), minimum, sum[r]);
    }
  }
}

#include "quant_gemm_stream_eight.h"

#endif

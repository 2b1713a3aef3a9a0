/* The instructions of AVX2 (quant_gemm_isa.h), with and without its form of VNNI. */
#ifndef NN_CPU_QUANT_GEMM_AVX2_H
#define NN_CPU_QUANT_GEMM_AVX2_H

#include "quant_gemm_block.h"

enum { QUANT_ROWS_AT_ONCE = 1 /* more are unpacked (quant_gemm_unpacked_avx2.h) */ };

typedef __m256i si;
NN_INLINE si si_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
NN_INLINE void si_store(uint8_t *p, si a) { _mm256_storeu_si256((__m256i *)(void *)p, a); }
NN_INLINE si si_all(int32_t x) { return _mm256_set1_epi32(x); }
NN_INLINE si si_and(si a, int32_t byte) { return _mm256_and_si256(a, _mm256_set1_epi8((char)byte)); }
/* a with the bits of b that are in `mask`. */
NN_INLINE si si_with(si a, si b, int32_t mask) { return _mm256_or_si256(a, si_and(b, mask)); }
NN_INLINE si si_right(si a, int n) { return _mm256_srli_epi16(a, n); }
NN_INLINE si si_left(si a, int n) { return _mm256_slli_epi16(a, n); }
NN_INLINE si si_scales(const uint8_t *p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
NN_INLINE vf si_float(si a) { return _mm256_cvtepi32_ps(a); }
NN_INLINE si si_times(si a, si b) { return _mm256_mullo_epi32(a, b); }
NN_INLINE si si_add(si a, si b) { return _mm256_add_epi32(a, b); }
NN_INLINE si si_sub(si a, si b) { return _mm256_sub_epi32(a, b); }
/* Pairs of 16 bits in each lane: of `low`, and of `high`, without their lowest n bits; differences of such pairs; and
 * the sums of products of both. */
NN_INLINE si si_pairs(si low, si high, int n) {
  return _mm256_blend_epi16(_mm256_srli_epi32(low, n), _mm256_slli_epi32(high, 16 - n), 0xaa);
}
NN_INLINE si si_sub_pairs(si a, si b) { return _mm256_sub_epi16(a, b); }
NN_INLINE si si_dot_pairs(si a, si b) { return _mm256_madd_epi16(a, b); }

#if defined(__AVXVNNI__)
enum { QUANT_SIGNED_OFFSET = 7 };

NN_INLINE si quant_signed(si w) { return _mm256_xor_si256(w, _mm256_set1_epi8(-128)); }

NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  (void)format;
  return _mm256_dpbusd_avx_epi32(sum, w, x);
}

NN_INLINE si quant_upper(si w) { return si_and(w, 0xf0); }
NN_INLINE si quant_upper_sums(si sums) { return _mm256_srai_epi32(sums, 4); }
#else
enum { QUANT_SIGNED_OFFSET = -1 };

NN_INLINE si quant_signed(si w) { return w; }

/* Pairs fit 16 bits: 2 * 63 * 127 and, with the signs of the weights moved to x, 2 * 128 * 127. */
NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  const si pairs = nn_format_is_signed(format) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                                               : _mm256_maddubs_epi16(w, x);
  return si_add(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

NN_INLINE si quant_upper(si w) { return si_and(si_right(w, 4), 15); }
NN_INLINE si quant_upper_sums(si sums) { return sums; }
#endif

NN_INLINE si quant_table(const int8_t *table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}
NN_INLINE si quant_looked_up(si table, si codes) { return _mm256_shuffle_epi8(table, codes); }

/* Words g of codes, whose fifth bits are bits 4g .. 4g+3 of `high`, with these. */
NN_INLINE si quant_fifths(si low, si high, int g) {
  const si each = _mm256_add_epi32(_mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12), _mm256_set1_epi32(g / 2));
  const si bytes = _mm256_shuffle_epi8(high, _mm256_mullo_epi32(each, _mm256_set1_epi32(0x01010101)));
  const si bits = _mm256_set1_epi32((int32_t)(g % 2 ? 0x80402010 : 0x08040201));
  return si_with(low, _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits), 16);
}

NN_INLINE vi quant_gather(vi at, const uint8_t *from) {
  return _mm256_i32gather_epi32((const int *)(const void *)from, at, 1);
}

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_high_f16(vi x) {
  x = _mm256_srli_epi32(x, 16);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
NN_INLINE vf quant_low_f16(vi x) { return quant_high_f16(_mm256_slli_epi32(x, 16)); }

/* Codes of 32 elements; their scale; the sums of either half of the codes. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, int32_t sums[2],
                                 int32_t dtype) {
  enum { VECTORS = QUANT_BLOCK / VF };
  const si magnitude = _mm256_set1_epi32(0x7fffffff), one = _mm256_set1_epi16(1);
  vf v[VECTORS];
  si most = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; i++) {
    v[i] = vf_load_as(x, at + i * VF, dtype);
    /* As integers, magnitudes have the same order, with infinity and NaN above all numbers. */
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  const int32_t bits = _mm_cvtsi128_si32(four);
  if (quant_without_codes(bits, codes, scale, sums)) {
    return;
  }
  const float largest = nn_f32_from_bits((uint32_t)bits);
  const vf inverse = vf_set1(127.0f / largest);
  si whole[VECTORS];
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; i++) {
    whole[i] = _mm256_cvtps_epi32(v[i] * inverse);
  }
  const si first = _mm256_packs_epi32(whole[0], whole[1]), second = _mm256_packs_epi32(whole[2], whole[3]);
  const si order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* words of the two 128-bit halves in turns */
  _mm256_storeu_si256((__m256i *)(void *)codes, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order));
  *scale = largest / 127.0f;
  const si pairs = _mm256_hadd_epi32(_mm256_madd_epi16(first, one), _mm256_madd_epi16(second, one));
  four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  _mm_storel_epi64((__m128i *)(void *)sums, _mm_hadd_epi32(four, four));
}

#endif

/* The instructions of AVX-512 (quant_gemm_isa.h), but for the products of bytes. */
#ifndef NN_CPU_QUANT_GEMM_AVX512_H
#define NN_CPU_QUANT_GEMM_AVX512_H

#include "quant_gemm_block.h"

enum { QUANT_ROWS_AT_ONCE = 4 };

typedef __m512i si;
NN_INLINE si si_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
NN_INLINE void si_store(uint8_t *p, si a) { _mm512_storeu_si512(p, a); }
NN_INLINE si si_all(int32_t x) { return _mm512_set1_epi32(x); }
NN_INLINE si si_and(si a, int32_t byte) { return _mm512_and_si512(a, _mm512_set1_epi8((char)byte)); }
/* a with the bits of b that are in `mask`. */
NN_INLINE si si_with(si a, si b, int32_t mask) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8((char)mask), 0xf8);
}
NN_INLINE si si_right(si a, unsigned n) { return _mm512_srli_epi16(a, n); }
NN_INLINE si si_left(si a, unsigned n) { return _mm512_slli_epi16(a, n); }
NN_INLINE si si_scales(const uint8_t *p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
NN_INLINE vf si_float(si a) { return _mm512_cvtepi32_ps(a); }
NN_INLINE si si_times(si a, si b) { return _mm512_mullo_epi32(a, b); }
NN_INLINE si si_add(si a, si b) { return _mm512_add_epi32(a, b); }
NN_INLINE si si_sub(si a, si b) { return _mm512_sub_epi32(a, b); }
/* Pairs of 16 bits in each lane: of `low`, and of `high`, without their lowest n bits; differences of such pairs; and
 * the sums of products of both. */
NN_INLINE si si_pairs(si low, si high, unsigned n) {
  return _mm512_mask_mov_epi16(_mm512_slli_epi32(high, 16 - n), 0x55555555, _mm512_srli_epi32(low, n));
}
NN_INLINE si si_sub_pairs(si a, si b) { return _mm512_sub_epi16(a, b); }
NN_INLINE si si_dot_pairs(si a, si b) { return _mm512_madd_epi16(a, b); }

NN_INLINE si quant_table(const int8_t *table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
}
NN_INLINE si quant_looked_up(si table, si codes) { return _mm512_shuffle_epi8(table, codes); }

/* Words g of codes, whose fifth bits are bits 4g .. 4g+3 of `high`, with these. */
NN_INLINE si quant_fifths(si low, si high, int g) {
  const __m512i each = _mm512_add_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12),
                                        _mm512_set1_epi32(g / 2)); /* a byte, four times */
  const __m512i bytes = _mm512_shuffle_epi8(high, _mm512_mullo_epi32(each, _mm512_set1_epi32(0x01010101)));
  const __mmask64 set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32((int32_t)(g % 2 ? 0x80402010 : 0x08040201)));
  return _mm512_mask_add_epi8(low, set, low, _mm512_set1_epi8(16));
}

NN_INLINE vi quant_gather(vi at, const uint8_t *from) { return _mm512_i32gather_epi32(at, from, 1); }

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_low_f16(vi x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
NN_INLINE vf quant_high_f16(vi x) { return quant_low_f16(_mm512_srli_epi32(x, 16)); }

/* Codes of 32 elements; their scale; the sums of either half of the codes. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, int32_t sums[2],
                                 int32_t dtype) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  vf a = vf_load_as(x, at, dtype), b = vf_load_as(x, at + VF, dtype);
  /* As integers, magnitudes have the same order, with infinity and NaN above all numbers. */
  const int32_t bits = _mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512((__m512i)a, magnitude), _mm512_and_si512((__m512i)b, magnitude)));
  if (quant_without_codes(bits, codes, scale, sums)) {
    return;
  }
  const float largest = nn_f32_from_bits((uint32_t)bits);
  const vf inverse = vf_set1(127.0f / largest);
  const __m512i first = _mm512_cvtps_epi32(a * inverse), second = _mm512_cvtps_epi32(b * inverse);
  _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(first));
  _mm_storeu_si128((__m128i *)(void *)(codes + VF), _mm512_cvtepi32_epi8(second));
  *scale = largest / 127.0f;
  sums[0] = _mm512_reduce_add_epi32(first);
  sums[1] = _mm512_reduce_add_epi32(second);
}

#endif

/* The instructions of AVX2 (quant_gemm_isa.h). */
#ifndef NN_CPU_QUANT_GEMM_AVX2_H
#define NN_CPU_QUANT_GEMM_AVX2_H

#include "quant_gemm_block.h"
#include "quant_gemm_round_block.h"

enum { QUANT_ROWS_AT_ONCE = 2, QUANT_SIGNED_OFFSET = -1 };

typedef __m256i si;
NN_INLINE si si_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
NN_INLINE si si_all(int32_t x) { return _mm256_set1_epi32(x); }
NN_INLINE si si_and(si a, int32_t byte) { return _mm256_and_si256(a, _mm256_set1_epi8((char)byte)); }
/* Bits of `mask` from a, the others from b. */
NN_INLINE si si_mix(int32_t mask, si a, si b) {
  const si m = _mm256_set1_epi8((char)mask);
  return _mm256_or_si256(_mm256_and_si256(m, a), _mm256_andnot_si256(m, b));
}
NN_INLINE si si_right(si a, int n) { return _mm256_srli_epi16(a, n); }
NN_INLINE si si_left(si a, int n) { return _mm256_slli_epi16(a, n); }
NN_INLINE si si_scales(const uint8_t *p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
NN_INLINE vf si_float(si a) { return _mm256_cvtepi32_ps(a); }
NN_INLINE si si_times(si a, si b) { return _mm256_mullo_epi32(a, b); }
NN_INLINE si si_add(si a, si b) { return _mm256_add_epi32(a, b); }
NN_INLINE si si_sub(si a, si b) { return _mm256_sub_epi32(a, b); }

NN_INLINE si quant_signed(si w) { return w; }

/* Pairs fit 16 bits: 2 * 63 * 127 and, with the signs of the weights moved to x, 2 * 128 * 127. */
NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  const si pairs = format == NNCUDA_FORMAT_Q8_0 ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                                                : _mm256_maddubs_epi16(w, x);
  return si_add(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

NN_INLINE si quant_upper(si w) { return si_and(si_right(w, 4), 15); }
NN_INLINE si quant_upper_sums(si sums) { return sums; }

NN_INLINE vi quant_gather(vi at, const uint8_t *from) {
  return _mm256_i32gather_epi32((const int *)(const void *)from, at, 1);
}

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_high_f16(vi x) {
  x = _mm256_srli_epi32(x, 16);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
NN_INLINE vf quant_low_f16(vi x) { return quant_high_f16(_mm256_slli_epi32(x, 16)); }

#endif

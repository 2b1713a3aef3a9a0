/*
 * Numbers of caches in 8 bits: OCP E4M3, with 4 bits of exponent and 3 of mantissa (Micikevicius et al. 2022, "FP8
 * formats for deep learning"). Below 2^-6 they are evenly spaced, 2^-9 apart, the largest is 448, and 0x7f and 0xff are
 * NaN; there are no infinities. All is arithmetic on f32 and its patterns that every instruction set does alike.
 */
#ifndef NN_CPU_E4M3_H
#define NN_CPU_E4M3_H

#include "numbers/e4m3.h"
#include "simd.h"

/* Exact. Evenly spaced numbers are read as those of the binade of 2^-6, which is then taken off. */
NN_INLINE vf e4m3_decoded(vw code) {
  const vw zero = vw_set1(0), size = vw_and(code, vw_set1(0x7f)), even = vw_above(vw_set1(8), size);
  const vw lifted =
      vw_sub(vw_add(vw_left(size, 20), vw_set1(NN_E4M3_EVEN)), vw_select(even, zero, vw_set1(NN_E4M3_BINADE)));
  const vf x = vf_sub(vw_floats(lifted), vw_floats(vw_select(even, vw_set1(NN_E4M3_EVEN), zero)));
  const vw bits = vw_select(vw_equal(size, vw_set1(NN_E4M3_NAN)), vw_set1(0x7fc00000u), vf_words(x));
  return vw_floats(vw_or(bits, vw_left(vw_and(code, vw_set1(0x80)), 24)));
}

/* Rounds to nearest, ties to even; what is beyond 448, to that. Below 2^-6, 2^14 is added, whose last place is the
 * spacing there. */
NN_INLINE vw e4m3_encoded(vf x) {
  const vw bits = vf_words(x), size = vw_and(bits, vw_set1(0x7fffffffu)), most = vw_set1(NN_E4M3_NAN - 1);
  const vw lifted = vw_sub(vf_words(vf_add(vw_floats(size), vf_set1(0x1p14f))), vw_set1(0x46800000u));
  const vw half = vw_add(vw_set1(0x7ffffu - (NN_E4M3_EVEN - NN_E4M3_BINADE)), vw_and(vw_right(size, 20), vw_set1(1)));
  const vw rounded = vw_right(vw_add(size, half), 20);
  const vw code =
      vw_select(vw_above(vw_set1(NN_E4M3_EVEN), size), lifted, vw_select(vw_above(rounded, most), most, rounded));
  return vw_select(vw_above(size, vw_set1(0x7f800000u)), vw_set1(NN_E4M3_NAN),
                   vw_or(code, vw_and(vw_right(bits, 24), vw_set1(0x80))));
}

#if NN_SIMD_AVX512 || NN_SIMD_AVX2
/* The same of the first VF of 16 codes: a code is the f16 that has its fields, times 2^8, since exponents of f16 count
 * from -15 and not from -7. Only NaN is another. */
NN_INLINE vf e4m3_widened(__m128i codes) {
  const uint32_t sign = 0x80000000u, nan = 0x7fc00000u;
#if NN_SIMD_AVX512
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16(~0x4000));
  const __m512 x = _mm512_cvtph_ps(half) * vf_set1(0x1p8f);
  const __m128i last = _mm_set1_epi8(NN_E4M3_NAN);
  const __m512i nans = (__m512i)(((vw)x & sign) | nan);
  return (vf)_mm512_mask_mov_epi32((__m512i)x, _mm_cmpeq_epi8_mask(_mm_and_si128(codes, last), last), nans);
#else
  const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16(~0x4000));
  const vw x = (vw)(_mm256_cvtph_ps(half) * vf_set1(0x1p8f)); /* NaN became 480 */
  return (vf)vw_select((vw)((x & ~sign) == vw_set1(0x43f00000u)), (x & sign) | nan, x);
#endif
}
#endif

/* The first n of VF numbers at `from`, then zeros; and into memory. */
NN_INLINE vf e4m3_load(const void *from, int64_t n) {
#if NN_SIMD_AVX512 || NN_SIMD_AVX2
  __m128i codes = _mm_setzero_si128();
  memcpy(&codes, from, (size_t)n);
  return e4m3_widened(codes);
#else
  uint8_t codes[VF] = {0};
  memcpy(codes, from, (size_t)n);
  return e4m3_decoded(vw_load_bytes(codes));
#endif
}

NN_INLINE void e4m3_store(void *to, vf x, int64_t n) {
  uint8_t codes[VF];
  vw_store_bytes(codes, e4m3_encoded(x));
  memcpy(to, codes, (size_t)n);
}

#endif

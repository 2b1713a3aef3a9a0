/*
 * Numbers of caches in 8 bits: OCP E4M3, with 4 bits of exponent and 3 of mantissa (Micikevicius et al. 2022, "FP8
 * formats for deep learning"). Below 2^-6 they are evenly spaced, 2^-9 apart, the largest is 448, and 0x7f and 0xff are
 * NaN; there are no infinities. All is arithmetic on f32 and its patterns that every instruction set does alike.
 */
#ifndef NN_CPU_E4M3_H
#define NN_CPU_E4M3_H

#include "numbers/e4m3.h"
#include "simd.h"

/* VF lanes of u32, and of bytes. */
typedef uint32_t e4m3_words __attribute__((vector_size(sizeof(vf))));
typedef uint8_t e4m3_bytes __attribute__((vector_size(sizeof(vf) / 4)));

NN_INLINE e4m3_words e4m3_all(uint32_t x) { return (e4m3_words){0} + x; }
NN_INLINE e4m3_words e4m3_select(e4m3_words mask, e4m3_words x, e4m3_words y) { return (x & mask) | (y & ~mask); }

/* Exact. Evenly spaced numbers are read as those of the binade of 2^-6, which is then taken off. */
NN_INLINE vf e4m3_decoded(e4m3_words code) {
  const e4m3_words size = code & 0x7fu, even = (e4m3_words)(size < e4m3_all(8));
  const e4m3_words lifted = (size << 20) + e4m3_all(NN_E4M3_EVEN) - (e4m3_all(NN_E4M3_BINADE) & ~even);
  const vf x = (vf)lifted - (vf)(e4m3_all(NN_E4M3_EVEN) & even);
  const e4m3_words bits =
      e4m3_select((e4m3_words)(size == e4m3_all(NN_E4M3_NAN)), e4m3_all(0x7fc00000u), (e4m3_words)x);
  return (vf)(bits | (code & 0x80u) << 24);
}

/* Rounds to nearest, ties to even; what is beyond 448, to that. Below 2^-6, 2^14 is added, whose last place is the
 * spacing there. */
NN_INLINE e4m3_words e4m3_encoded(vf x) {
  const e4m3_words bits = (e4m3_words)x, size = bits & 0x7fffffffu;
  const e4m3_words lifted = (e4m3_words)((vf)size + vf_set1(0x1p14f)) - e4m3_all(0x46800000u);
  const e4m3_words rounded = (size + 0x7ffffu + (size >> 20 & 1u) - (NN_E4M3_EVEN - NN_E4M3_BINADE)) >> 20;
  const e4m3_words most = e4m3_all(NN_E4M3_NAN - 1);
  const e4m3_words code = e4m3_select((e4m3_words)(size < e4m3_all(NN_E4M3_EVEN)), lifted,
                                      e4m3_select((e4m3_words)(rounded > most), most, rounded));
  return e4m3_select((e4m3_words)(size > e4m3_all(0x7f800000u)), e4m3_all(NN_E4M3_NAN), code | (bits >> 24 & 0x80u));
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
  const __m512i nans = (__m512i)(((e4m3_words)x & sign) | nan);
  return (vf)_mm512_mask_mov_epi32((__m512i)x, _mm_cmpeq_epi8_mask(_mm_and_si128(codes, last), last), nans);
#else
  const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16(~0x4000));
  const e4m3_words x = (e4m3_words)(_mm256_cvtph_ps(half) * vf_set1(0x1p8f)); /* NaN became 480 */
  return (vf)e4m3_select((e4m3_words)((x & ~sign) == e4m3_all(0x43f00000u)), (x & sign) | nan, x);
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
  e4m3_bytes x = {0};
  memcpy(&x, from, (size_t)n);
  return e4m3_decoded(__builtin_convertvector(x, e4m3_words));
#endif
}

NN_INLINE void e4m3_store(void *to, vf x, int64_t n) {
  const e4m3_bytes codes = __builtin_convertvector(e4m3_encoded(x), e4m3_bytes);
  memcpy(to, &codes, (size_t)n);
}

#endif

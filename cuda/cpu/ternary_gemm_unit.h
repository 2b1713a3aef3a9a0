/* A vector of packed weights, and what products need of the instruction set for it. */
#ifndef NN_CPU_TERNARY_GEMM_UNIT_H
#define NN_CPU_TERNARY_GEMM_UNIT_H

#include "ternary_gemm_job.h"

/* Rows of weights in a vector; the vectors of a panel are its units. */
enum { TERNARY_UNIT = VF, TERNARY_PANEL_UNITS = TERNARY_PANEL / TERNARY_UNIT };

typedef int16_t lanes_i16 __attribute__((vector_size(sizeof(vf))));

#if NN_SIMD_NEON
NN_INLINE vi unit_words(int32_t x) { return vw_set1((uint32_t)x); }
#elif NN_SIMD_AVX512
NN_INLINE vi unit_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
NN_INLINE vi unit_and(vi a, vi b) { return _mm512_and_si512(a, b); }
NN_INLINE vi unit_shift(vi a, const unsigned bits) { return _mm512_srli_epi32(a, bits); }
NN_INLINE vi unit_zero(void) { return _mm512_setzero_si512(); }
NN_INLINE void unit_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }
NN_INLINE vi unit_words(int32_t x) { return _mm512_set1_epi32(x); }
/* Products of bytes, added in pairs; pairs of those, added. */
NN_INLINE lanes_i16 unit_dot(vi codes, vi x) { return (lanes_i16)_mm512_maddubs_epi16(codes, x); }
NN_INLINE lanes_i32 unit_widen(lanes_i16 a) { return (lanes_i32)_mm512_madd_epi16((vi)a, _mm512_set1_epi16(1)); }
#else
NN_INLINE vi unit_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
NN_INLINE vi unit_and(vi a, vi b) { return _mm256_and_si256(a, b); }
NN_INLINE vi unit_shift(vi a, const int bits) { return _mm256_srli_epi32(a, bits); }
NN_INLINE vi unit_zero(void) { return _mm256_setzero_si256(); }
NN_INLINE void unit_store(int32_t *p, vi x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
NN_INLINE vi unit_words(int32_t x) { return _mm256_set1_epi32(x); }
/* Products of bytes, added in pairs; pairs of those, added. */
NN_INLINE lanes_i16 unit_dot(vi codes, vi x) { return (lanes_i16)_mm256_maddubs_epi16(codes, x); }
NN_INLINE lanes_i32 unit_widen(lanes_i16 a) { return (lanes_i32)_mm256_madd_epi16((vi)a, _mm256_set1_epi16(1)); }
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

#endif

/*
 * VF rows of weights side by side, one a lane, and what of them is the same for a run of blocks: where they lie, their
 * scales and minima.
 */
#ifndef NN_CPU_QUANT_GEMM_ROWS_H
#define NN_CPU_QUANT_GEMM_ROWS_H

#include "quant_gemm_block.h"

#if NN_SIMD_AVX512 || NN_SIMD_AVX2

typedef uint32_t quant_words __attribute__((vector_size(VF * sizeof(uint32_t)))); /* vi with operators on 32 bits */
typedef int32_t quant_integers __attribute__((vector_size(VF * sizeof(int32_t))));

typedef struct quant_rows {
  const uint8_t *row[VF];
  vi at; /* bytes from the first row */
  vf scale, minimum;
  quant_words factors[3]; /* of 256 elements: parts' scales and minima as stored */
} quant_rows;

/* Rows from c on of a piece; after its last row, that one. */
NN_INLINE void quant_rows_at(quant_rows *w, const quant_piece *t, int64_t c) {
  int32_t at[VF];
  for (int64_t j = 0; j < VF; j++) {
    const int64_t row = nn_min(j, t->columns - c - 1) * t->row_bytes;
    w->row[j] = t->w + c * t->row_bytes + row;
    at[j] = (int32_t)row;
  }
  memcpy(&w->at, at, sizeof at);
}

#if NN_SIMD_AVX512
NN_INLINE vi quant_gather(const quant_rows *w, uint64_t at) { return _mm512_i32gather_epi32(w->at, w->row[0] + at, 1); }

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_low_f16(vi x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
NN_INLINE vf quant_high_f16(vi x) { return quant_low_f16(_mm512_srli_epi32(x, 16)); }
#else
NN_INLINE vi quant_gather(const quant_rows *w, uint64_t at) {
  return _mm256_i32gather_epi32((const int *)(const void *)(w->row[0] + at), w->at, 1);
}

/* The f16 in the lower, or upper, half of each lane. */
NN_INLINE vf quant_high_f16(vi x) {
  x = _mm256_srli_epi32(x, 16);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
NN_INLINE vf quant_low_f16(vi x) { return quant_high_f16(_mm256_slli_epi32(x, 16)); }
#endif

NN_INLINE vf quant_to_float(quant_words x) { return __builtin_convertvector((quant_integers)x, vf); }

/* Scale and minimum of block i of each row. Of formats of 256 elements, i % 8 is to be a constant. */
NN_INLINE void quant_factors(quant_rows *w, uint64_t i, vf *scale, vf *minimum, int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    *scale = quant_low_f16(quant_gather(w, i * 18));
    break;
  case NNCUDA_FORMAT_Q5_0:
    *scale = quant_low_f16(quant_gather(w, i * 22));
    break;
  case NNCUDA_FORMAT_Q8_0:
    *scale = quant_low_f16(quant_gather(w, i * 34));
    break;
  case NNCUDA_FORMAT_Q4_1:
  case NNCUDA_FORMAT_Q5_1: {
    const vi both = quant_gather(w, i * (format == NNCUDA_FORMAT_Q4_1 ? 20 : 24));
    *scale = quant_low_f16(both);
    *minimum = quant_high_f16(both);
    break;
  }
  case NNCUDA_FORMAT_Q6_K:
    if (i % 8 == 0) {
      w->scale = quant_high_f16(quant_gather(w, i / 8 * 210 + 206)); /* from before, so as not to read past the row */
    }
    *scale = w->scale;
    break;
  default: {
    const uint64_t part = i % 8, at = i / 8 * (format == NNCUDA_FORMAT_Q4_K ? 144 : 176);
    if (part == 0) {
      const vi both = quant_gather(w, at);
      w->scale = quant_low_f16(both);
      w->minimum = vf_set1(0.0f) - quant_high_f16(both);
      for (uint64_t j = 0; j < 3; j++) {
        w->factors[j] = (quant_words)quant_gather(w, at + 4 + 4 * j);
      }
    }
    const quant_words *x = w->factors;
    const uint32_t by = (uint32_t)(part % 4 * 8);
    const quant_words s = part < 4 ? x[0] >> by & 63 : (x[2] >> by & 15) | (x[0] >> (by + 2) & 48);
    const quant_words m = part < 4 ? x[1] >> by & 63 : (x[2] >> (by + 4) & 15) | (x[1] >> (by + 2) & 48);
    *scale = w->scale * quant_to_float(s);
    *minimum = w->minimum * quant_to_float(m);
  }
  }
}

#endif
#endif

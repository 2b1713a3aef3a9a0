/* VF vectors as a square whose rows become its columns. */
#ifndef NN_CPU_TRANSPOSE_H
#define NN_CPU_TRANSPOSE_H

#include "simd.h"

#if defined(__clang__)
#define NN_UNROLL _Pragma("unroll")
#else
#define NN_UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(NN_SIMD_AVX512)
NN_INLINE void transpose(vf x[VF]) {
  vf y[VF];
  NN_UNROLL for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  NN_UNROLL for (int i = 0; i < 16; i += 4) {
    NN_UNROLL for (int j = 0; j < 2; j++) {
      const __m512d a = _mm512_castps_pd(y[i + j]), b = _mm512_castps_pd(y[i + j + 2]);
      x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  /* x[4g + j] holds, in its quarter q, column 4q + j of rows 4g .. 4g+3: what is left is a 4 x 4 transpose of quarters.
   */
  NN_UNROLL for (int j = 0; j < 4; j++) {
    const vf a = _mm512_shuffle_f32x4(x[j], x[j + 4], 0x44), b = _mm512_shuffle_f32x4(x[j], x[j + 4], 0xee);
    const vf c = _mm512_shuffle_f32x4(x[j + 8], x[j + 12], 0x44), d = _mm512_shuffle_f32x4(x[j + 8], x[j + 12], 0xee);
    y[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    y[j + 4] = _mm512_shuffle_f32x4(a, c, 0xdd);
    y[j + 8] = _mm512_shuffle_f32x4(b, d, 0x88);
    y[j + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
  NN_UNROLL for (int i = 0; i < 16; i++) { x[i] = y[i]; }
}
#elif defined(NN_SIMD_AVX2)
NN_INLINE void transpose(vf x[VF]) {
  vf y[VF];
  NN_UNROLL for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  NN_UNROLL for (int i = 0; i < 8; i += 4) {
    NN_UNROLL for (int j = 0; j < 2; j++) {
      const __m256d a = _mm256_castps_pd(y[i + j]), b = _mm256_castps_pd(y[i + j + 2]);
      x[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      x[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  }
  NN_UNROLL for (int j = 0; j < 4; j++) {
    y[j] = _mm256_permute2f128_ps(x[j], x[j + 4], 0x20);
    y[j + 4] = _mm256_permute2f128_ps(x[j], x[j + 4], 0x31);
  }
  NN_UNROLL for (int i = 0; i < 8; i++) { x[i] = y[i]; }
}
#elif NN_SIMD_NEON
NN_INLINE void transpose_quarter(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d) {
  const float64x2_t e = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)), f = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));
  const float64x2_t g = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)), h = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
  *a = vreinterpretq_f32_f64(vtrn1q_f64(e, g));
  *b = vreinterpretq_f32_f64(vtrn1q_f64(f, h));
  *c = vreinterpretq_f32_f64(vtrn2q_f64(e, g));
  *d = vreinterpretq_f32_f64(vtrn2q_f64(f, h));
}

NN_INLINE void transpose(vf x[VF]) {
  NN_UNROLL for (int i = 0; i < 8; i += 4) {
    transpose_quarter(&x[i].low, &x[i + 1].low, &x[i + 2].low, &x[i + 3].low);
    transpose_quarter(&x[i].high, &x[i + 1].high, &x[i + 2].high, &x[i + 3].high);
  }
  NN_UNROLL for (int i = 0; i < 4; i++) {
    const float32x4_t high = x[i].high;
    x[i].high = x[i + 4].low;
    x[i + 4].low = high;
  }
}
#else
NN_INLINE void transpose(vf x[VF]) {
  const vf a = x[0], b = x[1], c = x[2], d = x[3];
  NN_UNROLL for (int i = 0; i < VF; i++) { x[i] = (vf){a[i], b[i], c[i], d[i]}; }
}
#endif

#endif

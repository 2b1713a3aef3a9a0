/*
 * A vector of f32 as wide as the instruction set has it, and what the kernels do with it. VF is the number of lanes: 16
 * with AVX-512, 8 with AVX2 and NEON, which have the same bits, 4 in the baseline. A vector may be a struct: + - * / do
 * not work on it, vf_add, vf_sub, vf_mul and vf_div do. vw are its words (simd_words.h). Reductions over lanes have a
 * fixed order.
 * `_part` forms touch the first n < VF lanes only; loads fill the rest with zero.
 */
#ifndef NN_CPU_SIMD_H
#define NN_CPU_SIMD_H

#include "interface.h"
#include "numbers/half.h"
#include "numbers/sizes.h"

#include <math.h>
#include <stdint.h>

#define NN_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define NN_SIMD_AVX512 1
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define NN_SIMD_AVX2 1
#include <immintrin.h>
#elif defined(__aarch64__) && NN_ISA_NEON
#define NN_SIMD_NEON 1
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#if NN_SIMD_AVX512

enum { VF = 16, VF_FUSED = 1 };
typedef __m512 vf;
typedef __m512i vi;

NN_INLINE __mmask16 vf_mask(int64_t n) { return (__mmask16)((1u << n) - 1u); }
NN_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
NN_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
NN_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
NN_INLINE vf vf_load_part(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(vf_mask(n), p); }
NN_INLINE void vf_store_part(float *p, int64_t n, vf x) { _mm512_mask_storeu_ps(p, vf_mask(n), x); }
NN_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* As the hardware's: when either is NaN, the second. */
NN_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
NN_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
NN_INLINE vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
NN_INLINE vf vf_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2^n for whole n, with gradual underflow. */
NN_INLINE vf vf_ldexp(vf x, vf n) { return _mm512_scalef_ps(x, n); }
/* Lanes where a < b take x, the others y. */
NN_INLINE vf vf_select_lt(vf a, vf b, vf x, vf y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* Lanes where a is NaN take x, the others y. */
NN_INLINE vf vf_select_nan(vf a, vf x, vf y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, x);
}
/* The first n lanes of x, the fill value in the others. */
NN_INLINE vf vf_keep_part(vf x, int64_t n, float fill) { return _mm512_mask_blend_ps(vf_mask(n), vf_set1(fill), x); }

NN_INLINE vf vf_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
NN_INLINE void vf_to_f16(uint16_t *p, vf x) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
NN_INLINE vf vf_from_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
/* In integers: the AVX512_BF16 instruction would flush subnormals. */
NN_INLINE __m256i vf_round_bf16(vf x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
NN_INLINE void vf_to_bf16(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, vf_round_bf16(x)); }

/* x > 0 and normal: the m of x = m * 2^n with sqrt(1/2) <= m < sqrt(2). */
NN_INLINE vf vf_split(vf x, vf *n) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(0x3f3504f3)), 23);
  *n = _mm512_cvtepi32_ps(e);
  return _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23)));
}
/* Lanes 2i and 2i+1 change places. */
NN_INLINE vf vf_swap_pairs(vf x) { return _mm512_permute_ps(x, 0xb1); }
/* VF/2 elements from p, each in lanes 2i and 2i+1. */
NN_INLINE vf vf_load_pairs(const float *p) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
/* Stores past the caches, to p aligned to the bytes written; see nn_stream_fence. */
NN_INLINE void vf_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
NN_INLINE void vf_stream_f16(uint16_t *p, vf x) {
  _mm256_stream_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
NN_INLINE void vf_stream_bf16(uint16_t *p, vf x) { _mm256_stream_si256((__m256i *)p, vf_round_bf16(x)); }

typedef __m512d vd; /* VF/2 lanes of f64 */
NN_INLINE vd vd_low(vf x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
NN_INLINE vd vd_high(vf x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
NN_INLINE vd vd_set1(double x) { return _mm512_set1_pd(x); }
NN_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
NN_INLINE vf vf_from_i8(const int8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

#elif NN_SIMD_AVX2

enum { VF = 8, VF_FUSED = 1 };
typedef __m256 vf;
typedef __m256i vi;

NN_INLINE __m256i vf_mask(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
NN_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
NN_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
NN_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
NN_INLINE vf vf_load_part(const float *p, int64_t n) { return _mm256_maskload_ps(p, vf_mask(n)); }
NN_INLINE void vf_store_part(float *p, int64_t n, vf x) { _mm256_maskstore_ps(p, vf_mask(n), x); }
NN_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
NN_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
NN_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
NN_INLINE vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
NN_INLINE vf vf_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Two factors, so that the result may be subnormal; n within -280 .. 254. */
NN_INLINE vf vf_ldexp(vf x, vf n) {
  const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), rest = _mm256_sub_epi32(i, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const vf a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const vf b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return x * a * b;
}
NN_INLINE vf vf_select_lt(vf a, vf b, vf x, vf y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
NN_INLINE vf vf_select_nan(vf a, vf x, vf y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
NN_INLINE vf vf_keep_part(vf x, int64_t n, float fill) {
  return _mm256_blendv_ps(vf_set1(fill), x, _mm256_castsi256_ps(vf_mask(n)));
}

NN_INLINE vf vf_from_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
NN_INLINE void vf_to_f16(uint16_t *p, vf x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
NN_INLINE vf vf_from_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
NN_INLINE __m128i vf_round_bf16(vf x) {
  const __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  r = _mm256_srli_epi32(r, 16);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x8));
}
NN_INLINE void vf_to_bf16(uint16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, vf_round_bf16(x)); }

NN_INLINE vf vf_split(vf x, vf *n) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(u, _mm256_set1_epi32(0x3f3504f3)), 23);
  *n = _mm256_cvtepi32_ps(e);
  return _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23)));
}
NN_INLINE vf vf_swap_pairs(vf x) { return _mm256_permute_ps(x, 0xb1); }
NN_INLINE vf vf_load_pairs(const float *p) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
NN_INLINE void vf_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
NN_INLINE void vf_stream_f16(uint16_t *p, vf x) {
  _mm_stream_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
NN_INLINE void vf_stream_bf16(uint16_t *p, vf x) { _mm_stream_si128((__m128i *)p, vf_round_bf16(x)); }

typedef __m256d vd;
NN_INLINE vd vd_low(vf x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
NN_INLINE vd vd_high(vf x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
NN_INLINE vd vd_set1(double x) { return _mm256_set1_pd(x); }
NN_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
NN_INLINE vf vf_from_i8(const int8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

#elif NN_SIMD_NEON

#include "simd_neon.h"

#else

#include "simd_plain.h"

#endif

#if !NN_SIMD_NEON
NN_INLINE vf vf_add(vf a, vf b) { return a + b; }
NN_INLINE vf vf_sub(vf a, vf b) { return a - b; }
NN_INLINE vf vf_mul(vf a, vf b) { return a * b; }
NN_INLINE vf vf_div(vf a, vf b) { return a / b; }
NN_INLINE vd vd_add(vd a, vd b) { return a + b; }
#include "simd_words.h"
#endif

/* Loads and stores of any floating-point dtype, at element i of p. `dtype` is a compile-time constant where it is used.
 */
NN_INLINE vf vf_load_as(const void *p, int64_t i, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return vf_load((const float *)p + i);
  case NNCUDA_F16:
    return vf_from_f16((const uint16_t *)p + i);
  default:
    return vf_from_bf16((const uint16_t *)p + i);
  }
}

NN_INLINE void vf_store_as(void *p, int64_t i, vf x, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    vf_store((float *)p + i, x);
    break;
  case NNCUDA_F16:
    vf_to_f16((uint16_t *)p + i, x);
    break;
  default:
    vf_to_bf16((uint16_t *)p + i, x);
    break;
  }
}

/*
 * As vf_store_as, but past the caches: an output that is larger than they are need not be read in before it is written,
 * nor push out what is in use. Element i must lie on a multiple of VF elements of memory (nn_stream_head says how far
 * that is), and the task ends with nn_stream_fence, since these stores are not ordered with what tells the others that
 * it is done.
 */
NN_INLINE void vf_stream_as(void *p, int64_t i, vf x, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    vf_stream((float *)p + i, x);
    break;
  case NNCUDA_F16:
    vf_stream_f16((uint16_t *)p + i, x);
    break;
  default:
    vf_stream_bf16((uint16_t *)p + i, x);
    break;
  }
}

/* Elements from element i of p to the first that starts a cache line. */
NN_INLINE int64_t nn_stream_head(const void *p, int64_t i, int32_t dtype) {
  const uintptr_t bytes = dtype == NNCUDA_F32 ? 4 : 2, address = (uintptr_t)p + (uintptr_t)i * bytes;
  return (int64_t)((0 - address) % 64 / bytes);
}

NN_INLINE void nn_stream_fence(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

NN_INLINE vf vf_load_part_as(const void *p, int64_t i, int64_t n, int32_t dtype) {
  if (dtype == NNCUDA_F32) {
    return vf_load_part((const float *)p + i, n);
  }
  uint16_t lanes[VF] = {0};
  memcpy(lanes, (const uint16_t *)p + i, (size_t)n * sizeof(uint16_t));
  return vf_load_as(lanes, 0, dtype);
}

NN_INLINE void vf_store_part_as(void *p, int64_t i, int64_t n, vf x, int32_t dtype) {
  if (dtype == NNCUDA_F32) {
    vf_store_part((float *)p + i, n, x);
    return;
  }
  uint16_t lanes[VF];
  vf_store_as(lanes, 0, x, dtype);
  memcpy((uint16_t *)p + i, lanes, (size_t)n * sizeof(uint16_t));
}

/* A vector, or the first n lanes of one where n < VF. */
NN_INLINE vf vf_load_upto_as(const void *p, int64_t i, int64_t n, int32_t dtype) {
  return n >= VF ? vf_load_as(p, i, dtype) : vf_load_part_as(p, i, n, dtype);
}

NN_INLINE void vf_store_upto_as(void *p, int64_t i, int64_t n, vf x, int32_t dtype) {
  if (n >= VF) {
    vf_store_as(p, i, x, dtype);
  } else {
    vf_store_part_as(p, i, n, x, dtype);
  }
}

/* One element, for tails and scalars. */
NN_INLINE float nn_load_as(const void *p, int64_t i, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return ((const float *)p)[i];
  case NNCUDA_F16:
    return nn_f16_to_f32(((const uint16_t *)p)[i]);
  default:
    return nn_bf16_to_f32(((const uint16_t *)p)[i]);
  }
}

NN_INLINE void nn_store_as(void *p, int64_t i, float x, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    ((float *)p)[i] = x;
    break;
  case NNCUDA_F16:
    ((uint16_t *)p)[i] = nn_f32_to_f16(x);
    break;
  default:
    ((uint16_t *)p)[i] = nn_f32_to_bf16(x);
    break;
  }
}

NN_PLAIN NN_INLINE int64_t nn_dtype_bytes(int32_t dtype) {
  return dtype == NNCUDA_F32 || dtype == NNCUDA_I32 ? 4 : dtype == NNCUDA_I8 ? 1 : 2;
}

/* Sum over lanes: halves are added until one lane is left, so the order is the same for every compiler. */
#if NN_SIMD_AVX512 || NN_SIMD_AVX2
NN_INLINE float vf_sum(vf x) {
#if NN_SIMD_AVX512
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
  const __m256 h = x;
#endif
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
#endif

NN_INLINE double vd_sum(vd x) {
  double lane[VF / 2];
  memcpy(lane, &x, sizeof x);
  for (int width = VF / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) {
      lane[i] += lane[i + width];
    }
  }
  return lane[0];
}

/* Largest lane; NaN lanes do not count unless all are. */
NN_INLINE float vf_maximum(vf x) {
  float lane[VF];
  vf_store(lane, x);
  for (int width = VF / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) {
      lane[i] = lane[i + width] > lane[i] || lane[i] != lane[i] ? lane[i + width] : lane[i];
    }
  }
  return lane[0];
}

/*
 * exp(x) within 1 ulp: x = n ln2 + r with |r| <= ln2/2, a polynomial for exp(r), times 2^n. Below -104 it is zero,
 * above 89 infinity; NaN stays NaN. The polynomial 1 + r + ... + r^6 has the least largest relative error on that
 * interval, 2^-28.
 */
NN_INLINE vf vf_exp(vf x) {
  const vf inside = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x)); /* keeps NaN: the second operand wins */
  /* To the nearest integer as in vf_round, the product in the same instruction. 2^n is harmless for a NaN: p is one. */
  const vf n = vf_sub(vf_fma(inside, vf_set1(0x1.715476p+0f), vf_set1(0x1.8p23f)), vf_set1(0x1.8p23f));
  /* ln2 in two parts, the first short enough for n times it to be exact. */
  const vf high = vf_fma(n, vf_set1(-0x1.62e4p-1f), inside), r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), high);
  vf p = vf_set1(0x1.6a23d0p-10f);
  p = vf_fma(p, r, vf_set1(0x1.123a20p-7f));
  p = vf_fma(p, r, vf_set1(0x1.5558f2p-5f));
  p = vf_fma(p, r, vf_set1(0x1.555492p-3f));
  p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
  if (VF_FUSED) {
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
  } else { /* products round too: add from small to large, and r as its two exact parts */
    p = vf_add(vf_add(high, vf_add(vf_mul(n, vf_set1(-0x1.7f7d1cp-20f)), vf_mul(p, vf_mul(r, r)))), vf_set1(1.0f));
  }
  return vf_ldexp(p, n);
}

/*
 * log(x) within 1 ulp; log(0) is -inf, of a negative number NaN. With x = m * 2^n, f = m - 1 and s = f / (2 + f),
 * log(m) = 2 atanh(s) = 2s + 2/3 s^3 + 2/5 s^5 + ... = f - s * (f - R), where R = 2/3 s^2 + 2/5 s^4 + ...: f is exact,
 * and what is subtracted is small. The polynomial R has the least largest relative error of log(m) for its degree,
 * 2^-30.
 */
NN_INLINE vf vf_log(vf x) {
  const vf zero = vf_set1(0.0f), least = vf_set1(0x1p-126f), infinity = vf_set1(INFINITY);
  vf n;
  const vf m = vf_split(vf_select_lt(x, least, vf_mul(x, vf_set1(0x1p23f)), x), &n);
  n = vf_sub(n, vf_select_lt(x, least, vf_set1(23.0f), zero));
  const vf f = vf_sub(m, vf_set1(1.0f)), s = vf_div(f, vf_add(vf_set1(2.0f), f)), z = vf_mul(s, s);
  vf r = vf_set1(0x1.31e464p-2f);
  r = vf_fma(r, z, vf_set1(0x1.995eb0p-2f));
  r = vf_mul(vf_fma(r, z, vf_set1(0x1.55557ap-1f)), z);
  const vf low = vf_sub(vf_mul(s, vf_sub(f, r)), vf_mul(n, vf_set1(0x1.7f7d1cp-20f)));
  vf y = vf_add(vf_sub(f, low), vf_mul(n, vf_set1(0x1.62e4p-1f)));
  y = vf_select_lt(x, infinity, y, x);              /* inf and NaN stay */
  y = vf_select_lt(zero, x, y, vf_set1(-INFINITY)); /* so far also for NaN and what is below zero */
  y = vf_select_nan(x, x, y);
  return vf_select_lt(x, zero, vf_set1(NAN), y);
}

/* 1 / (1 + exp(-x)). */
NN_INLINE vf vf_sigmoid(vf x) { return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_set1(0.0f), x)))); }

/* x * sigmoid(x), rounded once less. */
NN_INLINE vf vf_silu(vf x) { return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_set1(0.0f), x)))); }

/*
 * tanh(x) within 3 ulp: below 5/8 x + x^3 P(x^2), where P has the least largest relative error for its degree, 2^-27;
 * above, 1 - 2 / (exp(2x) + 1), which cancels little there. NaN stays NaN.
 */
NN_INLINE vf vf_tanh(vf x) {
  const vf minus = vf_sub(vf_set1(0.0f), x), size = vf_max(minus, x), z = vf_mul(x, x), one = vf_set1(1.0f);
  vf p = vf_set1(-0x1.75e1c6p-8f);
  p = vf_fma(p, z, vf_set1(0x1.52269ap-6f));
  p = vf_fma(p, z, vf_set1(-0x1.b83c5ap-5f));
  p = vf_fma(p, z, vf_set1(0x1.110726p-3f));
  p = vf_fma(p, z, vf_set1(-0x1.555532p-2f));
  const vf near = vf_fma(vf_mul(x, z), p, x);
  const vf far = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(vf_exp(vf_add(size, size)), one)));
  return vf_select_lt(size, vf_set1(0.625f), near, vf_select_lt(x, vf_set1(0.0f), vf_sub(vf_set1(0.0f), far), far));
}

#endif

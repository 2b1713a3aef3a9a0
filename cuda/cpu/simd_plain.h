/*
 * The vectors of simd.h in what every compiler has, four lanes: the baseline. A product that is added is rounded
 * before, on processors with fused instructions too, so that the baseline has the same bits on all.
 */
#ifndef NN_CPU_SIMD_PLAIN_H
#define NN_CPU_SIMD_PLAIN_H

enum { VF = 4, VF_FUSED = 0 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

NN_INLINE vf vf_set1(float x) { return (vf){x, x, x, x}; }
NN_INLINE vf vf_load(const float *p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}
NN_INLINE void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
NN_INLINE vf vf_load_part(const float *p, int64_t n) {
  vf x = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; i++) {
    x[i] = p[i];
  }
  return x;
}
NN_INLINE void vf_store_part(float *p, int64_t n, vf x) {
  for (int64_t i = 0; i < n; i++) {
    p[i] = x[i];
  }
}
NN_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
NN_INLINE vf vf_blend(vi mask, vf x, vf y) { return (vf)(((vi)x & mask) | ((vi)y & ~mask)); }
NN_INLINE vf vf_max(vf a, vf b) { return vf_blend(a > b, a, b); }
NN_INLINE vf vf_min(vf a, vf b) { return vf_blend(a < b, a, b); }
NN_INLINE vf vf_sqrt(vf x) {
  vf y;
  for (int i = 0; i < VF; i++) {
    y[i] = sqrtf(x[i]);
  }
  return y;
}
/* To nearest-even for |x| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. */
NN_INLINE vf vf_round(vf x) { return (x + vf_set1(0x1.8p23f)) - vf_set1(0x1.8p23f); }
NN_INLINE vf vf_ldexp(vf x, vf n) {
  const vi whole = n == n; /* converting a NaN is undefined */
  const vi i = __builtin_convertvector((vf)((vi)n & whole), vi), half = i >> 1, rest = i - half;
  return x * (vf)((half + 127) << 23) * (vf)((rest + 127) << 23);
}
NN_INLINE vf vf_select_lt(vf a, vf b, vf x, vf y) { return vf_blend(a < b, x, y); }
NN_INLINE vf vf_select_nan(vf a, vf x, vf y) { return vf_blend(a != a, x, y); }
NN_INLINE vf vf_keep_part(vf x, int64_t n, float fill) {
  return vf_blend((vi){0, 1, 2, 3} < (vi){(int)n, (int)n, (int)n, (int)n}, x, vf_set1(fill));
}
NN_INLINE vf vf_from_f16(const uint16_t *p) {
  return (vf){nn_f16_to_f32(p[0]), nn_f16_to_f32(p[1]), nn_f16_to_f32(p[2]), nn_f16_to_f32(p[3])};
}
NN_INLINE void vf_to_f16(uint16_t *p, vf x) {
  for (int i = 0; i < VF; i++) {
    p[i] = nn_f32_to_f16(x[i]);
  }
}
NN_INLINE vf vf_from_bf16(const uint16_t *p) {
  return (vf){nn_bf16_to_f32(p[0]), nn_bf16_to_f32(p[1]), nn_bf16_to_f32(p[2]), nn_bf16_to_f32(p[3])};
}
NN_INLINE void vf_to_bf16(uint16_t *p, vf x) {
  for (int i = 0; i < VF; i++) {
    p[i] = nn_f32_to_bf16(x[i]);
  }
}

NN_INLINE vf vf_split(vf x, vf *n) {
  const vi e = ((vi)x - 0x3f3504f3) >> 23;
  *n = __builtin_convertvector(e, vf);
  return (vf)((vi)x - e * 0x800000);
}
NN_INLINE vf vf_swap_pairs(vf x) { return (vf){x[1], x[0], x[3], x[2]}; }
NN_INLINE vf vf_load_pairs(const float *p) { return (vf){p[0], p[0], p[1], p[1]}; }
#if defined(__SSE2__)
NN_INLINE void vf_stream(float *p, vf x) { _mm_stream_ps(p, x); }
#else
NN_INLINE void vf_stream(float *p, vf x) { vf_store(p, x); }
#endif
NN_INLINE void vf_stream_f16(uint16_t *p, vf x) { vf_to_f16(p, x); }
NN_INLINE void vf_stream_bf16(uint16_t *p, vf x) { vf_to_bf16(p, x); }

typedef double vd __attribute__((vector_size(16)));
NN_INLINE vd vd_low(vf x) { return (vd){x[0], x[1]}; }
NN_INLINE vd vd_high(vf x) { return (vd){x[2], x[3]}; }
NN_INLINE vd vd_set1(double x) { return (vd){x, x}; }
NN_INLINE vd vd_fma(vd a, vd b, vd c) { return a * b + c; }

NN_INLINE float vf_sum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
NN_INLINE vf vf_from_i8(const int8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }

#endif

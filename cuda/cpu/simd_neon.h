/*
 * The vectors of simd.h on NEON: two registers of 128 bits stand for one of AVX2, lane by lane, so that an element
 * meets the same operations in the same order and has the same bits. They are structs, which compilers keep in
 * registers, where a generic vector of 32 bytes would live in memory: hence vf_add and not +.
 */
#ifndef NN_CPU_SIMD_NEON_H
#define NN_CPU_SIMD_NEON_H

#include <arm_neon.h>

enum { VF = 8, VF_FUSED = 1 };
typedef struct vf {
  float32x4_t low, high;
} vf;
typedef struct vw {
  uint32x4_t low, high;
} vw;
typedef vw vi;
NN_INLINE vw vi_words(vi x) { return x; }

/* A function of one, two or three vectors from one of their halves. */
#define NN_NEON_1(name, to, from, half)                                                                                \
  NN_INLINE to name(from x) { return (to){half(x.low), half(x.high)}; }
#define NN_NEON_2(name, to, from, half)                                                                                \
  NN_INLINE to name(from a, from b) { return (to){half(a.low, b.low), half(a.high, b.high)}; }
#define NN_NEON_3(name, to, first, second, third, half)                                                                \
  NN_INLINE to name(first a, second b, third c) {                                                                      \
    return (to){half(a.low, b.low, c.low), half(a.high, b.high, c.high)};                                              \
  }

/* ---- words ---- */

#define NN_NEON_WORDS(name, operator)                                                                                  \
  NN_INLINE vw vw_##name(vw a, vw b) { return (vw){a.low operator b.low, a.high operator b.high }; }
NN_NEON_WORDS(and, &)
NN_NEON_WORDS(or, |)
NN_NEON_WORDS(xor, ^)
NN_NEON_WORDS(add, +)
NN_NEON_WORDS(sub, -)
NN_NEON_WORDS(mul, *)
#undef NN_NEON_WORDS
NN_NEON_2(vw_above, vw, vw, vcgtq_u32)
NN_NEON_2(vw_equal, vw, vw, vceqq_u32)
NN_NEON_2(vw_max, vw, vw, vmaxq_u32)
NN_NEON_3(vw_select, vw, vw, vw, vw, vbslq_u32)
NN_NEON_1(vf_words, vw, vf, vreinterpretq_u32_f32)
NN_NEON_1(vw_floats, vf, vw, vreinterpretq_f32_u32)

NN_INLINE vw vw_set1(uint32_t x) { return (vw){vdupq_n_u32(x), vdupq_n_u32(x)}; }
NN_INLINE vw vw_load(const void *p) {
  vw x;
  memcpy(&x, p, sizeof x);
  return x;
}
NN_INLINE void vw_store(void *p, vw x) { memcpy(p, &x, sizeof x); }
NN_INLINE vw vw_left(vw x, int n) { return (vw){x.low << n, x.high << n}; }
NN_INLINE vw vw_right(vw x, int n) { return (vw){x.low >> n, x.high >> n}; }
NN_INLINE vw vw_right_signed(vw x, int n) {
  return (vw){(uint32x4_t)((int32x4_t)x.low >> n), (uint32x4_t)((int32x4_t)x.high >> n)};
}
NN_INLINE vf vw_converted(vw x) {
  return (vf){vcvtq_f32_s32(vreinterpretq_s32_u32(x.low)), vcvtq_f32_s32(vreinterpretq_s32_u32(x.high))};
}
NN_INLINE vw vw_load_bytes(const uint8_t *p) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(p));
  return (vw){vmovl_u16(vget_low_u16(wide)), vmovl_high_u16(wide)};
}
NN_INLINE void vw_store_bytes(uint8_t *p, vw x) { vst1_u8(p, vmovn_u16(vmovn_high_u32(vmovn_u32(x.low), x.high))); }
NN_INLINE uint32_t vw_largest(vw x) { return vmaxvq_u32(vmaxq_u32(x.low, x.high)); }

/* ---- f32 ---- */

NN_NEON_2(vf_add, vf, vf, vaddq_f32)
NN_NEON_2(vf_sub, vf, vf, vsubq_f32)
NN_NEON_2(vf_mul, vf, vf, vmulq_f32)
NN_NEON_2(vf_div, vf, vf, vdivq_f32)
NN_NEON_1(vf_sqrt, vf, vf, vsqrtq_f32)
NN_NEON_1(vf_round, vf, vf, vrndnq_f32)
NN_NEON_2(vf_less, vw, vf, vcltq_f32)
NN_NEON_3(vf_blend, vf, vw, vf, vf, vbslq_f32)

NN_INLINE vf vf_set1(float x) { return (vf){vdupq_n_f32(x), vdupq_n_f32(x)}; }
NN_INLINE vf vf_load(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4)}; }
NN_INLINE void vf_store(float *p, vf x) {
  vst1q_f32(p, x.low);
  vst1q_f32(p + 4, x.high);
}
NN_INLINE vf vf_load_part(const float *p, int64_t n) {
  float lanes[VF] = {0};
  memcpy(lanes, p, (size_t)n * sizeof *p);
  return vf_load(lanes);
}
NN_INLINE void vf_store_part(float *p, int64_t n, vf x) {
  float lanes[VF];
  vf_store(lanes, x);
  memcpy(p, lanes, (size_t)n * sizeof *p);
}
NN_INLINE vf vf_fma(vf a, vf b, vf c) {
  return (vf){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
/* Those of x86 take the second operand when either is NaN, and of zeros. */
NN_INLINE vf vf_max(vf a, vf b) { return vf_blend(vf_less(b, a), a, b); }
NN_INLINE vf vf_min(vf a, vf b) { return vf_blend(vf_less(a, b), a, b); }
NN_INLINE vf vf_ldexp(vf x, vf n) {
  const int32x4_t i = vcvtnq_s32_f32(n.low), j = vcvtnq_s32_f32(n.high), bias = vdupq_n_s32(127);
  const int32x4_t half_i = vshrq_n_s32(i, 1), half_j = vshrq_n_s32(j, 1);
  const vf a = {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half_i, bias), 23)),
                vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half_j, bias), 23))};
  const vf b = {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(i, half_i), bias), 23)),
                vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(j, half_j), bias), 23))};
  return vf_mul(vf_mul(x, a), b);
}
NN_INLINE vf vf_select_lt(vf a, vf b, vf x, vf y) { return vf_blend(vf_less(a, b), x, y); }
NN_INLINE vf vf_select_nan(vf a, vf x, vf y) {
  return (vf){vbslq_f32(vceqq_f32(a.low, a.low), y.low, x.low), vbslq_f32(vceqq_f32(a.high, a.high), y.high, x.high)};
}
NN_INLINE vf vf_keep_part(vf x, int64_t n, float fill) {
  const vw lane = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  return vf_blend(vw_above(vw_set1((uint32_t)n), lane), x, vf_set1(fill));
}

NN_INLINE vf vf_from_f16(const uint16_t *p) {
  const float16x8_t x = vreinterpretq_f16_u16(vld1q_u16(p));
  return (vf){vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
}
NN_INLINE void vf_to_f16(uint16_t *p, vf x) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high)));
}
NN_INLINE vf vf_from_bf16(const uint16_t *p) {
  const uint16x8_t x = vld1q_u16(p);
  return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}
/* The words whose upper halves are the rounded numbers. */
NN_INLINE uint32x4_t vf_round_bf16(float32x4_t x) {
  const uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(u, vdupq_n_u32(0x400000)));
}
NN_INLINE void vf_to_bf16(uint16_t *p, vf x) {
  vst1q_u16(p, vshrn_high_n_u32(vshrn_n_u32(vf_round_bf16(x.low), 16), vf_round_bf16(x.high), 16));
}
NN_INLINE vf vf_from_i8(const int8_t *p) {
  const int16x8_t wide = vmovl_s8(vld1_s8(p));
  return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}

NN_INLINE vf vf_split(vf x, vf *n) {
  const vw u = vf_words(x), e = vw_right_signed(vw_sub(u, vw_set1(0x3f3504f3)), 23);
  *n = vw_converted(e);
  return vw_floats(vw_sub(u, vw_left(e, 23)));
}
NN_NEON_1(vf_swap_pairs, vf, vf, vrev64q_f32)
NN_INLINE vf vf_load_pairs(const float *p) {
  const float32x4_t x = vld1q_f32(p);
  return (vf){vzip1q_f32(x, x), vzip2q_f32(x, x)};
}
NN_INLINE void vf_stream(float *p, vf x) { vf_store(p, x); }
NN_INLINE void vf_stream_f16(uint16_t *p, vf x) { vf_to_f16(p, x); }
NN_INLINE void vf_stream_bf16(uint16_t *p, vf x) { vf_to_bf16(p, x); }

NN_INLINE float vf_sum(vf x) {
  const float32x4_t q = vaddq_f32(x.low, x.high);
  const float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}

/* ---- f64 ---- */

typedef struct vd {
  float64x2_t low, high;
} vd;
NN_NEON_2(vd_add, vd, vd, vaddq_f64)
NN_INLINE vd vd_low(vf x) { return (vd){vcvt_f64_f32(vget_low_f32(x.low)), vcvt_high_f64_f32(x.low)}; }
NN_INLINE vd vd_high(vf x) { return (vd){vcvt_f64_f32(vget_low_f32(x.high)), vcvt_high_f64_f32(x.high)}; }
NN_INLINE vd vd_set1(double x) { return (vd){vdupq_n_f64(x), vdupq_n_f64(x)}; }
NN_INLINE vd vd_fma(vd a, vd b, vd c) {
  return (vd){vfmaq_f64(c.low, a.low, b.low), vfmaq_f64(c.high, a.high, b.high)};
}

#undef NN_NEON_1
#undef NN_NEON_2
#undef NN_NEON_3

#endif

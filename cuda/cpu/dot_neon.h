/* Products of bytes on NEON, four to a lane of 32 bits, by what the processor has for them. All are exact. */
#ifndef NN_CPU_DOT_NEON_H
#define NN_CPU_DOT_NEON_H

#include "simd.h"

/* sum + the products of signed bytes. Without the instruction pairs are added in 16 bits: 2 * 128 * 127 fits, and so
 * one of the two may use all bits, the other -127 .. 127. */
NN_INLINE int32x4_t dot_bytes(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, a, b);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

NN_INLINE int8x16_t dot_signed(uint32x4_t x) { return vreinterpretq_s8_u32(x); }

/* The same of two registers: lanes of a vector of words. */
NN_INLINE vw dot_words(vw sum, vw a, vw b) {
  return (vw){
      vreinterpretq_u32_s32(dot_bytes(vreinterpretq_s32_u32(sum.low), dot_signed(a.low), dot_signed(b.low))),
      vreinterpretq_u32_s32(dot_bytes(vreinterpretq_s32_u32(sum.high), dot_signed(a.high), dot_signed(b.high)))};
}

/* Four registers: the sum of the lanes of each. */
NN_INLINE int32x4_t dot_totals(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

#endif

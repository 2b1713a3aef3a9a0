/*
 * Products of bytes by FEAT_I8MM: an instruction multiplies two rows of eight bytes with two others. Here two rows of
 * activations meet VF rows of weights; sums lie as [activations][weights] of each pair until they are taken apart.
 */
#ifndef NN_CPU_PAIR_NEON_H
#define NN_CPU_PAIR_NEON_H

#include "simd.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define NN_NEON_PAIRS 1
#endif

#if NN_NEON_PAIRS
typedef struct pair_sums {
  int32x4_t of[VF / 2];
} pair_sums;

/* Eight bytes of each of VF rows of weights, two rows a register. */
typedef struct pair_weights {
  int8x16_t of[VF / 2];
} pair_weights;

NN_INLINE pair_sums pair_zero(void) {
  const int32x4_t zero = vdupq_n_s32(0);
  return (pair_sums){{zero, zero, zero, zero}};
}

/* From two vectors of words, one of each row in its lane, that follow each other along the rows. */
NN_INLINE pair_weights pair_of_words(vw first, vw second) {
  return (pair_weights){{vreinterpretq_s8_u32(vzip1q_u32(first.low, second.low)),
                         vreinterpretq_s8_u32(vzip2q_u32(first.low, second.low)),
                         vreinterpretq_s8_u32(vzip1q_u32(first.high, second.high)),
                         vreinterpretq_s8_u32(vzip2q_u32(first.high, second.high))}};
}

/* Eight bytes from x, and as many a `step` of bytes further on. */
NN_INLINE int8x16_t pair_activations(const int8_t *x, int64_t step) {
  return vcombine_s8(vld1_s8(x), vld1_s8(x + step));
}

NN_INLINE pair_sums pair_dot(pair_sums sum, pair_weights w, int8x16_t x) {
#pragma GCC unroll 4
  for (int i = 0; i < VF / 2; i++) {
    sum.of[i] = vmmlaq_s32(sum.of[i], x, w.of[i]);
  }
  return sum;
}

/* The sums of the first row of activations with each row of weights, and those of the second. */
NN_INLINE void pair_apart(const pair_sums *sum, vw of[2]) {
  uint64x2_t x[VF / 2];
#pragma GCC unroll 4
  for (int i = 0; i < VF / 2; i++) {
    x[i] = vreinterpretq_u64_s32(sum->of[i]);
  }
  of[0] = (vw){vreinterpretq_u32_u64(vzip1q_u64(x[0], x[1])), vreinterpretq_u32_u64(vzip1q_u64(x[2], x[3]))};
  of[1] = (vw){vreinterpretq_u32_u64(vzip2q_u64(x[0], x[1])), vreinterpretq_u32_u64(vzip2q_u64(x[2], x[3]))};
}
#endif

#endif

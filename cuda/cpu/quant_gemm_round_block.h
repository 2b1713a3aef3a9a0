/* 32 activations rounded to codes, with the vectors that every instruction set has. */
#ifndef NN_CPU_QUANT_GEMM_ROUND_BLOCK_H
#define NN_CPU_QUANT_GEMM_ROUND_BLOCK_H

#include "quant_gemm_job.h"

/* The largest magnitude of 32 elements; NaN if one is not finite. */
NN_INLINE float quant_largest(const void *x, int64_t at, int32_t dtype) {
  const vf zero = vf_set1(0.0f);
  vf most = zero, odd = zero; /* x - x is NaN where x is not finite, else zero */
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    const vf v = vf_load_as(x, at + i, dtype);
    most = vf_max(vf_max(v, vf_sub(zero, v)), most);
    odd = vf_add(odd, vf_sub(v, v));
  }
  const float largest = vf_maximum(most), none = vf_sum(odd);
  return none == none ? largest : none;
}

/* Codes of 32 elements; their scale; the sums of either half of the codes. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, int32_t sums[2],
                                 int32_t dtype) {
  const float largest = quant_largest(x, at, dtype);
  const int32_t zero = !(largest >= QUANT_LEAST); /* NaN, too: its scale says it */
  const vf inverse = vf_set1(zero ? 0.0f : 127.0f / largest);
  sums[0] = sums[1] = 0;
  float lanes[QUANT_BLOCK];
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    vf_store(lanes + i, vf_round(vf_mul(zero ? vf_set1(0.0f) : vf_load_as(x, at + i, dtype), inverse)));
  }
  for (int64_t i = 0; i < QUANT_BLOCK; i++) {
    codes[i] = (int8_t)(int32_t)lanes[i];
    sums[i / 16] += codes[i];
  }
  *scale = largest < QUANT_LEAST ? 0.0f : largest / 127.0f;
}

#endif

/* The left factor of a product with stored weights, rounded once a call. */
#ifndef NN_CPU_QUANT_GEMM_ROUND_H
#define NN_CPU_QUANT_GEMM_ROUND_H

#include "quant_gemm_job.h"

/* Magnitudes below this count as zero: 127 / a stays finite. */
#define QUANT_LEAST 0x1p-100f

/* The largest magnitude of 32 elements; NaN if one is not finite. */
NN_INLINE float quant_largest(const void *x, int64_t at, int32_t dtype) {
  const vf zero = vf_set1(0.0f);
  vf most = zero, odd = zero; /* x - x is NaN where x is not finite, else zero */
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    const vf v = vf_load_as(x, at + i, dtype);
    most = vf_max(vf_max(v, zero - v), most);
    odd += v - v;
  }
  const float largest = vf_maximum(most), none = vf_sum(odd);
  return none == none ? largest : none;
}

/* Codes of 32 elements; their scale and scaled sum. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, float *total, int32_t dtype) {
  const float largest = quant_largest(x, at, dtype);
  const int32_t zero = !(largest >= QUANT_LEAST); /* NaN, too: its scale says it */
  const vf inverse = vf_set1(zero ? 0.0f : 127.0f / largest);
  int32_t sum = 0;
  float lanes[QUANT_BLOCK];
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    vf_store(lanes + i, vf_round((zero ? vf_set1(0.0f) : vf_load_as(x, at + i, dtype)) * inverse));
  }
  for (int64_t i = 0; i < QUANT_BLOCK; i++) {
    codes[i] = (int8_t)(int32_t)lanes[i];
    sum += codes[i];
  }
  const float d = largest < QUANT_LEAST ? 0.0f : largest / 127.0f;
  *scale = d;
  *total = d * (float)sum;
}

/* A vector of x, rounded to the type that the form `left` is of. */
NN_INLINE vf quant_round_vector(vf x, int32_t left) {
  uint16_t half[VF];
  if (left == QUANT_LEFT_F16) {
    vf_to_f16(half, x);
    return vf_from_f16(half);
  }
  if (left == QUANT_LEFT_BF16) {
    vf_to_bf16(half, x);
    return vf_from_bf16(half);
  }
  return x;
}

/* One row into row `to` of the rounded factor. */
NN_INLINE void quant_round_row(const quant_left *left, int32_t form, const void *x, int64_t row, int64_t to, int64_t k,
                               int32_t dtype) {
  if (form == QUANT_LEFT_BLOCKS) {
    const int64_t blocks = k / QUANT_BLOCK;
    for (int64_t i = 0; i < blocks; i++) {
      quant_round_block(x, row * k + i * QUANT_BLOCK, left->codes + to * k + i * QUANT_BLOCK,
                        left->scale + to * blocks + i, left->total + to * blocks + i, dtype);
    }
    return;
  }
  float *values = left->values + to * k;
  int64_t i = 0;
  for (; i + VF <= k; i += VF) {
    vf_store(values + i, quant_round_vector(vf_load_as(x, row * k + i, dtype), form));
  }
  if (i < k) {
    vf_store_part(values + i, k - i, quant_round_vector(vf_load_part_as(x, row * k + i, k - i, dtype), form));
  }
}

#endif

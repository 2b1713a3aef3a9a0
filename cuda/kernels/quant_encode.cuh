/*
 * How 32 numbers become a block of the formats that have such blocks: the rounding is that of the `gguf` package
 * (gguf.quants), each step in f32 and none fused, so that the bytes are the same.
 *
 * A scale whose reciprocal overflows (blocks of magnitude below about 2^-125) gives zeros for quants: there the package
 * converts an infinity to an integer, which has no result of its own. A scale beyond f16 is stored as infinity.
 */
#ifndef NN_KERNELS_QUANT_ENCODE_CUH
#define NN_KERNELS_QUANT_ENCODE_CUH

#include "kernels/quant_format.cuh"

/* Beyond the finite numbers, or no number. */
__device__ __forceinline__ bool nn_beyond(float x) { return !(fabsf(x) <= 3.402823466e38f); }

/* x becomes the whole part of (x - minimum) * inverse + offset. */
struct nn_step {
  float scale, minimum, inverse, offset;
};

__device__ __forceinline__ nn_step nn_step_of(float scale, float minimum, float offset) {
  nn_step step = {scale, minimum, scale == 0.0f ? 0.0f : __fdiv_rn(1.0f, scale), offset};
  if (nn_beyond(step.inverse)) {
    step.inverse = step.offset = 0.0f;
  }
  return step;
}

/* The element of largest magnitude, the first of equals, becomes quant 0. */
template <int LEVELS> __device__ __forceinline__ nn_step nn_symmetric(const float (&x)[NN_PART]) {
  float most = x[0];
#pragma unroll
  for (int i = 1; i < NN_PART; i++) {
    most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
  }
  return nn_step_of(__fmul_rn(most, -2.0f / LEVELS), 0.0f, LEVELS / 2 + 0.5f);
}

/* Quant 0 is the least element, the last one the largest; of zeros of both signs the first. */
template <int LEVELS> __device__ __forceinline__ nn_step nn_asymmetric(const float (&x)[NN_PART]) {
  float most = x[0], least = x[0];
#pragma unroll
  for (int i = 1; i < NN_PART; i++) {
    most = x[i] > most ? x[i] : most;
    least = x[i] < least ? x[i] : least;
  }
  return nn_step_of(__fdiv_rn(__fadd_rn(most, -least), LEVELS - 1.0f), least, 0.5f);
}

template <int LEVELS> __device__ __forceinline__ uint32_t nn_quant_of(float x, const nn_step &step) {
  if (nn_beyond(step.scale)) { /* the span of the block overflowed */
    return 0;
  }
  const float y = __fadd_rn(__fmul_rn(__fadd_rn(x, -step.minimum), step.inverse), step.offset);
  return (uint32_t)fminf(fmaxf(y, 0.0f), LEVELS - 1.0f);
}

/* The low four bits of elements 0 to 15 and 16 to 31 side by side, and, of 32 levels, the fifth bits before them. */
template <int LEVELS>
__device__ __forceinline__ void nn_put_quants(uint8_t *to, const float (&x)[NN_PART], const nn_step &step) {
  uint8_t *const halves = LEVELS == 32 ? to + 4 : to;
  uint32_t fifths = 0;
#pragma unroll
  for (int i = 0; i < NN_PART / 2; i++) {
    const uint32_t low = nn_quant_of<LEVELS>(x[i], step), high = nn_quant_of<LEVELS>(x[i + 16], step);
    halves[i] = (uint8_t)((low & 15u) | (high & 15u) << 4);
    fifths |= low >> 4 << i | high >> 4 << (i + 16);
  }
  if (LEVELS == 32) {
    nn_put_u16(to, (uint16_t)fifths);
    nn_put_u16(to + 2, (uint16_t)(fifths >> 16));
  }
}

/* q8_0, from the largest magnitude; halves go away from zero. */
__device__ __forceinline__ nn_step nn_q8_0_step(float most) { return nn_step_of(__fdiv_rn(most, 127.0f), 0.0f, 0.0f); }

__device__ __forceinline__ int nn_q8_0_quant(float x, const nn_step &step) {
  const float y = __fmul_rn(x, step.inverse), whole = truncf(y), rest = y - whole; /* exact */
  return (int)(whole + (rest >= 0.5f ? 1.0f : rest <= -0.5f ? -1.0f : 0.0f));
}

__device__ __forceinline__ void nn_encode_q8_0(const float (&x)[NN_PART], uint8_t *to) {
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < NN_PART; i++) {
    most = fmaxf(most, fabsf(x[i]));
  }
  const nn_step step = nn_q8_0_step(most);
  nn_put_f16(to, step.scale);
#pragma unroll
  for (int i = 0; i < NN_PART; i++) {
    to[2 + i] = (uint8_t)nn_q8_0_quant(x[i], step);
  }
}

template <int FORMAT> __device__ __forceinline__ void nn_encode(const float (&x)[NN_PART], uint8_t *to) {
  if constexpr (FORMAT == NNCUDA_FORMAT_Q8_0) {
    nn_encode_q8_0(x, to);
  } else {
    constexpr bool HAS_MINIMUM = nn_stored<FORMAT>::HAS_MINIMUM;
    constexpr int LEVELS = FORMAT == NNCUDA_FORMAT_Q4_0 || FORMAT == NNCUDA_FORMAT_Q4_1 ? 16 : 32;
    const nn_step step = HAS_MINIMUM ? nn_asymmetric<LEVELS>(x) : nn_symmetric<LEVELS>(x);
    nn_put_f16(to, step.scale);
    if (HAS_MINIMUM) {
      nn_put_f16(to + 2, step.minimum);
    }
    nn_put_quants<LEVELS>(to + (HAS_MINIMUM ? 4 : 2), x, step);
  }
}

#endif

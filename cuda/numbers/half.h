/* Scalar conversions between f32 and the 16-bit floats: round to nearest-even, exact on every pattern. */
#ifndef NN_NUMBERS_HALF_H
#define NN_NUMBERS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t nn_f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float nn_f32_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static inline float nn_bf16_to_f32(uint16_t h) { return nn_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t nn_f32_to_bf16(float x) {
  const uint32_t u = nn_f32_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) { /* NaN: keep the leading payload bits, quiet */
    return (uint16_t)(u >> 16 | 0x40u);
  }
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float nn_f16_to_f32(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) { /* infinity, or NaN made quiet as the hardware does */
    return nn_f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0u));
  }
  /* 2^112 rebases the exponent and normalises subnormals in one exact product. */
  return nn_f32_from_bits(sign | nn_f32_bits(nn_f32_from_bits(rest << 13) * 0x1p112f));
}

static inline uint16_t nn_f32_to_f16(float x) {
  const uint32_t u = nn_f32_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) { /* NaN: keep the leading payload bits, quiet, as the hardware does */
    return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
  }
  if (a >= 0x477ff000u) { /* rounds to 2^16 or above */
    return (uint16_t)(sign | 0x7c00u);
  }
  if (a < 0x38800000u) { /* subnormal or zero: adding 0.5 leaves the rounded count of 2^-24 in the low bits */
    return (uint16_t)(sign | (nn_f32_bits(nn_f32_from_bits(a) + 0.5f) & 0x7ffu));
  }
  return (uint16_t)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
}

#endif

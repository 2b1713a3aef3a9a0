/*
 * Scalar conversions between f32 and OCP E4M3, 4 bits of exponent and 3 of mantissa (Micikevicius et al. 2022, "FP8
 * formats for deep learning"), in integer arithmetic: for GPUs without instructions for them. cpu/e4m3.h has the same
 * for vectors. Plain C, so that CUDA's compiler takes it, too.
 */
#ifndef NN_NUMBERS_E4M3_H
#define NN_NUMBERS_E4M3_H

#include "numbers/sizes.h"

#include <string.h>

/* The pattern of 2^-6, the least number with an exponent of its own, and one step of the exponent. */
#define NN_E4M3_EVEN 0x3c800000u
#define NN_E4M3_BINADE 0x800000u
#define NN_E4M3_NAN 0x7fu

/* Rounds to nearest, ties to even, and to 448 what is beyond; NaN becomes 0x7f. Below 2^-6 numbers are evenly spaced:
 * 2^14 is added, whose last place is that spacing, 2^-9. */
NN_NUMBER_FUNCTION uint8_t nn_e4m3_encoded(float x) {
  uint32_t bits, size, code;
  memcpy(&bits, &x, sizeof bits);
  size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) {
    return NN_E4M3_NAN;
  }
  if (size < NN_E4M3_EVEN) {
    float lifted;
    memcpy(&lifted, &size, sizeof lifted);
    lifted += 16384.0f;
    memcpy(&code, &lifted, sizeof code);
    code -= 0x46800000u;
  } else {
    code = (size + 0x7ffffu + (size >> 20 & 1u) - (NN_E4M3_EVEN - NN_E4M3_BINADE)) >> 20;
    code = code < NN_E4M3_NAN ? code : NN_E4M3_NAN - 1;
  }
  return (uint8_t)(code | (bits >> 24 & 0x80u));
}

/* Exact. Evenly spaced numbers are read as those of the binade of 2^-6, which is then taken off. */
NN_NUMBER_FUNCTION float nn_e4m3_decoded(uint8_t code) {
  const uint32_t size = code & 0x7fu, even = size < 8;
  uint32_t bits = (size << 20) + NN_E4M3_EVEN - (even ? 0u : NN_E4M3_BINADE);
  const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
  float x;
  if (size == NN_E4M3_NAN) {
    bits = 0x7fffffffu;
  } else if (even) {
    memcpy(&x, &bits, sizeof x);
    x -= 0.015625f;
    memcpy(&bits, &x, sizeof bits);
  }
  bits |= sign;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#endif

/*
 * What codes of four bits stand for in formats that number sixteen values, and the scales of mxfp4.
 *
 * iq4_nl and iq4_xs: values that are denser near zero (Gerganov et al., ggml-common.h, kvalues_iq4nl). mxfp4: the
 * numbers of E2M1, twice as large, so that they are whole, and a scale half as large (OCP Microscaling Formats 1.0,
 * sections 5.3.3 and 5.4.1).
 */
#ifndef NN_NUMBERS_CODE_TABLE_H
#define NN_NUMBERS_CODE_TABLE_H

#include "numbers/sizes.h"

#include <string.h>

#define NN_CODE_TABLE_IQ4 -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define NN_CODE_TABLE_E2M1 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* 2^(e - 128), half the scale that a byte of mxfp4 stands for: the product of two powers of two that both are ordinary
 * f32. It is exact, subnormals included. 255 has no meaning of its own, as in GGUF files. */
NN_NUMBER_FUNCTION float nn_e8m0_half(uint8_t e) {
  const uint32_t one = (e / 2u + 63u) << 23, other = ((e + 1u) / 2u + 63u) << 23;
  float a, b;
  memcpy(&a, &one, sizeof a);
  memcpy(&b, &other, sizeof b);
  return a * b;
}

#endif

/*
 * Stochastic rounding of moments; the rule is in bindings.h, section optimizer. The random bits are a function of step
 * and element, so every thread, engine and language draws them on its own. Plain C, so that both engines include it.
 */
#ifndef NN_NUMBERS_MOMENTS_H
#define NN_NUMBERS_MOMENTS_H

#include "numbers/sizes.h"

/* Elements that share a scale, and a key. */
#define NN_MOMENT_BLOCK 256

/* What the words of neighbours differ by before they are mixed: the golden ratio, so that no two of a block are near.
 */
#define NN_MOMENT_STRIDE 0x9e3779b9u

/* Bits of mantissa of the codes, and the pattern of the f32 2^-14, below which they are evenly spaced: x + 2^-14 has
 * one exponent for all of them. */
#define NN_MOMENT_M_BITS 3
#define NN_MOMENT_R_BITS 4
#define NN_MOMENT_EVEN 0x38800000u

NN_NUMBER_FUNCTION int64_t nn_moment_blocks(int64_t n) { return n / NN_MOMENT_BLOCK + (n % NN_MOMENT_BLOCK != 0); }

/* Each bit of the result hangs on each bit of x. (Appleby 2011, MurmurHash3, fmix32) */
NN_NUMBER_FUNCTION uint32_t nn_moment_mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ x >> 16;
}

/* The word of element i of the block is nn_moment_mix(key + i * NN_MOMENT_STRIDE). */
NN_NUMBER_FUNCTION uint32_t nn_moment_key(int32_t step, int64_t block) {
  const uint32_t low = nn_moment_mix(nn_moment_mix((uint32_t)step) + (uint32_t)block);
  return nn_moment_mix(low + (uint32_t)((uint64_t)block >> 32));
}

#endif

/*
 * Blocks of numbers in 8 bits that share a power of two, as the factors of products have them (grouped_gemm_fp8): each
 * number is e * 2^x with e an OCP E4M3. Such a number is exact in bf16, and so a product of them in f32: what an engine
 * without instructions for 8 bits multiplies in bf16 is the same. Whole-number arithmetic, alike everywhere. Plain C,
 * so that CUDA's compiler takes it, too.
 */
#ifndef NN_NUMBERS_FP8_BLOCKS_H
#define NN_NUMBERS_FP8_BLOCKS_H

#include "numbers/sizes.h"

#include <string.h>

/* The side of a block; the bounds of x, within which scaled numbers and their products with a sum of 128 neither
 * overflow nor leave the normal numbers. */
enum { NN_FP8_BLOCK = 128, NN_FP8_LEAST = -100, NN_FP8_MOST = 100 };

/* What x has added in f32's exponent, and where a byte holds it. */
enum { NN_FP8_BIAS = 127 };

/* The largest E4M3, and the pattern from which a size is not finite. */
#define NN_FP8_LARGEST 448.0f
#define NN_FP8_INFINITE 0x7f800000u

/* x of a block whose largest finite number has this pattern, without its sign: 448 is 1.75 * 2^8, so a significand
 * above 1.75 takes one more. */
NN_NUMBER_FUNCTION int32_t nn_fp8_exponent(uint32_t largest) {
  const int32_t x = (int32_t)((largest + 0x1fffffu) >> 23) - NN_FP8_BIAS - 8;
  return x < NN_FP8_LEAST ? NN_FP8_LEAST : x > NN_FP8_MOST ? NN_FP8_MOST : x;
}

/* 2^x, of a normal number. */
NN_NUMBER_FUNCTION float nn_fp8_power(int32_t x) {
  const uint32_t bits = (uint32_t)(NN_FP8_BIAS + x) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

/*
 * Where the blocks of rows of a group begin, among those of all groups, when each group begins with a block of its own:
 * at or behind the end of the group before it, so without a sum over groups. `first` is the group's first row, which
 * for the number of groups is the number of rows.
 */
NN_SIZE_FUNCTION int64_t nn_fp8_first_block(int64_t first, int64_t group) {
  return nn_ceil_div(first, NN_FP8_BLOCK) + group;
}

#endif

/*
 * Blocks of stored weights against several rows of activations by FEAT_I8MM (pair_neon.h): what interleaved_integers
 * and quant_stream_step are for dot products, with the same integers.
 */
#ifndef NN_CPU_QUANT_GEMM_PAIRS_NEON_H
#define NN_CPU_QUANT_GEMM_PAIRS_NEON_H

#include "pair_neon.h"
#include "quant_gemm_words.h"

#if NN_NEON_PAIRS
enum { QUANT_PAIRS = QUANT_ROWS_AT_ONCE / 2 };

/* What interleaved_integers gives, of QUANT_ROWS_AT_ONCE rows of activations. */
NN_INLINE void pairs_interleaved(const uint8_t *w, int part, int run, const int8_t *x, int64_t row_codes,
                                 vw integers[2][QUANT_ROWS_AT_ONCE], const int32_t format) {
  const int both = interleaved_is_large(format); /* halves of words are of two blocks */
  pair_sums sum[2][QUANT_PAIRS];
#pragma GCC unroll 2
  for (int p = 0; p < QUANT_PAIRS; p++) {
    sum[0][p] = sum[1][p] = pair_zero();
  }
#pragma GCC unroll 4
  for (int g = 0; g < interleaved_words(format); g += 2) {
    if (format == NNCUDA_FORMAT_Q8_0) {
      const int at = interleaved_codes_at(format) + g * 4;
      const pair_weights c = pair_of_words(interleaved_word(w, at, part), interleaved_word(w, at + 4, part));
#pragma GCC unroll 2
      for (int p = 0; p < QUANT_PAIRS; p++) {
        sum[0][p] = pair_dot(sum[0][p], c, pair_activations(x + 2 * p * row_codes + 4 * g, row_codes));
      }
      continue;
    }
    si first[2], second[2];
    interleaved_halves(w, part, run, g, first, 0, format);
    interleaved_halves(w, part, run, g + 1, second, 0, format);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      const pair_weights c = pair_of_words(first[half], second[half]);
      pair_sums *to = sum[half * both];
#pragma GCC unroll 2
      for (int p = 0; p < QUANT_PAIRS; p++) {
        const int8_t *from = x + 2 * p * row_codes + 4 * g + half * interleaved_apart(format);
        to[p] = pair_dot(to[p], c, pair_activations(from, row_codes));
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < QUANT_PAIRS; p++) {
    pair_apart(&sum[0][p], integers[0] + 2 * p);
    pair_apart(&sum[1][p], integers[1] + 2 * p);
  }
}

/* Sixteen codes of each of VF rows, from c[j].low or, with `upper`, c[j].high, times those of two rows from x on. */
NN_INLINE pair_sums pairs_half(pair_sums sum, const quant_pair c[VF], const int upper, const int8_t *x, int64_t k) {
#pragma GCC unroll 2
  for (int eight = 0; eight < 2; eight++) {
    pair_weights w;
#pragma GCC unroll 4
    for (int i = 0; i < VF / 2; i++) {
      const uint64x2_t a = vreinterpretq_u64_u8(upper ? c[2 * i].high : c[2 * i].low);
      const uint64x2_t b = vreinterpretq_u64_u8(upper ? c[2 * i + 1].high : c[2 * i + 1].low);
      w.of[i] = vreinterpretq_s8_u64(eight ? vzip2q_u64(a, b) : vzip1q_u64(a, b));
    }
    sum = pair_dot(sum, w, pair_activations(x + 8 * eight, k));
  }
  return sum;
}

/* The integers of a block of VF rows of weights with two rows of activations, which begin at x, k codes apart.
 * `factor`: those of the block's halves, where the format has some. */
NN_INLINE void pairs_block(const quant_pair c[VF], const int8_t *x, int64_t k, const vw factor[2], vw integers[2],
                           const int32_t format) {
  pair_sums sum = pairs_half(pair_zero(), c, 0, x, k);
  if (!nn_format_has_factors(format)) {
    sum = pairs_half(sum, c, 1, x + QUANT_BLOCK / 2, k);
    pair_apart(&sum, integers);
    return;
  }
  const pair_sums other = pairs_half(pair_zero(), c, 1, x + QUANT_BLOCK / 2, k);
  vw upper[2];
  pair_apart(&sum, integers);
  pair_apart(&other, upper);
  for (int r = 0; r < 2; r++) {
    integers[r] = vw_add(vw_mul(integers[r], factor[0]), vw_mul(upper[r], factor[1]));
  }
}
#endif

#endif

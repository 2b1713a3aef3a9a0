/*
 * Products of few rows with interleaved q2_k and q3_k, whose blocks of 32 have two parts with a factor each. The sums
 * of both parts fit 16 bits, and so their factors are applied by one product of pairs; in q2_k what multiplies the
 * minimum is, too. Codes stay where they are in their bytes as far as bytes allow: what that makes of their sums, 4^j
 * times as much, is shifted away once for all words.
 */
#ifndef NN_CPU_QUANT_GEMM_INTERLEAVED_PAIRS_H
#define NN_CPU_QUANT_GEMM_INTERLEAVED_PAIRS_H

#include "quant_gemm_words.h"

/* Where the codes of block `run` of a half begin in their bytes: two bits up from block to block, but for the last one,
 * whose bytes would reach 192 and, with a third bit, beyond 255. */
NN_INLINE int pairs_up(int run) { return run < 3 ? 2 * run : 4; }

/* Word g of the four blocks of half `half`, 2^pairs_up times as much as interleaved_four gives. */
NN_INLINE void pairs_four(const uint8_t *w, int part, int half, int g, si c[4], const int32_t format) {
  const int three = format == NNCUDA_FORMAT_Q3_K;
  const si v = interleaved_word(w, (three ? 46 : 20) + (half * 8 + g) * 4, part);
#pragma GCC unroll 4
  for (int run = 0; run < 4; run++) {
    const int up = pairs_up(run);
    c[run] = si_and(interleaved_shift(v, up - 2 * run), 3 << up);
    if (three) {
      const si thirds = interleaved_word(w, 14 + g * 4, part);
      c[run] = si_with(c[run], interleaved_shift(thirds, up + 2 - (4 * half + run)), 4 << up);
    }
  }
}

/* Bytes 2i and 2i + 1 of each word as two numbers of 16 bits. */
NN_INLINE si pairs_of_bytes(si four, int i) {
#define WORD(l, i) 4 * l + 2 * i, 0x80, 4 * l + 2 * i + 1, 0x80
#define WORDS(i) WORD(0, i), WORD(1, i), WORD(2, i), WORD(3, i)
  static const uint8_t order[2][16] = {{WORDS(0)}, {WORDS(1)}};
#undef WORDS
#undef WORD
  return quant_looked_up(four, quant_table((const int8_t *)order[i]));
}

/* The factors of both parts of block `run` of half `half`. */
NN_INLINE si pairs_factors(const uint8_t *w, int part, int half, int run, const int32_t format) {
  const int j = 2 * half + run / 2; /* of the words of four factors */
  if (format == NNCUDA_FORMAT_Q2_K) {
    return pairs_of_bytes(si_and(interleaved_word(w, 4 + 4 * j, part), 15), run % 2);
  }
  const si lows = interleaved_word(w, 2 + 4 * (j % 2), part), highs = interleaved_word(w, 10, part);
  const si six = si_with(si_and(interleaved_shift(lows, -(j / 2 * 4)), 15), interleaved_shift(highs, 4 - 2 * j), 48);
  return si_sub_pairs(pairs_of_bytes(six, run % 2), si_all(0x00200020));
}

/* What multiplies the minimum in them (q2_k). */
NN_INLINE si pairs_minima(const uint8_t *w, int part, int half, int run) {
  const si both = interleaved_word(w, 4 + 4 * (2 * half + run / 2), part);
  return pairs_of_bytes(si_and(si_right(both, 4), 15), run % 2);
}

/* The sums of 16 codes of the activations in both halves of a block, `times` each. */
NN_INLINE si pairs_sums(const int32_t sums[2], int32_t times) {
  return si_all((int32_t)(((uint32_t)(times * sums[0]) & 0xffff) | (uint32_t)(times * sums[1]) << 16));
}

#endif

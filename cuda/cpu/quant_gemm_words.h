/*
 * Words of sixteen interleaved rows of weights, the _R16 formats, as products take them. In all formats but q2_k,
 * q3_k and q6_k, whose parts have factors, they lie as in a block, sixteen times as far on: what begins at byte `at` of
 * a block begins at byte 16 * at of sixteen of them. A run is what words of 4 bits have together: the halves of a block
 * of 32, or, in q4_k and q5_k, two blocks of
 * 32. One of 256 has four runs then, and eight in iq4_xs.
 */
#ifndef NN_CPU_QUANT_GEMM_WORDS_H
#define NN_CPU_QUANT_GEMM_WORDS_H

#include "quant_gemm_rows.h"

/* Blocks of 32 in a block. */
NN_INLINE int interleaved_each(int32_t format) { return (int)(nn_format_block_of(format).elements / QUANT_BLOCK); }
/* Whether a run has two blocks of 32. */
NN_INLINE int interleaved_is_large(int32_t format) {
  return interleaved_each(format) > 1 && format != NNCUDA_FORMAT_IQ4_XS;
}
NN_INLINE int interleaved_runs(int32_t format) {
  return interleaved_is_large(format) ? interleaved_each(format) / 2 : interleaved_each(format);
}
/* The first block of 32 of a run. */
NN_INLINE int interleaved_run_at(int run, int32_t format) { return interleaved_is_large(format) ? 2 * run : run; }
/* Words of a run; q8_0, which has no halves, has a block's. */
NN_INLINE int interleaved_words(int32_t format) {
  return interleaved_is_large(format) || format == NNCUDA_FORMAT_Q8_0 ? 8 : 4;
}
/* Elements from those in the low halves of words to those in the high ones. */
NN_INLINE int interleaved_apart(int32_t format) { return interleaved_is_large(format) ? QUANT_BLOCK : QUANT_BLOCK / 2; }

/* Where the codes begin in a block, or what words have of them. */
NN_INLINE int interleaved_codes_at(int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_MXFP4:
    return 1;
  case NNCUDA_FORMAT_IQ4_XS:
    return 8;
  case NNCUDA_FORMAT_Q4_1:
    return 4;
  case NNCUDA_FORMAT_Q5_0:
    return 6;
  case NNCUDA_FORMAT_Q5_1:
    return 8;
  case NNCUDA_FORMAT_Q4_K:
    return 16;
  case NNCUDA_FORMAT_Q5_K:
    return 48;
  default:
    return 2;
  }
}

/* Whether codes have four bits, which are their values, and no more. */
NN_INLINE int interleaved_has_four_bits(int32_t format) {
  return format == NNCUDA_FORMAT_Q4_0 || format == NNCUDA_FORMAT_Q4_1 || format == NNCUDA_FORMAT_Q4_K;
}

/* The word at byte `at` of a block, of vector `part` of the rows. */
NN_INLINE si interleaved_word(const uint8_t *w, int at, int part) {
  return si_load(w + at * QUANT_ROWS + part * 4 * VF);
}

/* Bits of words up by n, or down. */
NN_INLINE si interleaved_shift(si a, int n) { return n == 0 ? a : n > 0 ? si_left(a, n) : si_right(a, -n); }

/* The codes in word g of a run: of the low halves, then of the high ones. With `raw`, high halves of 4 bits are as
 * quant_upper gives them. Not for q8_0 and formats with factors; `run` is to be a constant. */
NN_INLINE void interleaved_halves(const uint8_t *w, int part, int run, int g, si c[2], const int raw,
                                  const int32_t format) {
  const int at = interleaved_codes_at(format);
  const si v = interleaved_word(w, at + (run * interleaved_words(format) + g) * 4, part);
  if (nn_format_has_table(format)) {
    const si table = quant_signed(quant_table(quant_table_of(format)));
    c[0] = quant_looked_up(table, si_and(v, 15));
    c[1] = quant_looked_up(table, si_and(si_right(v, 4), 15));
  } else if (interleaved_has_four_bits(format)) {
    c[0] = si_and(v, 15);
    c[1] = raw ? quant_upper(v) : si_and(si_right(v, 4), 15);
  } else if (interleaved_is_large(format)) { /* bit b of byte i: of element i of block b */
    const si fifths = interleaved_word(w, at - 32 + g * 4, part);
    c[0] = si_with(si_and(v, 15), interleaved_shift(fifths, 4 - 2 * run), 16);
    c[1] = si_with(si_and(si_right(v, 4), 15), interleaved_shift(fifths, 3 - 2 * run), 16);
  } else {
    const si fifths = interleaved_word(w, at - 4, part);
    c[0] = quant_fifths(si_and(v, 15), fifths, g);
    c[1] = quant_fifths(si_and(si_right(v, 4), 15), fifths, g + 4);
  }
}

/* Scale and minimum of block b, 0 where a block has 32 elements. Not for formats with factors; b is to be a constant.
 */
NN_INLINE void interleaved_factors(const uint8_t *w, int part, int b, vf *scale, vf *minimum, const int32_t format) {
  if (format == NNCUDA_FORMAT_MXFP4 || format == NNCUDA_FORMAT_IQ4_XS) {
    *minimum = vf_set1(0.0f);
    if (format == NNCUDA_FORMAT_MXFP4) {
      *scale = quant_e8m0s(vw_load_bytes(w + part * VF));
    } else {
      const si first = interleaved_word(w, 0, part), second = interleaved_word(w, 4, part);
      *scale = quant_iq4_xs_scales(quant_low_f16(first), vi_words(first), vi_words(second), b);
    }
    return;
  }
  const uint16_t *f16s = (const uint16_t *)(const void *)w + part * VF;
  *scale = vf_from_f16(f16s);
  *minimum = vf_set1(0.0f);
  if (nn_format_has_minimum(format)) {
    *minimum = vf_from_f16(f16s + QUANT_ROWS);
  }
  if (interleaved_is_large(format)) {
    const uint8_t *factors = w + 4 * QUANT_ROWS + part * 4 * VF;
    const vw x[3] = {vw_load(factors), vw_load(factors + 4 * QUANT_ROWS), vw_load(factors + 8 * QUANT_ROWS)};
    *minimum = vf_sub(vf_set1(0.0f), *minimum);
    quant_part_factors(x, b, scale, minimum);
  }
}

/* ---- formats with factors, blocks of 256: halves of 128, each of four blocks of 32 ---- */

/* Word g (0 .. 7) of the four blocks of a half. q6_k: words g and 8 + g of low bits and word g of high bits lie
 * together. q2_k, q3_k: a word has two bits of each of the four; q3_k: one of eight words, which both halves share, a
 * bit of each of the eight. `half` is to be a constant but for q6_k. */
NN_INLINE void interleaved_four(const uint8_t *w, int part, int half, int g, si c[4], const int32_t format) {
  if (format == NNCUDA_FORMAT_Q2_K) {
    const si v = interleaved_word(w, 20 + (half * 8 + g) * 4, part);
#pragma GCC unroll 4
    for (int run = 0; run < 4; run++) {
      c[run] = si_and(interleaved_shift(v, -2 * run), 3);
    }
    return;
  }
  if (format == NNCUDA_FORMAT_Q3_K) {
    const si v = interleaved_word(w, 46 + (half * 8 + g) * 4, part), thirds = interleaved_word(w, 14 + g * 4, part);
#pragma GCC unroll 4
    for (int run = 0; run < 4; run++) {
      c[run] = si_with(si_and(interleaved_shift(v, -2 * run), 3), interleaved_shift(thirds, 2 - (4 * half + run)), 4);
    }
    return;
  }
  const int at = 18 + (half * 8 + g) * 12;
  const si a = interleaved_word(w, at, part), b = interleaved_word(w, at + 4, part);
  const si h = interleaved_word(w, at + 8, part);
  c[0] = si_with(si_and(a, 15), si_left(h, 4), 48);
  c[1] = si_with(si_and(b, 15), si_left(h, 2), 48);
  c[2] = si_with(si_and(si_right(a, 4), 15), h, 48);
  c[3] = si_with(si_and(si_right(b, 4), 15), si_right(h, 2), 48);
}

/* The factors of the halves of a block of 32, block `run` of half `half`; both are to be constants but for q6_k. */
NN_INLINE void interleaved_part_factors(const uint8_t *w, int part, int half, int run, vw factor[2],
                                        const int32_t format) {
  const int j = 2 * half + run / 2; /* of the words of four factors */
  if (format == NNCUDA_FORMAT_Q6_K) {
#pragma GCC unroll 2
    for (int p = 0; p < 2; p++) {
      factor[p] = vi_words(si_scales(w + (2 + half * 8 + 2 * run + p) * QUANT_ROWS + part * VF));
    }
    return;
  }
  if (format == NNCUDA_FORMAT_Q2_K) {
    const vw four = vi_words(interleaved_word(w, 4 + 4 * j, part));
    factor[0] = quant_bits(four, run % 2 * 16, 15);
    factor[1] = quant_bits(four, run % 2 * 16 + 8, 15);
    return;
  }
  const vw lows = vi_words(interleaved_word(w, 2 + 4 * (j % 2), part)), highs = vi_words(interleaved_word(w, 10, part));
  const vw four = quant_q3_k_factors(lows, highs, j);
  factor[0] = quant_signed_byte(four, run % 2 * 2);
  factor[1] = quant_signed_byte(four, run % 2 * 2 + 1);
}

/* What multiplies the minimum in the halves of that block (q2_k). */
NN_INLINE void interleaved_part_minima(const uint8_t *w, int part, int half, int run, vf least[2]) {
  const vw four = vi_words(interleaved_word(w, 4 + 4 * (2 * half + run / 2), part));
  least[0] = vw_converted(quant_bits(four, run % 2 * 16 + 4, 15));
  least[1] = vw_converted(quant_bits(four, run % 2 * 16 + 12, 15));
}

/* What the factors of a block of 256 are multiples of. */
NN_INLINE vf interleaved_scale(const uint8_t *w, int part) {
  return vf_from_f16((const uint16_t *)(const void *)w + part * VF);
}
/* The same of its minima (q2_k), which are subtracted. */
NN_INLINE vf interleaved_minimum(const uint8_t *w, int part) {
  return vf_sub(vf_set1(0.0f), vf_from_f16((const uint16_t *)(const void *)w + QUANT_ROWS + part * VF));
}

#endif

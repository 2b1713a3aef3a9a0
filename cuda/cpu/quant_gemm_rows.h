/*
 * VF rows of weights side by side, one a lane, and what of them is the same for a run of blocks: where they lie, their
 * scales and minima.
 */
#ifndef NN_CPU_QUANT_GEMM_ROWS_H
#define NN_CPU_QUANT_GEMM_ROWS_H

#include "quant_gemm_isa.h"

typedef struct quant_rows {
  const uint8_t *row[VF];
  vi at; /* bytes from the first row */
  vf scale, minimum;
  vw factors[3]; /* of 256 elements: parts' scales and minima as stored */
} quant_rows;

/* Rows from c on of a piece; after its last row, that one. */
NN_INLINE void quant_rows_at(quant_rows *w, const quant_piece *t, int64_t c) {
  int32_t at[VF];
  for (int64_t j = 0; j < VF; j++) {
    const int64_t row = nn_min(j, t->columns - c - 1) * t->row_bytes;
    w->row[j] = t->w + c * t->row_bytes + row;
    at[j] = (int32_t)row;
  }
  memcpy(&w->at, at, sizeof at);
}

/* Words `at` bytes on in each row. */
NN_INLINE vi quant_gather_rows(const quant_rows *w, uint64_t at) { return quant_gather(w->at, w->row[0] + at); }

/* Bits from `from` on of each word that are in `mask`. */
NN_INLINE vw quant_bits(vw x, int from, uint32_t mask) { return vw_and(vw_right(x, from), vw_set1(mask)); }

/* Scale and minimum of part `part` of a block of q4_k or q5_k of each row: those of the block, the latter negative,
 * times what its twelve bytes x have for the part. */
NN_INLINE void quant_part_factors(const vw x[3], int part, vf *scale, vf *minimum) {
  const int by = part % 4 * 8;
  vw s = quant_bits(x[0], by, 63), m = quant_bits(x[1], by, 63);
  if (part >= 4) {
    s = vw_or(quant_bits(x[2], by, 15), quant_bits(x[0], by + 2, 48));
    m = vw_or(quant_bits(x[2], by + 4, 15), quant_bits(x[1], by + 2, 48));
  }
  *scale = vf_mul(*scale, vw_converted(s));
  *minimum = vf_mul(*minimum, vw_converted(m));
}

/* The factors of parts 4j .. 4j+3 of q3_k, as signed bytes: of the three words of the scales, number j % 2 has their
 * low bits and number 2 their high ones. */
NN_INLINE vw quant_q3_k_factors(vw lows, vw highs, int j) {
  const vw low = vw_and(vw_right(lows, j / 2 * 4), vw_set1(0x0f0f0f0f));
  const vw high = vw_and(vw_right(highs, 2 * j), vw_set1(0x03030303));
  /* less 32: added are 96, which a byte of 6 bits has room for, and the highest bit turns, another 128 */
  return vw_xor(vw_add(vw_or(low, vw_left(high, 4)), vw_set1(0x60606060)), vw_set1(0x80808080));
}

/* The factors, or with `minima` what multiplies the minimum, of the four parts of blocks 2i and 2i+1 of each row, as
 * signed bytes, of a format with nn_format_has_factors; i % 4 is to be a constant. */
NN_INLINE vw quant_factor_bytes(const quant_rows *w, uint64_t i, int minima, int32_t format) {
  const uint64_t j = i % 4;
  if (format == NNCUDA_FORMAT_Q2_K) {
    const vw both = vi_words(quant_gather_rows(w, i / 4 * 84 + 4 * j));
    return vw_and(vw_right(both, minima ? 4 : 0), vw_set1(0x0f0f0f0f));
  }
  if (format == NNCUDA_FORMAT_Q3_K) {
    const vi low = quant_gather_rows(w, i / 4 * 110 + 96 + 4 * (j % 2)), high = quant_gather_rows(w, i / 4 * 110 + 104);
    return quant_q3_k_factors(vi_words(low), vi_words(high), (int)j);
  }
  return vi_words(quant_gather_rows(w, i / 4 * 210 + 192 + 4 * j));
}

/* Byte j of each word, with its sign. */
NN_INLINE vw quant_signed_byte(vw x, int j) { return vw_right_signed(vw_left(x, 24 - 8 * j), 24); }

/* The factors of both halves of block i of each row, or with `minima` their minima, as integers. */
NN_INLINE void quant_half_factors(const quant_rows *w, uint64_t i, int minima, vw half[2], int32_t format) {
  const vw four = quant_factor_bytes(w, i / 2, minima, format);
  half[0] = quant_signed_byte(four, (int)(i % 2) * 2);
  half[1] = quant_signed_byte(four, (int)(i % 2) * 2 + 1);
}

/* Sums of 16 codes of the activations times what multiplies the minimum in either half of a block: whole numbers below
 * 2^16. */
NN_INLINE vf quant_least_integers(const int32_t sums[2], vf first, vf second) {
  return vf_fma(vf_set1((float)sums[1]), second, vf_mul(vf_set1((float)sums[0]), first));
}

/* nn_e8m0_half of the lowest byte of each word. */
NN_INLINE vf quant_e8m0s(vw x) {
  const vw e = vw_and(x, vw_set1(255));
  const vw one = vw_add(vw_right(e, 1), vw_set1(63)), other = vw_add(vw_right(vw_add(e, vw_set1(1)), 1), vw_set1(63));
  return vf_mul(vw_floats(vw_left(one, 23)), vw_floats(vw_left(other, 23)));
}

/* Scale of part `part` of a block of iq4_xs of each row: that of the block times what its words 0 and 1 have for the
 * part, two bits behind the f16, then four. */
NN_INLINE vf quant_iq4_xs_scales(vf scale, vw first, vw second, int part) {
  const vw low = quant_bits(second, 4 * part, 15), high = quant_bits(first, 16 + 2 * part, 3);
  return vf_mul(scale, vw_converted(vw_sub(vw_or(low, vw_left(high, 4)), vw_set1(32))));
}

/* Scale and minimum of block i of each row. Of formats of 256 elements, i % 8 is to be a constant. */
NN_INLINE void quant_factors(quant_rows *w, uint64_t i, vf *scale, vf *minimum, int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    *scale = quant_low_f16(quant_gather_rows(w, i * 18));
    break;
  case NNCUDA_FORMAT_IQ4_NL:
    *scale = quant_low_f16(quant_gather_rows(w, i * 18));
    break;
  case NNCUDA_FORMAT_MXFP4:
    *scale = quant_e8m0s(vi_words(quant_gather_rows(w, i * 17)));
    break;
  case NNCUDA_FORMAT_IQ4_XS:
    if (i % 8 == 0) {
      const vi first = quant_gather_rows(w, i / 8 * 136);
      w->scale = quant_low_f16(first);
      w->factors[0] = vi_words(first);
      w->factors[1] = vi_words(quant_gather_rows(w, i / 8 * 136 + 4));
    }
    *scale = quant_iq4_xs_scales(w->scale, w->factors[0], w->factors[1], (int)(i % 8));
    break;
  case NNCUDA_FORMAT_Q5_0:
    *scale = quant_low_f16(quant_gather_rows(w, i * 22));
    break;
  case NNCUDA_FORMAT_Q8_0:
    *scale = quant_low_f16(quant_gather_rows(w, i * 34));
    break;
  case NNCUDA_FORMAT_Q4_1:
  case NNCUDA_FORMAT_Q5_1: {
    const vi both = quant_gather_rows(w, i * (format == NNCUDA_FORMAT_Q4_1 ? 20 : 24));
    *scale = quant_low_f16(both);
    *minimum = quant_high_f16(both);
    break;
  }
  case NNCUDA_FORMAT_Q2_K:
    if (i % 8 == 0) {
      const vi both = quant_gather_rows(w, i / 8 * 84 + 80);
      w->scale = quant_low_f16(both);
      w->minimum = vf_sub(vf_set1(0.0f), quant_high_f16(both));
    }
    *scale = w->scale;
    *minimum = w->minimum;
    break;
  case NNCUDA_FORMAT_Q3_K:
  case NNCUDA_FORMAT_Q6_K:
    if (i % 8 == 0) { /* from before, so as not to read past the row */
      w->scale =
          quant_high_f16(quant_gather_rows(w, format == NNCUDA_FORMAT_Q6_K ? i / 8 * 210 + 206 : i / 8 * 110 + 106));
    }
    *scale = w->scale;
    break;
  default: {
    const uint64_t part = i % 8, at = i / 8 * (format == NNCUDA_FORMAT_Q4_K ? 144 : 176);
    if (part == 0) {
      const vi both = quant_gather_rows(w, at);
      w->scale = quant_low_f16(both);
      w->minimum = vf_sub(vf_set1(0.0f), quant_high_f16(both));
      for (uint64_t j = 0; j < 3; j++) {
        w->factors[j] = vi_words(quant_gather_rows(w, at + 4 + 4 * j));
      }
    }
    *scale = w->scale;
    *minimum = w->minimum;
    quant_part_factors(w->factors, (int)part, scale, minimum);
  }
  }
}

#endif

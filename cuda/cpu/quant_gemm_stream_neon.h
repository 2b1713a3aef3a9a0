/*
 * Products with block formats on NEON: as in quant_gemm_stream_avx2.h, with a block of a row in two registers and eight
 * rows of weights side by side. Codes have their sign before they are multiplied, so that nothing is to be subtracted.
 */
#ifndef NN_CPU_QUANT_GEMM_STREAM_NEON_H
#define NN_CPU_QUANT_GEMM_STREAM_NEON_H

#include "quant_gemm_pairs_neon.h"

NN_INLINE quant_pair quant_load(const uint8_t *p) { return (quant_pair){vld1q_u8(p), vld1q_u8(p + 16)}; }

/* 16 bytes: their low halves, then their high ones. */
NN_INLINE quant_pair quant_nibbles(const uint8_t *p) {
  const uint8x16_t x = vld1q_u8(p);
  return (quant_pair){vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8(x, 4)};
}

/* The bits of two bytes as bytes of 16 or 0. */
NN_INLINE uint8x16_t quant_sixteens(uint32_t first, uint32_t second) {
  const uint8x8_t each = vcreate_u8(0x8040201008040201u);
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8((uint8_t)first), vdup_n_u8((uint8_t)second));
  return vandq_u8(vtstq_u8(bytes, vcombine_u8(each, each)), vdupq_n_u8(16));
}

NN_INLINE quant_pair quant_with_sixteens(quant_pair x, uint32_t bits) {
  return (quant_pair){vorrq_u8(x.low, quant_sixteens(bits, bits >> 8)),
                      vorrq_u8(x.high, quant_sixteens(bits >> 16, bits >> 24))};
}

/* Half of a block of 256 of q6_k: bits 0 .. 3 from one byte, 4 and 5 from another. */
NN_INLINE uint8x16_t quant_six_bits(uint8x16_t low, uint8x16_t high, const uint64_t run) {
  const uint8x16_t four = run / 2 ? vshrq_n_u8(low, 4) : vandq_u8(low, vdupq_n_u8(15));
  const uint8x16_t two = run == 0   ? vshlq_n_u8(high, 4)
                         : run == 1 ? vshlq_n_u8(high, 2)
                         : run == 2 ? high
                                    : vshrq_n_u8(high, 2);
  return vorrq_u8(four, vandq_u8(two, vdupq_n_u8(48)));
}

/* 16 bytes of codes that number the values of a table. */
NN_INLINE quant_pair quant_valued(const uint8_t *p, int32_t format) {
  const uint8x16_t table = (uint8x16_t)vld1q_s8(quant_table_of(format));
  const quant_pair codes = quant_nibbles(p);
  return (quant_pair){vqtbl1q_u8(table, codes.low), vqtbl1q_u8(table, codes.high)};
}

/* Block i of 32 of a row, as stored. For formats of 256 elements, i % 8 is to be a constant. */
NN_INLINE quant_pair quant_stored(const uint8_t *row, uint64_t i, int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    return quant_nibbles(row + i * 18 + 2);
  case NNCUDA_FORMAT_Q4_1:
    return quant_nibbles(row + i * 20 + 4);
  case NNCUDA_FORMAT_Q5_0:
    return quant_with_sixteens(quant_nibbles(row + i * 22 + 6), quant_u32(row + i * 22 + 2));
  case NNCUDA_FORMAT_Q5_1:
    return quant_with_sixteens(quant_nibbles(row + i * 24 + 8), quant_u32(row + i * 24 + 4));
  case NNCUDA_FORMAT_Q8_0:
    return quant_load(row + i * 34 + 2);
  case NNCUDA_FORMAT_IQ4_NL:
    return quant_valued(row + i * 18 + 2, format);
  case NNCUDA_FORMAT_MXFP4:
    return quant_valued(row + i * 17 + 1, format);
  case NNCUDA_FORMAT_IQ4_XS:
    return quant_valued(row + i / 8 * 136 + 8 + i % 8 * 16, format);
  case NNCUDA_FORMAT_Q4_K:
  case NNCUDA_FORMAT_Q5_K: {
    const uint64_t part = i % 8;
    const uint8_t *p = row + i / 8 * (format == NNCUDA_FORMAT_Q5_K ? 176 : 144);
    const uint8x16_t four = vdupq_n_u8(15);
    quant_pair q = quant_load(p + (format == NNCUDA_FORMAT_Q5_K ? 48 : 16) + part / 2 * 32);
    q.low = part % 2 ? vshrq_n_u8(q.low, 4) : vandq_u8(q.low, four);
    q.high = part % 2 ? vshrq_n_u8(q.high, 4) : vandq_u8(q.high, four);
    if (format == NNCUDA_FORMAT_Q5_K) {
      const quant_pair bits = quant_load(p + 16);
      const uint8x16_t bit = vdupq_n_u8((uint8_t)(1u << part)), sixteen = vdupq_n_u8(16);
      q.low = vorrq_u8(q.low, vandq_u8(vtstq_u8(bits.low, bit), sixteen));
      q.high = vorrq_u8(q.high, vandq_u8(vtstq_u8(bits.high, bit), sixteen));
    }
    return q;
  }
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q3_K: {
    const uint64_t part = i % 8;
    const uint8_t *p = row + i / 8 * (format == NNCUDA_FORMAT_Q3_K ? 110 : 84);
    const uint8x16_t two = vdupq_n_u8(3);
    quant_pair q = quant_load(p + (format == NNCUDA_FORMAT_Q3_K ? 32 : 16) + part / 4 * 32);
    q = (quant_pair){vandq_u8(q.low >> (int)(part % 4 * 2), two), vandq_u8(q.high >> (int)(part % 4 * 2), two)};
    if (format == NNCUDA_FORMAT_Q3_K) {
      const quant_pair bits = quant_load(p);
      const uint8x16_t bit = vdupq_n_u8((uint8_t)(1u << part)), four = vdupq_n_u8(4);
      q.low = vorrq_u8(q.low, vandq_u8(vtstq_u8(bits.low, bit), four));
      q.high = vorrq_u8(q.high, vandq_u8(vtstq_u8(bits.high, bit), four));
    }
    return q;
  }
  default: {
    const uint64_t half = i % 8 / 4, run = i % 4;
    const uint8_t *p = row + i / 8 * 210;
    const quant_pair low = quant_load(p + half * 64 + run % 2 * 32), high = quant_load(p + 128 + half * 32);
    return (quant_pair){quant_six_bits(low.low, high.low, run), quant_six_bits(low.high, high.high, run)};
  }
  }
}

/* The same with their signs. */
NN_INLINE quant_pair quant_codes(const uint8_t *row, uint64_t i, int32_t format) {
  const quant_pair stored = quant_stored(row, i, format);
  const int32_t offset = quant_offset(format);
  if (offset < 0) {
    return stored;
  }
  const uint8x16_t above = vdupq_n_u8((uint8_t)(1u << (offset & 7)));
  return (quant_pair){vsubq_u8(stored.low, above), vsubq_u8(stored.high, above)};
}

/* The sums of products of four rows of codes with x. */
NN_INLINE int32x4_t quant_dot_rows(const uint8x16_t c[4], uint8x16_t x) {
  int32x4_t sum[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    sum[j] = dot_bytes(vdupq_n_s32(0), vreinterpretq_s8_u8(c[j]), vreinterpretq_s8_u8(x));
  }
  return dot_totals(sum[0], sum[1], sum[2], sum[3]);
}

/* The integers of a block of four rows. `first`, `second`: the factors of its halves, where the format has some. */
NN_INLINE int32x4_t quant_integers_of(const quant_pair c[4], quant_pair x, int32x4_t first, int32x4_t second,
                                      int32_t format) {
  int32x4_t sum[4];
  if (nn_format_has_factors(format)) {
    const uint8x16_t low[4] = {c[0].low, c[1].low, c[2].low, c[3].low};
    const uint8x16_t high[4] = {c[0].high, c[1].high, c[2].high, c[3].high};
    return vmlaq_s32(vmulq_s32(quant_dot_rows(low, x.low), first), quant_dot_rows(high, x.high), second);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    sum[j] = dot_bytes(vdupq_n_s32(0), vreinterpretq_s8_u8(c[j].low), vreinterpretq_s8_u8(x.low));
    sum[j] = dot_bytes(sum[j], vreinterpretq_s8_u8(c[j].high), vreinterpretq_s8_u8(x.high));
  }
  return dot_totals(sum[0], sum[1], sum[2], sum[3]);
}

/* The integers of a block of VF rows of weights with `rows` rows of activations, which begin at x, k codes apart. */
NN_INLINE void quant_block_integers(const quant_pair c[VF], const int8_t *x, int64_t k, const vw factor[2],
                                    vw integers[QUANT_ROWS_AT_ONCE], const int rows, const int32_t format) {
  int r = 0;
#if NN_NEON_PAIRS
#pragma GCC unroll 2
  for (; r + 2 <= rows; r += 2) {
    pairs_block(c, x + r * k, k, factor, integers + r, format);
  }
#endif
#pragma GCC unroll 4
  for (; r < rows; r++) {
    const quant_pair codes = quant_load((const uint8_t *)x + r * k);
    const int32x4_t low =
        quant_integers_of(c, codes, vreinterpretq_s32_u32(factor[0].low), vreinterpretq_s32_u32(factor[1].low), format);
    const int32x4_t high = quant_integers_of(c + 4, codes, vreinterpretq_s32_u32(factor[0].high),
                                             vreinterpretq_s32_u32(factor[1].high), format);
    integers[r] = (vw){vreinterpretq_u32_s32(low), vreinterpretq_u32_s32(high)};
  }
}

/* Block i of eight rows into their sums. */
NN_INLINE void quant_stream_step(quant_rows *w, uint64_t i, const quant_activations *acts, int64_t first, int64_t k,
                                 vf *sum, const int rows, const int32_t format) {
  const int64_t blocks = k / QUANT_BLOCK;
  vf scale, minimum = vf_set1(0.0f);
  quant_factors(w, i, &scale, &minimum, format);
  vw factor[2] = {vw_set1(1), vw_set1(1)};
  vf least[2] = {vf_set1(0.0f), vf_set1(0.0f)};
  if (nn_format_has_factors(format)) {
    quant_half_factors(w, i, 0, factor, format);
  }
  if (nn_format_has_part_minima(format)) {
    vw minima[2];
    quant_half_factors(w, i, 1, minima, format);
    least[0] = vw_converted(minima[0]);
    least[1] = vw_converted(minima[1]);
  }
  quant_pair c[VF];
#pragma GCC unroll 8
  for (int j = 0; j < VF; j++) {
    c[j] = quant_codes(w->row[j], i, format);
  }
  vw integers[QUANT_ROWS_AT_ONCE];
  quant_block_integers(c, acts->codes + (first * blocks + (int64_t)i) * QUANT_BLOCK, k, factor, integers, rows, format);
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    const int64_t at = (first + r) * blocks + (int64_t)i;
    sum[r] = vf_fma(vf_mul(vf_set1(acts->scale[at]), scale), vw_converted(integers[r]), sum[r]);
    if (nn_format_has_part_minima(format)) {
      const vf whole = quant_least_integers(acts->sums + 2 * at, least[0], least[1]);
      sum[r] = vf_fma(vf_mul(vf_set1(acts->scale[at]), minimum), whole, sum[r]);
    }
    if (nn_format_has_minimum(format)) {
      sum[r] = vf_fma(vf_set1(acts->total[at]), minimum, sum[r]);
    }
  }
}

#include "quant_gemm_stream_eight.h"

#endif

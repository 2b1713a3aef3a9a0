/*
 * The block formats of GGUF files, element by element: what each block's bytes stand for. (Gerganov et al.,
 * ggml-quants)
 *
 * A block is bytes and nothing more, since rows lie in mapped files at any address; numbers are little-endian. Every
 * product of a scale and a quant is exact in f32 (11 bits of an f16 scale, at most 8 of a part's and 6 of a quant), so
 * that the one rounding is that of adding a minimum, and it does not matter whether the two are fused.
 */
#ifndef NN_CPU_QUANT_BLOCKS_H
#define NN_CPU_QUANT_BLOCKS_H

#include "numbers/code_table.h"
#include "numbers/format.h"
#include "span.h"

#include <string.h>

enum { NN_QK = 32, NN_QK_LARGE = 256, NN_Q_SCALE_BYTES = 12 };

typedef struct nn_block_q4_0 {
  uint8_t d[2], q[16]; /* q[i]: element i in the low half, element i + 16 in the high one; so below */
} nn_block_q4_0;

typedef struct nn_block_q4_1 {
  uint8_t d[2], m[2], q[16];
} nn_block_q4_1;

typedef struct nn_block_q5_0 {
  uint8_t d[2], high[4], q[16]; /* bit i of high: the fifth bit of element i */
} nn_block_q5_0;

typedef struct nn_block_q5_1 {
  uint8_t d[2], m[2], high[4], q[16];
} nn_block_q5_1;

typedef struct nn_block_q8_0 {
  uint8_t d[2];
  int8_t q[32];
} nn_block_q8_0;

typedef struct nn_block_q4_k {
  uint8_t d[2], m[2], scales[NN_Q_SCALE_BYTES];
  uint8_t q[128]; /* q[32 * j + i]: element i of part 2j in the low half, of part 2j + 1 in the high one */
} nn_block_q4_k;

typedef struct nn_block_q5_k {
  uint8_t d[2], m[2], scales[NN_Q_SCALE_BYTES];
  uint8_t high[32]; /* bit j of high[i]: the fifth bit of element i of part j */
  uint8_t q[128];
} nn_block_q5_k;

typedef struct nn_block_q6_k {
  uint8_t low[128], high[64]; /* each half of the block: low[64], high[32] */
  int8_t scales[16];
  uint8_t d[2];
} nn_block_q6_k;

typedef struct nn_block_q2_k {
  uint8_t scales[16]; /* of each part of 16 elements the scale in the low half, the minimum in the high one */
  uint8_t q[64];      /* bits 2j, 2j + 1 of q[32 * h + i]: element i of part j of 32 of half h of the block */
  uint8_t d[2], m[2];
} nn_block_q2_k;

typedef struct nn_block_q3_k {
  uint8_t high[32]; /* bit j of high[i]: the third bit of element i of part j of 32 */
  uint8_t low[64];  /* as q of q2_k */
  uint8_t scales[NN_Q_SCALE_BYTES], d[2];
} nn_block_q3_k;

typedef struct nn_block_iq4_nl {
  uint8_t d[2], q[16];
} nn_block_iq4_nl;

typedef struct nn_block_mxfp4 {
  uint8_t e, q[16];
} nn_block_mxfp4;

typedef struct nn_block_iq4_xs {
  uint8_t d[2], high[2], low[4]; /* of the scale of part j bits 2j, 2j + 1 of high, bits 4j .. 4j + 3 of low */
  uint8_t q[128];                /* q[16 * j + i]: elements i and 16 + i of part j */
} nn_block_iq4_xs;

_Static_assert(sizeof(nn_block_q4_0) == 18 && sizeof(nn_block_q4_1) == 20, "as in the file");
_Static_assert(sizeof(nn_block_q5_0) == 22 && sizeof(nn_block_q5_1) == 24, "as in the file");
_Static_assert(sizeof(nn_block_q8_0) == 34 && sizeof(nn_block_q4_k) == 144, "as in the file");
_Static_assert(sizeof(nn_block_q5_k) == 176 && sizeof(nn_block_q6_k) == 210, "as in the file");
_Static_assert(sizeof(nn_block_q2_k) == 84 && sizeof(nn_block_q3_k) == 110, "as in the file");
_Static_assert(sizeof(nn_block_iq4_nl) == 18 && sizeof(nn_block_mxfp4) == 17, "as in the file");
_Static_assert(sizeof(nn_block_iq4_xs) == 136, "as in the file");

NN_INLINE float nn_q_get_f16(const uint8_t bytes[2]) {
  uint16_t half;
  memcpy(&half, bytes, sizeof half);
  return nn_f16_to_f32(half);
}

NN_INLINE void nn_q_put_f16(uint8_t bytes[2], float x) {
  const uint16_t half = nn_f32_to_f16(x);
  memcpy(bytes, &half, sizeof half);
}

/* Scale and minimum of part j of q4_k and q5_k, 6 bits each: those of parts 0 to 3 are bytes 0 to 3 and 4 to 7; of the
 * others the low four bits are the halves of bytes 8 to 11 and the high two the top bits of the bytes before. */
NN_INLINE void nn_q_get_scales(const uint8_t packed[NN_Q_SCALE_BYTES], uint8_t scale[8], uint8_t minimum[8]) {
  for (int j = 0; j < 4; j++) {
    const uint8_t a = packed[j], b = packed[j + 4], c = packed[j + 8];
    scale[j] = a & 63;
    minimum[j] = b & 63;
    scale[j + 4] = (uint8_t)((c & 15) | (a >> 6) << 4);
    minimum[j + 4] = (uint8_t)(c >> 4 | (b >> 6) << 4);
  }
}

NN_INLINE void nn_q_put_scales(uint8_t packed[NN_Q_SCALE_BYTES], const uint8_t scale[8], const uint8_t minimum[8]) {
  for (int j = 0; j < 4; j++) {
    packed[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
    packed[j + 4] = (uint8_t)(minimum[j] | (minimum[j + 4] >> 4) << 6);
    packed[j + 8] = (uint8_t)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
  }
}

/* Sixteen quants from halves of bytes (`shift` 0 or 4) and, as their further bits, what is in the bytes of `high` from
 * bit `shift_high` on (`mask_high` of it; 0 for none). */
NN_INLINE void nn_q_sixteen(const uint8_t *restrict low, int shift, const uint8_t *restrict high, int shift_high,
                            int mask_high, int *restrict q) {
  for (int i = 0; i < 16; i++) {
    q[i] = (low[i] >> shift & 15) | (mask_high ? (high[i] >> shift_high & mask_high) << 4 : 0);
  }
}

/* Sixteen of q5_0 and q5_1: bit i of `high` is the fifth bit of quant i. */
NN_INLINE void nn_q_sixteen_fifths(const uint8_t *restrict low, int shift, uint32_t high, int *restrict q) {
  for (int i = 0; i < 16; i++) {
    q[i] = (low[i] >> shift & 15) | (int)(high >> i & 1) << 4;
  }
}

/* y[i] = d * q[i] + m. */
NN_INLINE void nn_q_expand(const int *restrict q, float d, float m, float *restrict y) {
  for (int i = 0; i < 16; i++) {
    y[i] = d * (float)q[i] + m;
  }
}

/* y[i] = d * (q[i] - middle); without a sum, so that zeros keep their sign. */
NN_INLINE void nn_q_expand_signed(const int *restrict q, int middle, float d, float *restrict y) {
  for (int i = 0; i < 16; i++) {
    y[i] = d * (float)(q[i] - middle);
  }
}

static inline void nn_decode_q4_0(const void *from, int64_t blocks, float *y) {
  const nn_block_q4_0 *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    const float d = nn_q_get_f16(block[b].d);
    for (int half = 0; half < 2; half++) {
      nn_q_sixteen(block[b].q, 4 * half, NULL, 0, 0, q);
      nn_q_expand_signed(q, 8, d, y + 16 * half);
    }
  }
}

static inline void nn_decode_q4_1(const void *from, int64_t blocks, float *y) {
  const nn_block_q4_1 *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    const float d = nn_q_get_f16(block[b].d), m = nn_q_get_f16(block[b].m);
    for (int half = 0; half < 2; half++) {
      nn_q_sixteen(block[b].q, 4 * half, NULL, 0, 0, q);
      nn_q_expand(q, d, m, y + 16 * half);
    }
  }
}

static inline void nn_decode_q5_0(const void *from, int64_t blocks, float *y) {
  const nn_block_q5_0 *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    const float d = nn_q_get_f16(block[b].d);
    uint32_t high;
    memcpy(&high, block[b].high, sizeof high);
    for (int half = 0; half < 2; half++) {
      nn_q_sixteen_fifths(block[b].q, 4 * half, high >> 16 * half, q);
      nn_q_expand_signed(q, 16, d, y + 16 * half);
    }
  }
}

static inline void nn_decode_q5_1(const void *from, int64_t blocks, float *y) {
  const nn_block_q5_1 *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    const float d = nn_q_get_f16(block[b].d), m = nn_q_get_f16(block[b].m);
    uint32_t high;
    memcpy(&high, block[b].high, sizeof high);
    for (int half = 0; half < 2; half++) {
      nn_q_sixteen_fifths(block[b].q, 4 * half, high >> 16 * half, q);
      nn_q_expand(q, d, m, y + 16 * half);
    }
  }
}

static inline void nn_decode_q8_0(const void *from, int64_t blocks, float *restrict y) {
  const nn_block_q8_0 *restrict block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    const float d = nn_q_get_f16(block[b].d);
    for (int i = 0; i < NN_QK; i++) {
      y[i] = d * (float)block[b].q[i];
    }
  }
}

/* A block of q4_k or q5_k, `high` null for the former. */
NN_INLINE void nn_decode_eight_parts(const uint8_t d_bytes[2], const uint8_t m_bytes[2], const uint8_t *scales,
                                     const uint8_t *low, const uint8_t *high, float *y) {
  const float d = nn_q_get_f16(d_bytes), m = nn_q_get_f16(m_bytes);
  uint8_t scale[8], minimum[8];
  int q[16];
  nn_q_get_scales(scales, scale, minimum);
  for (int j = 0; j < 8; j++) {
    const float part = d * (float)scale[j], least = -(m * (float)minimum[j]);
    for (int i = 0; i < NN_QK; i += 16) {
      nn_q_sixteen(low + j / 2 * 32 + i, j % 2 * 4, high == NULL ? NULL : high + i, j, high == NULL ? 0 : 1, q);
      nn_q_expand(q, part, least, y + j * NN_QK + i);
    }
  }
}

static inline void nn_decode_q4_k(const void *from, int64_t blocks, float *y) {
  const nn_block_q4_k *block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    nn_decode_eight_parts(block[b].d, block[b].m, block[b].scales, block[b].q, NULL, y);
  }
}

static inline void nn_decode_q5_k(const void *from, int64_t blocks, float *y) {
  const nn_block_q5_k *block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    nn_decode_eight_parts(block[b].d, block[b].m, block[b].scales, block[b].q, block[b].high, y);
  }
}

/* Elements 32j .. 32j+31 of a half: low bits from the low (j < 2) or high halves of the bytes of `low` on from 32 * (j
 * % 2), two more from bits 2j and 2j+1 of `high`. */
static inline void nn_decode_q6_k(const void *from, int64_t blocks, float *y) {
  const nn_block_q6_k *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    const float d = nn_q_get_f16(block[b].d);
    for (int part = 0; part < 16; part++) {
      const int half = part / 8, j = part / 2 % 4, i = part % 2 * 16;
      const uint8_t *low = block[b].low + half * 64 + j % 2 * 32 + i, *high = block[b].high + half * 32 + i;
      nn_q_sixteen(low, j / 2 * 4, high, 2 * j, 3, q);
      nn_q_expand_signed(q, 32, d * (float)block[b].scales[part], y + part * 16);
    }
  }
}

/* Scales of the sixteen parts of q3_k, 6 bits each: of part j the low four bits are a half of byte j % 8, the low one
 * for j < 8; the high two are bits 2 * (j / 4) and the next one of byte 8 + j % 4. 32 too much. */
NN_INLINE int nn_q_get_q3_k_scale(const uint8_t packed[NN_Q_SCALE_BYTES], int j) {
  return ((packed[j % 8] >> j / 8 * 4 & 15) | (packed[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32;
}

NN_INLINE void nn_q_put_q3_k_scales(uint8_t packed[NN_Q_SCALE_BYTES], const int8_t scale[16]) {
  memset(packed, 0, NN_Q_SCALE_BYTES);
  for (int j = 0; j < 16; j++) {
    const int six = scale[j] + 32;
    packed[j % 8] |= (uint8_t)((six & 15) << j / 8 * 4);
    packed[8 + j % 4] |= (uint8_t)(six >> 4 << j / 4 * 2);
  }
}

/* Sixteen quants of two bits from `shift` on and, unless `high` is null, its bit `bit` as their third. */
NN_INLINE void nn_q_sixteen_twos(const uint8_t *restrict low, int shift, const uint8_t *restrict high, int bit,
                                 int *restrict q) {
  for (int i = 0; i < 16; i++) {
    q[i] = (low[i] >> shift & 3) | (high == NULL ? 0 : (high[i] >> bit & 1) << 2);
  }
}

static inline void nn_decode_q2_k(const void *from, int64_t blocks, float *y) {
  const nn_block_q2_k *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    const float d = nn_q_get_f16(block[b].d), m = nn_q_get_f16(block[b].m);
    for (int part = 0; part < 16; part++) {
      const int scale = block[b].scales[part] & 15, minimum = block[b].scales[part] >> 4;
      nn_q_sixteen_twos(block[b].q + part / 8 * 32 + part % 2 * 16, part / 2 % 4 * 2, NULL, 0, q);
      nn_q_expand(q, d * (float)scale, -(m * (float)minimum), y + part * 16);
    }
  }
}

static inline void nn_decode_q3_k(const void *from, int64_t blocks, float *y) {
  const nn_block_q3_k *block = from;
  int q[16];
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    const float d = nn_q_get_f16(block[b].d);
    for (int part = 0; part < 16; part++) {
      const int i = part % 2 * 16;
      nn_q_sixteen_twos(block[b].low + part / 8 * 32 + i, part / 2 % 4 * 2, block[b].high + i, part / 2, q);
      nn_q_expand_signed(q, 4, d * (float)nn_q_get_q3_k_scale(block[b].scales, part), y + part * 16);
    }
  }
}

/* The scale of part j of iq4_xs without that of its block: -32 .. 31. */
NN_INLINE int nn_q_get_iq4_xs_scale(const uint8_t high[2], const uint8_t low[4], int j) {
  return ((low[j / 2] >> j % 2 * 4 & 15) | (high[j / 4] >> j % 4 * 2 & 3) << 4) - 32;
}

/* y[i] = d * table[q[i]], 32 of them. */
NN_INLINE void nn_q_expand_table(const uint8_t *restrict packed, const int8_t *restrict table, float d,
                                 float *restrict y) {
  int q[16], value[16];
  for (int half = 0; half < 2; half++) {
    nn_q_sixteen(packed, 4 * half, NULL, 0, 0, q);
    for (int i = 0; i < 16; i++) {
      value[i] = table[q[i]];
    }
    nn_q_expand_signed(value, 0, d, y + 16 * half);
  }
}

static inline void nn_decode_iq4_nl(const void *from, int64_t blocks, float *y) {
  static const int8_t table[16] = {NN_CODE_TABLE_IQ4};
  const nn_block_iq4_nl *block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    nn_q_expand_table(block[b].q, table, nn_q_get_f16(block[b].d), y);
  }
}

static inline void nn_decode_mxfp4(const void *from, int64_t blocks, float *y) {
  static const int8_t table[16] = {NN_CODE_TABLE_E2M1};
  const nn_block_mxfp4 *block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK) {
    nn_q_expand_table(block[b].q, table, nn_e8m0_half(block[b].e), y);
  }
}

static inline void nn_decode_iq4_xs(const void *from, int64_t blocks, float *y) {
  static const int8_t table[16] = {NN_CODE_TABLE_IQ4};
  const nn_block_iq4_xs *block = from;
  for (int64_t b = 0; b < blocks; b++, y += NN_QK_LARGE) {
    const float d = nn_q_get_f16(block[b].d);
    for (int j = 0; j < 8; j++) {
      const float part = d * (float)nn_q_get_iq4_xs_scale(block[b].high, block[b].low, j);
      nn_q_expand_table(block[b].q + 16 * j, table, part, y + j * NN_QK);
    }
  }
}

/* A format that is a dtype, at any address. n is at most NN_QK_LARGE. */
NN_INLINE void nn_decode_dtype(const void *from, int64_t n, float *y, int32_t dtype) {
  uint32_t aligned[NN_QK_LARGE];
  memcpy(aligned, from, (size_t)(n * nn_dtype_bytes(dtype)));
  NN_EACH_VECTOR(0, n, 0, 0, nn_put(y, i, lanes, nn_get(aligned, i, lanes, dtype, MODE), NNCUDA_F32, MODE));
}

/* The numbers of n elements at `from`, whole blocks and at most NN_QK_LARGE. */
NN_INLINE void nn_decode(int32_t format, const void *from, int64_t n, float *y) {
  switch (format) {
  case NNCUDA_FORMAT_F32:
    memcpy(y, from, (size_t)n * sizeof *y);
    break;
#define CASE(format, decode, ...)                                                                                      \
  case NNCUDA_FORMAT_##format:                                                                                         \
    nn_decode_##decode(from, __VA_ARGS__);                                                                             \
    break;
    CASE(F16, dtype, n, y, NNCUDA_F16)
    CASE(BF16, dtype, n, y, NNCUDA_BF16)
    CASE(Q4_0, q4_0, n / NN_QK, y)
    CASE(Q4_1, q4_1, n / NN_QK, y)
    CASE(Q5_0, q5_0, n / NN_QK, y)
    CASE(Q5_1, q5_1, n / NN_QK, y)
    CASE(Q8_0, q8_0, n / NN_QK, y)
    CASE(Q4_K, q4_k, n / NN_QK_LARGE, y)
    CASE(Q5_K, q5_k, n / NN_QK_LARGE, y)
    CASE(Q2_K, q2_k, n / NN_QK_LARGE, y)
    CASE(Q3_K, q3_k, n / NN_QK_LARGE, y)
    CASE(IQ4_NL, iq4_nl, n / NN_QK, y)
    CASE(MXFP4, mxfp4, n / NN_QK, y)
    CASE(IQ4_XS, iq4_xs, n / NN_QK_LARGE, y)
#undef CASE
  default:
    nn_decode_q6_k(from, n / NN_QK_LARGE, y);
    break;
  }
}

#endif

/* The block formats, one block of 32 elements at a time: integers and their factors. Layouts are those of GGUF files
 * (Gerganov et al., ggml-quants). */
#ifndef NN_CPU_QUANT_GEMM_BLOCK_H
#define NN_CPU_QUANT_GEMM_BLOCK_H

#include "numbers/code_table.h"
#include "quant_gemm_job.h"

#include <string.h>

/* 32 weights: scale * part[i / 16] * code[i] + minimum; of q2_k minimum * least[i / 16] in its place. */
typedef struct quant_block {
  int8_t code[QUANT_BLOCK];
  int32_t part[2], least[2];
  float scale, minimum;
} quant_block;

NN_INLINE float quant_f16(const uint8_t *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  return nn_f16_to_f32(h);
}

NN_INLINE uint32_t quant_u32(const uint8_t *p) {
  uint32_t u;
  memcpy(&u, p, sizeof u);
  return u;
}

/* The 6-bit scale and minimum of part i (0 .. 7) of a q4_k or q5_k block: four bytes hold the low six bits of the
 * scales of parts 0 to 3, four those of the minima, four the low halves of the others, whose high bits top the first
 * eight. */
NN_INLINE void quant_k_scale(const uint8_t *s, int64_t i, int32_t *scale, int32_t *minimum) {
  if (i < 4) {
    *scale = s[i] & 63;
    *minimum = s[i + 4] & 63;
  } else {
    *scale = (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
    *minimum = s[i + 4] >> 4 | (s[i] >> 6) << 4;
  }
}

/* The scale of part i (0 .. 15) of a q3_k block: the low four bits are a half of one of eight bytes, the high two one
 * of the four pairs of bits of one of four. 32 too much. */
NN_INLINE int32_t quant_q3_k_scale(const uint8_t *s, int64_t i) {
  return ((s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

/* What the codes of a format with a table stand for. */
NN_INLINE const int8_t *quant_table_of(int32_t format) {
  static const int8_t iq4[16] = {NN_CODE_TABLE_IQ4}, e2m1[16] = {NN_CODE_TABLE_E2M1};
  return format == NNCUDA_FORMAT_MXFP4 ? e2m1 : iq4;
}

/* Block i of 32 of a row. */
NN_INLINE void quant_unpack(const uint8_t *row, int64_t i, quant_block *b, int32_t format) {
  b->part[0] = b->part[1] = 1;
  b->least[0] = b->least[1] = 0;
  b->minimum = 0.0f;
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
  case NNCUDA_FORMAT_Q4_1: {
    const int32_t has = format == NNCUDA_FORMAT_Q4_1;
    const uint8_t *p = row + i * (18 + 2 * has), *q = p + 2 + 2 * has;
    b->scale = quant_f16(p);
    b->minimum = has ? quant_f16(p + 2) : 0.0f;
    for (int j = 0; j < 16; j++) {
      b->code[j] = (int8_t)((q[j] & 15) - (has ? 0 : 8));
      b->code[j + 16] = (int8_t)((q[j] >> 4) - (has ? 0 : 8));
    }
    break;
  }
  case NNCUDA_FORMAT_Q5_0:
  case NNCUDA_FORMAT_Q5_1: {
    const int32_t has = format == NNCUDA_FORMAT_Q5_1;
    const uint8_t *p = row + i * (22 + 2 * has), *q = p + 6 + 2 * has;
    const uint32_t high = quant_u32(p + 2 + 2 * has);
    b->scale = quant_f16(p);
    b->minimum = has ? quant_f16(p + 2) : 0.0f;
    for (int j = 0; j < 16; j++) {
      b->code[j] = (int8_t)(((q[j] & 15) | (high >> j & 1) << 4) - (has ? 0u : 16u));
      b->code[j + 16] = (int8_t)(((q[j] >> 4) | (high >> (j + 16) & 1) << 4) - (has ? 0u : 16u));
    }
    break;
  }
  case NNCUDA_FORMAT_Q8_0: {
    const uint8_t *p = row + i * 34;
    b->scale = quant_f16(p);
    memcpy(b->code, p + 2, sizeof b->code);
    break;
  }
  case NNCUDA_FORMAT_Q4_K:
  case NNCUDA_FORMAT_Q5_K: {
    const int32_t five = format == NNCUDA_FORMAT_Q5_K;
    const int64_t part = i % 8;
    const uint8_t *p = row + i / 8 * (five ? 176 : 144), *q = p + (five ? 48 : 16) + part / 2 * 32;
    int32_t scale, minimum;
    quant_k_scale(p + 4, part, &scale, &minimum);
    b->scale = quant_f16(p) * (float)scale;
    b->minimum = -(quant_f16(p + 2) * (float)minimum);
    for (int j = 0; j < 32; j++) {
      const int32_t low = part % 2 ? q[j] >> 4 : q[j] & 15;
      b->code[j] = (int8_t)(five ? low | (p[16 + j] >> part & 1) << 4 : low);
    }
    break;
  }
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q3_K: { /* halves of 128, in each four runs of 32 in the pairs of bits of 32 bytes */
    const int32_t three = format == NNCUDA_FORMAT_Q3_K;
    const int64_t part = i % 8, half = part / 4, run = part % 4;
    const uint8_t *p = row + i / 8 * (three ? 110 : 84), *low = p + (three ? 32 : 16) + half * 32;
    b->scale = quant_f16(p + (three ? 108 : 80));
    b->minimum = three ? 0.0f : -quant_f16(p + 82);
    for (int j = 0; j < 2; j++) {
      b->part[j] = three ? quant_q3_k_scale(p + 96, 2 * part + j) : p[2 * part + j] & 15;
      b->least[j] = three ? 0 : p[2 * part + j] >> 4;
    }
    for (int j = 0; j < 32; j++) {
      const int32_t two = low[j] >> (2 * run) & 3;
      b->code[j] = (int8_t)(three ? (two | (p[j] >> part & 1) << 2) - 4 : two);
    }
    break;
  }
  case NNCUDA_FORMAT_IQ4_NL:
  case NNCUDA_FORMAT_MXFP4:
  case NNCUDA_FORMAT_IQ4_XS: {
    const int8_t *table = quant_table_of(format);
    const uint8_t *p = row, *q;
    if (format == NNCUDA_FORMAT_IQ4_XS) {
      const int64_t part = i % 8;
      p += i / 8 * 136;
      q = p + 8 + part * 16;
      const uint32_t low = quant_u32(p + 4) >> 4 * part & 15, high = quant_u32(p) >> (16 + 2 * part) & 3;
      b->scale = quant_f16(p) * (float)((int32_t)(low | high << 4) - 32);
    } else {
      p += i * (format == NNCUDA_FORMAT_MXFP4 ? 17 : 18);
      q = p + (format == NNCUDA_FORMAT_MXFP4 ? 1 : 2);
      b->scale = format == NNCUDA_FORMAT_MXFP4 ? nn_e8m0_half(*p) : quant_f16(p);
    }
    for (int j = 0; j < 16; j++) {
      b->code[j] = table[q[j] & 15];
      b->code[j + 16] = table[q[j] >> 4];
    }
    break;
  }
  default: { /* q6_k: halves of 128, in each four runs of 32 over 64 low and 32 high bytes */
    const int64_t half = i % 8 / 4, run = i % 4;
    const uint8_t *p = row + i / 8 * 210, *low = p + half * 64 + run % 2 * 32, *high = p + 128 + half * 32;
    const int8_t *scales = (const int8_t *)p + 192 + i % 8 * 2;
    b->scale = quant_f16(p + 208);
    b->part[0] = scales[0];
    b->part[1] = scales[1];
    for (int j = 0; j < 32; j++) {
      const int32_t four = run / 2 ? low[j] >> 4 : low[j] & 15;
      b->code[j] = (int8_t)((four | (high[j] >> (2 * run) & 3) << 4) - 32);
    }
    break;
  }
  }
}

/* Whether 32 activations, the bits of whose largest magnitude these are, have no codes: where one is not finite, or all
 * are too small. Then codes are zero, and the scale says what they stand for. */
NN_INLINE int32_t quant_without_codes(int32_t bits, int8_t *codes, float *scale, int32_t sums[2]) {
  const int32_t infinite = bits >= 0x7f800000;
  if (!infinite && nn_f32_from_bits((uint32_t)bits) >= QUANT_LEAST) {
    return 0;
  }
  memset(codes, 0, QUANT_BLOCK);
  *scale = infinite ? NAN : 0.0f;
  sums[0] = sums[1] = 0;
  return 1;
}

#endif

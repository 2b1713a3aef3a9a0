/* Storing numbers in q2_k to q6_k: what quant_search.h chooses, packed as quant_blocks.h unpacks it. */
#ifndef NN_CPU_QUANT_ENCODE_K_H
#define NN_CPU_QUANT_ENCODE_K_H

#include "quant_search.h"

/* Elements that are encoded at once: two blocks, so that the lanes of the search are full. */
enum { NN_QK_PAIR = 2 * NN_QK_LARGE };

/* Scales and minima of a block's parts, and its steps. */
NN_INLINE void nn_q_put_steps(const nn_q_parts *p, const nn_q_block *b, uint8_t d[2], uint8_t m[2], uint8_t *scales) {
  uint8_t scale[8], minimum[8];
  for (int j = 0; j < 8; j++) {
    scale[j] = (uint8_t)p->scale_count[b->lane + j];
    minimum[j] = (uint8_t)p->minimum_count[b->lane + j];
  }
  memcpy(d, &b->d, 2);
  memcpy(m, &b->dm, 2);
  nn_q_put_scales(scales, scale, minimum);
}

/* Both formats with eight parts: q4_k with `high` null. */
NN_INLINE void nn_q_put_eight(uint8_t q[NN_QK][NN_Q_LANES], int lane, uint8_t *low, uint8_t *high) {
  for (int j = 0; j < 8; j += 2) {
    for (int i = 0; i < NN_QK; i++) {
      low[j * 16 + i] = (uint8_t)((q[i][lane + j] & 15) | (q[i][lane + j + 1] & 15) << 4);
    }
  }
  for (int i = 0; high != NULL && i < NN_QK; i++) {
    high[i] = 0;
    for (int j = 0; j < 8; j++) {
      high[i] |= (uint8_t)(q[i][lane + j] >> 4 << j);
    }
  }
}

/* One or two blocks of q4_k (bits 4) or q5_k (bits 5). */
NN_INLINE void nn_encode_eight_parts(const float *x, int blocks, int bits, void *to) {
  nn_q_parts p = {.n = NN_QK, .low = 0.0f, .high = (float)((1 << bits) - 1)};
  nn_q_block block[2];
  uint8_t q[NN_QK][NN_Q_LANES];
  for (int b = 0; b < blocks; b++) {
    block[b] = nn_q_spread(&p, x + b * NN_QK_LARGE, 8 * b, 8);
  }
  nn_q_choose(&p, block, blocks, 0.0f, 63.0f, q);
  for (int b = 0; b < blocks; b++) {
    if (bits == 4) {
      nn_block_q4_k *out = (nn_block_q4_k *)to + b;
      nn_q_put_steps(&p, block + b, out->d, out->m, out->scales);
      nn_q_put_eight(q, 8 * b, out->q, NULL);
    } else {
      nn_block_q5_k *out = (nn_block_q5_k *)to + b;
      nn_q_put_steps(&p, block + b, out->d, out->m, out->scales);
      nn_q_put_eight(q, 8 * b, out->q, out->high);
    }
  }
}

static inline void nn_encode_q4_k(const float *x, int blocks, void *to) { nn_encode_eight_parts(x, blocks, 4, to); }
static inline void nn_encode_q5_k(const float *x, int blocks, void *to) { nn_encode_eight_parts(x, blocks, 5, to); }

/* The low two bits of four elements of a half of a block, element i and those 32, 64 and 96 on. */
NN_INLINE uint8_t nn_q_put_fours(uint8_t q[NN_QK][NN_Q_LANES], int half, int i) {
  uint8_t byte = 0;
  for (int k = 0; k < 4; k++) {
    byte |= (uint8_t)((q[i % 16][half * 8 + k * 2 + i / 16] & 3) << 2 * k);
  }
  return byte;
}

static inline void nn_encode_q2_k(const float *x, nn_block_q2_k *out) {
  nn_q_parts p = {.n = 16, .low = 0.0f, .high = 3.0f};
  nn_q_block block = nn_q_spread(&p, x, 0, 16);
  uint8_t q[NN_QK][NN_Q_LANES];
  nn_q_choose(&p, &block, 1, 0.0f, 15.0f, q);
  memcpy(out->d, &block.d, 2);
  memcpy(out->m, &block.dm, 2);
  for (int j = 0; j < 16; j++) {
    out->scales[j] = (uint8_t)((int)p.scale_count[j] | (int)p.minimum_count[j] << 4);
  }
  for (int i = 0; i < 64; i++) {
    out->q[i] = nn_q_put_fours(q, i / 32, i % 32);
  }
}

static inline void nn_encode_q3_k(const float *x, nn_block_q3_k *out) {
  nn_q_parts p = {.n = 16, .low = -4.0f, .high = 3.0f};
  nn_q_block block = nn_q_spread(&p, x, 0, 16);
  uint8_t q[NN_QK][NN_Q_LANES];
  int8_t scale[16];
  nn_q_choose(&p, &block, 1, -32.0f, 31.0f, q);
  memcpy(out->d, &block.d, 2);
  for (int j = 0; j < 16; j++) {
    scale[j] = (int8_t)p.scale_count[j];
  }
  nn_q_put_q3_k_scales(out->scales, scale);
  for (int i = 0; i < 64; i++) {
    out->low[i] = nn_q_put_fours(q, i / 32, i % 32);
  }
  for (int i = 0; i < 32; i++) {
    out->high[i] = 0;
    for (int j = 0; j < 8; j++) {
      out->high[i] |= (uint8_t)(q[i % 16][2 * j + i / 16] >> 2 << j);
    }
  }
}

static inline void nn_encode_q6_k(const float *x, nn_block_q6_k *out) {
  nn_q_parts p = {.n = 16, .low = -32.0f, .high = 31.0f};
  nn_q_block block = nn_q_spread(&p, x, 0, 16);
  uint8_t q[NN_QK][NN_Q_LANES];
  nn_q_choose(&p, &block, 1, -128.0f, 127.0f, q);
  memcpy(out->d, &block.d, 2);
  for (int j = 0; j < 16; j++) {
    out->scales[j] = (int8_t)p.scale_count[j];
  }
  for (int half = 0; half < 2; half++) {
    for (int i = 0; i < 32; i++) {
      uint8_t of[4]; /* the elements whose bits meet in a byte of `high`: 32 apart */
      for (int k = 0; k < 4; k++) {
        of[k] = q[i % 16][half * 8 + k * 2 + i / 16];
      }
      out->low[half * 64 + i] = (uint8_t)((of[0] & 15) | (of[2] & 15) << 4);
      out->low[half * 64 + 32 + i] = (uint8_t)((of[1] & 15) | (of[3] & 15) << 4);
      out->high[half * 32 + i] = (uint8_t)(of[0] >> 4 | of[1] >> 4 << 2 | of[2] >> 4 << 4 | of[3] >> 4 << 6);
    }
  }
}

#endif

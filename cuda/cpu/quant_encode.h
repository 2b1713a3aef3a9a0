/*
 * Storing numbers in the formats with blocks of 32: the rounding is that of the `gguf` package (gguf.quants), step by
 * step in f32, so that the bytes are the same.
 *
 * A scale whose reciprocal overflows (blocks of magnitude below about 2^-125) gives zeros for quants: there the package
 * converts an infinity to an integer, which has no result of its own. A scale beyond f16 is stored as infinity. When
 * the least number of a block is zero and zeros of both signs occur, the stored minimum has the sign of the first.
 */
#ifndef NN_CPU_QUANT_ENCODE_H
#define NN_CPU_QUANT_ENCODE_H

#include "quant_blocks.h"

#include <float.h>

/* How x[i] becomes a quant: (x[i] - minimum) * inverse + offset, whole part, at most `limit`. */
typedef struct nn_q_step {
  float scale, minimum, inverse, offset;
} nn_q_step;

NN_INLINE nn_q_step nn_q_step_of(float scale, float minimum, float offset) {
  nn_q_step step = {scale, minimum, scale == 0.0f ? 0.0f : 1.0f / scale, offset};
  if (!(fabsf(step.inverse) <= FLT_MAX)) {
    step.inverse = step.offset = 0.0f;
  }
  return step;
}

/* The element of largest magnitude, the first of equals, sets the scale: it becomes quant 0. */
NN_INLINE nn_q_step nn_q_symmetric(const float *x, int levels) {
  float most = x[0];
  for (int i = 1; i < NN_QK; i++) {
    most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
  }
  return nn_q_step_of(most / (float)(-levels / 2), 0.0f, (float)(levels / 2) + 0.5f);
}

/* Quant 0 is the least element, the last one the largest. */
NN_INLINE nn_q_step nn_q_asymmetric(const float *x, int levels) {
  float most = x[0], least = x[0];
  for (int i = 1; i < NN_QK; i++) {
    most = x[i] > most ? x[i] : most;
    least = x[i] < least ? x[i] : least;
  }
  return nn_q_step_of((most - least) / (float)(levels - 1), least, 0.5f);
}

NN_INLINE void nn_q_quants(const float *x, nn_q_step step, int levels, uint8_t q[NN_QK]) {
  if (fabsf(step.scale) > FLT_MAX) { /* the span of the block overflowed */
    memset(q, 0, NN_QK);
    return;
  }
  for (int i = 0; i < NN_QK; i++) {
    const int whole = (int)((x[i] - step.minimum) * step.inverse + step.offset);
    q[i] = (uint8_t)(whole < 0 ? 0 : whole > levels - 1 ? levels - 1 : whole);
  }
}

NN_INLINE void nn_q_put_halves(uint8_t packed[16], const uint8_t q[NN_QK]) {
  for (int i = 0; i < 16; i++) {
    packed[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
  }
}

NN_INLINE void nn_q_put_fifths(uint8_t packed[16], uint8_t high[4], const uint8_t q[NN_QK]) {
  nn_q_put_halves(packed, q);
  memset(high, 0, 4);
  for (int i = 0; i < NN_QK; i++) {
    high[i / 8] |= (uint8_t)(q[i] >> 4 << (i % 8));
  }
}

static inline void nn_encode_q4_0(const float *x, nn_block_q4_0 *block) {
  uint8_t q[NN_QK];
  const nn_q_step step = nn_q_symmetric(x, 16);
  nn_q_quants(x, step, 16, q);
  nn_q_put_f16(block->d, step.scale);
  nn_q_put_halves(block->q, q);
}

static inline void nn_encode_q4_1(const float *x, nn_block_q4_1 *block) {
  uint8_t q[NN_QK];
  const nn_q_step step = nn_q_asymmetric(x, 16);
  nn_q_quants(x, step, 16, q);
  nn_q_put_f16(block->d, step.scale);
  nn_q_put_f16(block->m, step.minimum);
  nn_q_put_halves(block->q, q);
}

static inline void nn_encode_q5_0(const float *x, nn_block_q5_0 *block) {
  uint8_t q[NN_QK];
  const nn_q_step step = nn_q_symmetric(x, 32);
  nn_q_quants(x, step, 32, q);
  nn_q_put_f16(block->d, step.scale);
  nn_q_put_fifths(block->q, block->high, q);
}

static inline void nn_encode_q5_1(const float *x, nn_block_q5_1 *block) {
  uint8_t q[NN_QK];
  const nn_q_step step = nn_q_asymmetric(x, 32);
  nn_q_quants(x, step, 32, q);
  nn_q_put_f16(block->d, step.scale);
  nn_q_put_f16(block->m, step.minimum);
  nn_q_put_fifths(block->q, block->high, q);
}

/* Rounded with halves away from zero. */
static inline void nn_encode_q8_0(const float *x, nn_block_q8_0 *block) {
  float most = 0.0f;
  for (int i = 0; i < NN_QK; i++) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  }
  const nn_q_step step = nn_q_step_of(most / 127.0f, 0.0f, 0.0f);
  nn_q_put_f16(block->d, step.scale);
  for (int i = 0; i < NN_QK; i++) {
    const float y = x[i] * step.inverse, whole = (float)(int)y, rest = y - whole; /* exact */
    block->q[i] = (int8_t)(whole + (rest >= 0.5f ? 1.0f : rest <= -0.5f ? -1.0f : 0.0f));
  }
}

#endif

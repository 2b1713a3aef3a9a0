/* The order of bytes in the _R16 formats: sixteen interleaved rows (bindings.h, cuda_interleave_rows). */
#ifndef NN_CPU_QUANT_INTERLEAVE_H
#define NN_CPU_QUANT_INTERLEAVE_H

#include "kernel.h"

#include "numbers/format.h"

#include <string.h>

/* The most fields that a block is cut into: q6_k's two scales apart, sixteen of parts, 48 words. */
enum { INTERLEAVE_FIELDS = 1 + 16 + 48, INTERLEAVE_BLOCK_BYTES = 210 };

/* Bytes of a stored block that stay together. */
typedef struct interleave_field {
  uint8_t at, bytes;
} interleave_field;

typedef struct interleave_layout {
  interleave_field field[INTERLEAVE_FIELDS];
  int64_t fields;
  int64_t block_bytes;
} interleave_layout;

NN_INLINE void interleave_add(interleave_layout *order, int64_t at, int64_t bytes) {
  order->field[order->fields++] = (interleave_field){(uint8_t)at, (uint8_t)bytes};
}

/* Of a plain format that has an _R16 form. */
NN_INLINE interleave_layout interleave_layout_of(int32_t format) {
  interleave_layout order = {.block_bytes = nn_format_block_of(format).bytes};
  if (format == NNCUDA_FORMAT_Q6_K) {
    interleave_add(&order, 208, 2);
    for (int64_t part = 0; part < 16; part++) {
      interleave_add(&order, 192 + part, 1);
    }
    for (int64_t i = 0; i < 16; i++) {
      const int64_t half = i / 8, word = i % 8 * 4;
      interleave_add(&order, half * 64 + word, 4);
      interleave_add(&order, half * 64 + 32 + word, 4);
      interleave_add(&order, 128 + half * 32 + word, 4);
    }
  } else if (nn_format_has_factors(format)) { /* what of an f16 comes last in the block, then words */
    const int64_t halves = format == NNCUDA_FORMAT_Q2_K ? 2 : 1, words = order.block_bytes - 2 * halves;
    for (int64_t i = 0; i < halves; i++) {
      interleave_add(&order, words + 2 * i, 2);
    }
    const int64_t first = format == NNCUDA_FORMAT_Q3_K ? words - 12 : 0; /* the scales, then from the beginning */
    for (int64_t at = 0; at < words; at += 4) {
      interleave_add(&order, (first + at) % words, 4);
    }
  } else {
    const int64_t one = format == NNCUDA_FORMAT_MXFP4 ? 1 : 2; /* bytes of a scale or minimum */
    const int64_t all = format == NNCUDA_FORMAT_IQ4_XS ? 0 : nn_format_has_minimum(format) ? 2 * one : one;
    for (int64_t at = 0; at < order.block_bytes; at += order.field[order.fields - 1].bytes) {
      interleave_add(&order, at, at < all ? one : 4);
    }
  }
  return order;
}

/* Block i of row r (0 .. 15) of sixteen rows, as it is stored in the plain format. */
NN_INLINE void interleave_block(const interleave_layout *order, const uint8_t *rows, int64_t i, int64_t r,
                                uint8_t *to) {
  const uint8_t *p = rows + i * NN_INTERLEAVED_ROWS * order->block_bytes;
  for (int64_t f = 0; f < order->fields; f++) {
    const interleave_field field = order->field[f];
    memcpy(to + field.at, p + r * field.bytes, field.bytes);
    p += NN_INTERLEAVED_ROWS * field.bytes;
  }
}

#endif

/* The backend of products with stored weights for processors without AVX2: the block formats element by element. */
#ifndef NN_CPU_QUANT_GEMM_PLAIN_H
#define NN_CPU_QUANT_GEMM_PLAIN_H

#include "quant_gemm_block.h"
#include "quant_gemm_float.h"
#include "quant_gemm_round_block.h"
#include "quant_interleave.h"

NN_INLINE int32_t quant_order(int32_t form, int64_t rows) {
  (void)form, (void)rows;
  return QUANT_BY_ROW;
}

NN_PLAIN NN_INLINE int64_t quant_work_bytes(int64_t k) {
  return nn_max(nn_round_up(k / QUANT_BLOCK * (int64_t)sizeof(quant_block), 64), (int64_t)sizeof(float_work));
}

NN_INLINE void quant_round_values(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                                  int64_t k, int32_t dtype) {
  float_round_row(acts, form, to, x, row, k, dtype);
}

#define half_columns float_columns /* as f32, which they are converted to */

/* The blocks of column c of a piece. */
NN_INLINE void unpack_row(const quant_piece *t, int64_t c, quant_block *row, int32_t format) {
  const int64_t blocks = t->k / QUANT_BLOCK;
  if (t->format == format) {
    for (int64_t i = 0; i < blocks; i++) {
      quant_unpack(t->w + c * t->row_bytes, i, &row[i], format);
    }
    return;
  }
  const interleave_layout order = interleave_layout_of(format);
  const int64_t each = nn_format_block_of(format).elements / QUANT_BLOCK, lane = c % NN_INTERLEAVED_ROWS;
  for (int64_t i = 0; i < blocks; i += each) {
    uint8_t stored[INTERLEAVE_BLOCK_BYTES];
    interleave_block(&order, t->w + (c - lane) * t->row_bytes, i / each, lane, stored);
    for (int64_t j = 0; j < each; j++) {
      quant_unpack(stored, j, &row[i + j], format);
    }
  }
}

NN_INLINE void block_columns(const quant_piece *t, int32_t format) {
  const int32_t form = quant_form_of(t->format);
  const quant_activations *acts = &t->job->activations[form];
  const int64_t blocks = t->k / QUANT_BLOCK, first = t->panel->tile * QUANT_ROWS;
  const int64_t row_codes = quant_row_codes(form, t->k);
  quant_block *row = (quant_block *)(void *)t->work;
  for (int64_t c = 0; c < t->columns; c++) {
    unpack_row(t, c, row, format);
    for (int64_t r = 0; r < t->panel->rows; r++) {
      const int64_t at = (first + r) * blocks;
      float sum = 0.0f;
      for (int64_t i = 0; i < blocks; i++) {
        const int8_t *x = acts->codes + (first + r) * row_codes + i * QUANT_BLOCK;
        const quant_block *b = &row[i];
        int32_t half[2] = {0, 0};
        for (int j = 0; j < QUANT_BLOCK; j++) {
          half[j / 16] += (int32_t)x[j] * (int32_t)b->code[j];
        }
        const int32_t integers = half[0] * b->part[0] + half[1] * b->part[1]; /* parts of 1 where there are none */
        sum = quant_fma(acts->scale[at + i] * b->scale, (float)integers, sum);
        if (nn_format_has_part_minima(format)) {
          const int32_t *sums = acts->sums + 2 * (at + i);
          const int32_t least = sums[0] * b->least[0] + sums[1] * b->least[1];
          sum = quant_fma(acts->scale[at + i] * b->minimum, (float)least, sum);
        }
        if (nn_format_has_minimum(format)) {
          sum = quant_fma(acts->total[at + i], b->minimum, sum);
        }
      }
      t->sums[r * t->ld + c] = sum;
    }
  }
}

NN_INLINE void interleaved_columns(const quant_piece *t, const int32_t format) { block_columns(t, format); }

#endif

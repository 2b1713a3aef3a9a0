/* The activations of a product with stored weights, rounded once a call. */
#ifndef NN_CPU_QUANT_GEMM_ROUND_H
#define NN_CPU_QUANT_GEMM_ROUND_H

#include "quant_gemm_backend.h"

/* Where block i of row r of a panel lies among its blocks, by run. */
NN_INLINE int64_t quant_run_at(const quant_panel *panel, int64_t r, int64_t i, int64_t k) {
  const int64_t begin = i / QUANT_RUN * QUANT_RUN, run = nn_min(QUANT_RUN, k / QUANT_BLOCK - begin);
  return begin * panel->rows + r * run + i - begin;
}

/* Where the scale of block i of row r of a panel is. */
NN_INLINE int64_t quant_scale_at(int32_t order, const quant_panel *panel, int64_t r, int64_t i, int64_t k) {
  const int64_t blocks = k / QUANT_BLOCK, first = panel->tile * QUANT_ROWS, to = first + r;
  return order == QUANT_BY_TILE  ? (to / QUANT_ROWS * blocks + i) * QUANT_ROWS + to % QUANT_ROWS
         : order == QUANT_BY_RUN ? first * blocks + quant_run_at(panel, r, i, k)
                                 : to * blocks + i;
}

/* Codes of block i of row r of a panel to where the products look for them. */
NN_INLINE void quant_put_codes(const quant_activations *acts, int32_t form, int32_t order, const quant_panel *panel,
                               int64_t r, int64_t i, int64_t k, const int8_t codes[QUANT_BLOCK]) {
  const int64_t to = panel->tile * QUANT_ROWS + r, row_codes = quant_row_codes(form, k);
  const int64_t tile = to / QUANT_ROWS, lane = to % QUANT_ROWS;
  if (order == QUANT_BY_ROW) {
    memcpy(acts->codes + to * row_codes + i * QUANT_BLOCK, codes, QUANT_BLOCK);
  } else if (order == QUANT_BY_RUN) {
    int8_t *first = acts->codes + panel->tile * QUANT_ROWS * row_codes;
    memcpy(first + quant_run_at(panel, r, i, k) * QUANT_BLOCK, codes, QUANT_BLOCK);
  } else if (form == QUANT_FORM_INTERLEAVED) {
    int8_t *pair = acts->codes + tile * QUANT_ROWS * row_codes + i / 2 * (2 * QUANT_BLOCK * QUANT_ROWS);
    memcpy(pair + lane * 2 * QUANT_BLOCK + i % 2 * QUANT_BLOCK, codes, QUANT_BLOCK);
  } else {
    int8_t *p = acts->codes + (tile * k + i * QUANT_BLOCK) * QUANT_ROWS + lane * 4;
    for (int64_t j = 0; j < QUANT_BLOCK; j += 4, p += 4 * QUANT_ROWS) {
      memcpy(p, codes + j, 4);
    }
  }
}

/* Row r of a panel, which is row `row` of x, into the rounded factor. */
NN_INLINE void quant_round_row(const quant_activations *acts, int32_t form, const quant_panel *panel, int64_t r,
                               const void *x, int64_t row, int64_t k, int32_t dtype) {
  if (form == QUANT_FORM_BLOCKS || form == QUANT_FORM_INTERLEAVED) {
    const int32_t order = quant_order(form, panel->rows);
    for (int64_t i = 0; i < k / QUANT_BLOCK; i++) {
      int8_t codes[QUANT_BLOCK];
      int32_t sums[2];
      const int64_t at = quant_scale_at(order, panel, r, i, k);
      quant_round_block(x, row * k + i * QUANT_BLOCK, codes, &acts->scale[at], sums, dtype);
      quant_put_codes(acts, form, order, panel, r, i, k, codes);
      acts->total[at] = acts->scale[at] * (float)(sums[0] + sums[1]);
      if (order != QUANT_BY_TILE) {
        acts->sums[2 * at] = sums[0];
        acts->sums[2 * at + 1] = sums[1];
      }
    }
    return;
  }
  quant_round_values(acts, form, panel->tile * QUANT_ROWS + r, x, row, k, dtype);
}

#endif

/* The backend of products with stored weights that has tile registers: panels of few rows go through vectors. */
#ifndef NN_CPU_QUANT_GEMM_AMX_H
#define NN_CPU_QUANT_GEMM_AMX_H

#include "quant_gemm_float.h"
#include "quant_gemm_interleaved_tile.h"
#include "quant_gemm_tile_half.h"
#include "quant_gemm_vector.h"

enum { QUANT_UNTILED_ROWS = 2 /* of a panel, at most, to go through vectors */ };

NN_INLINE int32_t quant_order(int32_t form, int64_t rows) {
  (void)form;
  return rows > QUANT_UNTILED_ROWS ? QUANT_BY_TILE : QUANT_BY_ROW;
}

NN_PLAIN NN_INLINE int64_t quant_work_bytes(int64_t k) {
  (void)k;
  return nn_max(tile_work_bytes(), (int64_t)sizeof(float_work));
}

NN_INLINE void quant_round_values(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                                  int64_t k, int32_t dtype) {
  if (form != QUANT_FORM_F32) {
    half_round_row(acts, form, to, x, row, k, dtype);
    return;
  }
  float_round_row(acts, form, to, x, row, k, dtype);
}

NN_INLINE void half_columns(const quant_piece *t, const int32_t format) { half_tiles(t, format); }

QUANT_VECTOR_COLUMNS(vector_blocks, quant_stream_rows, QUANT_UNTILED_ROWS)
QUANT_VECTOR_COLUMNS(vector_interleaved, interleaved_rows, QUANT_UNTILED_ROWS)

NN_INLINE void block_columns(const quant_piece *t, const int32_t format) {
  if (quant_order(QUANT_FORM_BLOCKS, t->panel->rows) == QUANT_BY_TILE) {
    quant_tiles(t, format);
    return;
  }
  vector_blocks(t, format);
}

NN_INLINE void interleaved_columns(const quant_piece *t, const int32_t format) {
  if (quant_order(QUANT_FORM_INTERLEAVED, t->panel->rows) == QUANT_BY_TILE) {
    interleaved_tiles(t, format);
    return;
  }
  vector_interleaved(t, format);
}

#endif

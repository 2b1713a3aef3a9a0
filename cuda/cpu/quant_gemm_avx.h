/* The backend of products with stored weights that has vectors alone: AVX2, AVX-512 and NEON. */
#ifndef NN_CPU_QUANT_GEMM_AVX_H
#define NN_CPU_QUANT_GEMM_AVX_H

#include "quant_gemm_float.h"
#include "quant_gemm_vector.h"

NN_INLINE int32_t quant_tiled(int64_t rows) {
  (void)rows;
  return 0;
}

NN_PLAIN NN_INLINE int64_t quant_work_bytes(int64_t k) {
  (void)k;
  return 0;
}

NN_INLINE void quant_round_values(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                                  int64_t k, int32_t dtype) {
  float_round_row(acts, form, to, x, row, k, dtype);
}

#define half_columns float_columns /* as f32, which they are converted to */

QUANT_VECTOR_COLUMNS(vector_blocks, quant_stream_rows, QUANT_ROWS_AT_ONCE)
QUANT_VECTOR_COLUMNS(vector_interleaved, interleaved_rows, QUANT_ROWS_AT_ONCE)

NN_INLINE void block_columns(const quant_piece *t, const int32_t format) { vector_blocks(t, format); }
NN_INLINE void interleaved_columns(const quant_piece *t, const int32_t format) { vector_interleaved(t, format); }

#endif

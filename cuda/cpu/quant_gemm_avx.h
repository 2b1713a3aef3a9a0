/* The backend of products with stored weights that has vectors alone: AVX2, AVX-512 and NEON. */
#ifndef NN_CPU_QUANT_GEMM_AVX_H
#define NN_CPU_QUANT_GEMM_AVX_H

#include "quant_gemm_float.h"
#include "quant_gemm_vector.h"
/* after quant_gemm_vector.h */
#if NN_SIMD_AVX512
#include "quant_gemm_panel.h"
#elif NN_SIMD_AVX2
#include "quant_gemm_unpacked_avx2.h"
#endif

#if NN_SIMD_AVX512
typedef panel_work block_work;

/* Rows that lie one by one cost much to bring side by side, interleaved ones little: those are so for their speed. */
NN_INLINE int32_t quant_order(int32_t form, int64_t rows) {
  const int64_t few = form == QUANT_FORM_INTERLEAVED ? QUANT_ROWS : QUANT_ROWS_AT_ONCE;
  return rows > few ? QUANT_BY_RUN : QUANT_BY_ROW;
}

/* A piece whose weights are unpacked for all rows; 0 where the rows are too few for that. */
NN_INLINE int32_t unpacks(const quant_piece *t, int32_t form, const int32_t format) {
  if (quant_order(form, t->panel->rows) != QUANT_BY_RUN) {
    return 0;
  }
  panel_columns(t, form == QUANT_FORM_INTERLEAVED, format);
  return 1;
}
#else
NN_INLINE int32_t quant_order(int32_t form, int64_t rows) {
  (void)form;
  (void)rows;
  return QUANT_BY_ROW;
}

#if NN_SIMD_AVX2
typedef unpacked_work block_work;

NN_INLINE int32_t unpacks(const quant_piece *t, int32_t form, const int32_t format) {
  if (t->panel->rows < UNPACKED_LEAST) {
    return 0;
  }
  unpacked_columns(t, form, format);
  return 1;
}
#else
typedef char block_work;

NN_INLINE int32_t unpacks(const quant_piece *t, int32_t form, const int32_t format) {
  (void)t;
  (void)form;
  (void)format;
  return 0;
}
#endif
#endif

NN_PLAIN NN_INLINE int64_t quant_work_bytes(int64_t k) {
  (void)k;
  return nn_max((int64_t)sizeof(block_work), (int64_t)sizeof(float_work));
}

NN_INLINE void quant_round_values(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                                  int64_t k, int32_t dtype) {
  float_round_row(acts, form, to, x, row, k, dtype);
}

#define half_columns float_columns

QUANT_VECTOR_COLUMNS(vector_blocks, quant_stream_rows, QUANT_ROWS_AT_ONCE)
QUANT_VECTOR_COLUMNS(vector_interleaved, interleaved_rows, QUANT_ROWS_AT_ONCE)

NN_INLINE void block_columns(const quant_piece *t, const int32_t format) {
  if (!unpacks(t, QUANT_FORM_BLOCKS, format)) {
    vector_blocks(t, format);
  }
}

NN_INLINE void interleaved_columns(const quant_piece *t, const int32_t format) {
  if (!unpacks(t, QUANT_FORM_INTERLEAVED, format)) {
    vector_interleaved(t, format);
  }
}

#endif

/*
 * Products with f32, f16 and bf16 weights in vectors. A sum runs over k in one vector, whose lanes are added in a fixed
 * tree at the end: so it has the same bits beside any others. Several of them side by side keep the multipliers busy
 * and share what they load.
 */
#ifndef NN_CPU_QUANT_GEMM_FLOAT_H
#define NN_CPU_QUANT_GEMM_FLOAT_H

#include "quant_gemm_job.h"

/* Rows of the activations and of weights that are summed side by side: as many as there are registers for. */
enum { FLOAT_ROWS = VF == 16 ? 4 : 2, FLOAT_COLUMNS = 4 };

/* Rows r .. of the activations times rows c .. of weights. */
NN_INLINE void float_sums(const quant_piece *t, const float *activations, int64_t r, int64_t c, const int rows,
                          const int columns, const int32_t dtype) {
  const int64_t k = t->k;
  const uint8_t *w = t->w + c * t->row_bytes;
  vf sum[FLOAT_ROWS][FLOAT_COLUMNS];
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      sum[i][j] = vf_set1(0.0f);
    }
  }
  int64_t p = 0;
  for (; p + VF <= k; p += VF) {
    vf x[FLOAT_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
      x[i] = vf_load(activations + i * k + p);
    }
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      const uint8_t *from = w + j * t->row_bytes;
      __builtin_prefetch(from + p * nn_dtype_bytes(dtype) + columns * t->row_bytes);
      const vf v = vf_load_as(from, p, dtype);
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) {
        sum[i][j] = vf_fma(x[i], v, sum[i][j]);
      }
    }
  }
  for (int j = 0; p < k && j < columns; j++) {
    const vf v = vf_load_part_as(w + j * t->row_bytes, p, k - p, dtype);
    for (int i = 0; i < rows; i++) {
      sum[i][j] = vf_fma(vf_load_part(activations + i * k + p, k - p), v, sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      t->sums[(r + i) * t->ld + c + j] = vf_sum(sum[i][j]);
    }
  }
}

NN_INLINE void float_columns(const quant_piece *t, const int32_t dtype) {
  const float *activations = t->job->activations[quant_form_of(t->format)].values + t->panel->tile * QUANT_ROWS * t->k;
  const int64_t rows = t->panel->rows;
  int64_t c = 0;
  for (; c + FLOAT_COLUMNS <= t->columns; c += FLOAT_COLUMNS) {
    int64_t r = 0;
    for (; r + FLOAT_ROWS <= rows; r += FLOAT_ROWS) {
      float_sums(t, activations + r * t->k, r, c, FLOAT_ROWS, FLOAT_COLUMNS, dtype);
    }
    for (; r < rows; r++) {
      float_sums(t, activations + r * t->k, r, c, 1, FLOAT_COLUMNS, dtype);
    }
  }
  for (; c < t->columns; c++) {
    for (int64_t r = 0; r < rows; r++) {
      float_sums(t, activations + r * t->k, r, c, 1, 1, dtype);
    }
  }
}

/* A vector of x, rounded to the type that `form` is of. */
NN_INLINE vf quant_round_vector(vf x, int32_t form) {
  uint16_t half[VF];
  if (form == QUANT_FORM_F16) {
    vf_to_f16(half, x);
    return vf_from_f16(half);
  }
  if (form == QUANT_FORM_BF16) {
    vf_to_bf16(half, x);
    return vf_from_bf16(half);
  }
  return x;
}

/* Row `row` of x, rounded to the type that `form` is of, into row `to` of the factor. */
NN_INLINE void float_round_row(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                               int64_t k, int32_t dtype) {
  float *values = acts->values + to * k;
  int64_t i = 0;
  for (; i + VF <= k; i += VF) {
    vf_store(values + i, quant_round_vector(vf_load_as(x, row * k + i, dtype), form));
  }
  if (i < k) {
    vf_store_part(values + i, k - i, quant_round_vector(vf_load_part_as(x, row * k + i, k - i, dtype), form));
  }
}

#endif

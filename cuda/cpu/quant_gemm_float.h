/*
 * Products with f32, f16 and bf16 weights in vectors. A sum runs over k in one vector, whose lanes are added in a fixed
 * tree at the end: so it has the same bits beside any others. Several of them side by side keep the multipliers busy
 * and share what they load. Rows of the activations stay in L1, a run of k at a time, while the columns of the piece
 * pass by; lanes wait in scratch memory for the next run and for the tree.
 *
 * With AVX512_BF16 a lane's step is two products of bf16, else one of f32, which f16 and bf16 are converted to.
 */
#ifndef NN_CPU_QUANT_GEMM_FLOAT_H
#define NN_CPU_QUANT_GEMM_FLOAT_H

#include "quant_gemm_job.h"

#include "transpose.h"

enum {
  FLOAT_ROWS = VF == 16  ? 6
               : VF == 8 ? 3
                         : 2,   /* summed side by side: as many as there are registers for */
  FLOAT_FEW = VF == 16 ? 4 : 2, /* of a panel of few rows */
  FLOAT_COLUMNS = 4,
  FLOAT_STRIP = QUANT_COLUMNS, /* columns whose lanes wait */
  FLOAT_RUN_BYTES = 24 << 10   /* of activations */
};

/* Scratch memory of a task. */
typedef struct float_work {
  float lanes[FLOAT_ROWS][FLOAT_STRIP][VF];
} float_work;

/* Whether products with weights of that type are of pairs of bf16. */
NN_INLINE int float_pairs(int32_t dtype) {
#if defined(__AVX512BF16__)
  return dtype == NNCUDA_BF16;
#else
  (void)dtype;
  return 0;
#endif
}

/* A vector of the activations, or of weights, of n elements from p on, or of as many as it holds. */
NN_INLINE vf float_weights(const uint8_t *w, int64_t p, int64_t n, const int32_t dtype) {
#if defined(__AVX512BF16__)
  if (float_pairs(dtype)) {
    return (vf)(n >= 2 * VF ? _mm512_loadu_si512(w + 2 * p)
                            : _mm512_maskz_loadu_epi16(((__mmask32)1 << n) - 1, w + 2 * p));
  }
#endif
  return vf_load_upto_as(w, p, n, dtype);
}

NN_INLINE vf float_step(vf x, vf w, vf sum, const int32_t dtype) {
#if defined(__AVX512BF16__)
  if (float_pairs(dtype)) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
  }
#endif
  (void)dtype;
  return vf_fma(x, w, sum);
}

/* Vectors from one row of the activations to the next: whole ones, filled up with zeros where they are pairs. */
NN_PLAIN NN_INLINE int64_t float_row(int64_t k, int32_t pairs) { return pairs ? nn_ceil_div(k, 2 * VF) * VF : k; }

/* Adds elements p .. end-1 of rows of the activations, `row` numbers apart, times as many rows of weights. x and w are
 * where the rows begin. */
NN_INLINE void float_add(const float *x, int64_t row, const uint8_t *w, int64_t row_bytes, int64_t p, int64_t end,
                         vf sum[][FLOAT_COLUMNS], const int rows, const int columns, const int32_t dtype) {
  const int each = VF * (float_pairs(dtype) ? 2 : 1);
  x += p / each * VF;
  for (; p + each <= end; p += each, x += VF) {
    vf y[FLOAT_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      y[i] = vf_load(x + i * row);
    }
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      const uint8_t *from = w + j * row_bytes;
      if (rows < FLOAT_ROWS) { /* these may come from memory; into L1 they take 1.1 to 1.4 times as long on Zen 4 */
        __builtin_prefetch(from + p * nn_dtype_bytes(dtype) + columns * row_bytes, 0, 2);
      }
      const vf v = float_weights(from, p, each, dtype);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        sum[i][j] = float_step(y[i], v, sum[i][j], dtype);
      }
    }
  }
  for (int j = 0; p < end && j < columns; j++) {
    const vf v = float_weights(w + j * row_bytes, p, end - p, dtype);
    for (int i = 0; i < rows; i++) {
      const vf y = float_pairs(dtype) ? vf_load(x + i * row) : vf_load_part(x + i * row, end - p);
      sum[i][j] = float_step(y, v, sum[i][j], dtype);
    }
  }
}

/* Rows r .. of the panel times columns c .. of a piece. */
NN_INLINE void float_sums(const quant_piece *t, const float *activations, int64_t r, int64_t c, const int rows,
                          const int columns, const int32_t dtype) {
  const int64_t row = float_row(t->k, float_pairs(dtype));
  vf sum[FLOAT_ROWS][FLOAT_COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      sum[i][j] = vf_set1(0.0f);
    }
  }
  float_add(activations + r * row, row, t->w + c * t->row_bytes, t->row_bytes, 0, t->k, sum, rows, columns, dtype);
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      t->sums[(r + i) * t->ld + c + j] = vf_sum(sum[i][j]);
    }
  }
}

/* Elements p0 .. p1-1 of FLOAT_ROWS rows times columns c .. of a piece, into the lanes that wait. */
NN_INLINE void float_lanes(const quant_piece *t, const float *x, int64_t c, int64_t p0, int64_t p1, float *lanes,
                           const int columns, const int32_t dtype) {
  vf sum[FLOAT_ROWS][FLOAT_COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < FLOAT_ROWS; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      sum[i][j] = p0 == 0 ? vf_set1(0.0f) : vf_load(lanes + (i * FLOAT_STRIP + j) * VF);
    }
  }
  float_add(x, float_row(t->k, float_pairs(dtype)), t->w + c * t->row_bytes, t->row_bytes, p0, p1, sum, FLOAT_ROWS,
            columns, dtype);
#pragma GCC unroll 8
  for (int i = 0; i < FLOAT_ROWS; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
      vf_store(lanes + (i * FLOAT_STRIP + j) * VF, sum[i][j]);
    }
  }
}

/* The lanes of each of `columns` vectors added in the order of vf_sum: as a square they need fewer instructions. */
NN_INLINE void float_finish(float (*lanes)[VF], float *sums, int64_t columns) {
  int64_t c = 0;
  for (; c + VF <= columns; c += VF) {
    vf x[VF];
#pragma GCC unroll 16
    for (int i = 0; i < VF; i++) {
      x[i] = vf_load(lanes[c + i]);
    }
    transpose(x);
#pragma GCC unroll 4
    for (int width = VF / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < width; i++) {
        x[i] = vf_add(x[i], x[i + width]);
      }
    }
    vf_store(sums + c, x[0]);
  }
  for (; c < columns; c++) {
    sums[c] = vf_sum(vf_load(lanes[c]));
  }
}

/* Columns c0 .. end-1, at most FLOAT_STRIP, of rows r .. r+FLOAT_ROWS-1 of the panel. */
NN_INLINE void float_rows(const quant_piece *t, const float *activations, int64_t r, int64_t c0, int64_t end,
                          const int32_t dtype) {
  float_work *work = (float_work *)(void *)t->work;
  const int pairs = float_pairs(dtype);
  const int64_t run = FLOAT_RUN_BYTES / (FLOAT_ROWS * (pairs ? 2 : 4)) / (2 * VF) * (2 * VF);
  const float *x = activations + r * float_row(t->k, pairs);
  for (int64_t p0 = 0; p0 < t->k; p0 += run) {
    const int64_t p1 = nn_min(p0 + run, t->k);
    int64_t c = c0;
    for (; c + FLOAT_COLUMNS <= end; c += FLOAT_COLUMNS) {
      float_lanes(t, x, c, p0, p1, work->lanes[0][c - c0], FLOAT_COLUMNS, dtype);
    }
    for (; c < end; c++) {
      float_lanes(t, x, c, p0, p1, work->lanes[0][c - c0], 1, dtype);
    }
  }
  for (int i = 0; i < FLOAT_ROWS; i++) {
    float_finish(work->lanes[i], t->sums + (r + i) * t->ld + c0, end - c0);
  }
}

NN_INLINE void float_columns(const quant_piece *t, const int32_t dtype) {
  const float *activations = t->job->activations[quant_form_of(t->format)].values +
                             t->panel->tile * QUANT_ROWS * float_row(t->k, float_pairs(dtype));
  const int64_t rows = t->panel->rows, many = rows > QUANT_ROWS ? rows / FLOAT_ROWS * FLOAT_ROWS : 0;
  for (int64_t c = 0; c < t->columns && many > 0; c += FLOAT_STRIP) {
    for (int64_t r = 0; r < many; r += FLOAT_ROWS) {
      float_rows(t, activations, r, c, nn_min(c + FLOAT_STRIP, t->columns), dtype);
    }
  }
  int64_t c = 0;
  for (; c + FLOAT_COLUMNS <= t->columns && many < rows; c += FLOAT_COLUMNS) {
    int64_t r = many;
    for (; r + FLOAT_FEW <= rows; r += FLOAT_FEW) {
      float_sums(t, activations, r, c, FLOAT_FEW, FLOAT_COLUMNS, dtype);
    }
    for (; r < rows; r++) {
      float_sums(t, activations, r, c, 1, FLOAT_COLUMNS, dtype);
    }
  }
  for (; c < t->columns; c++) {
    for (int64_t r = many; r < rows; r++) {
      float_sums(t, activations, r, c, 1, 1, dtype);
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
#if defined(__AVX512BF16__)
  if (form == QUANT_FORM_BF16) {
    uint16_t *pairs = (uint16_t *)(void *)(acts->values + to * float_row(k, 1));
    for (int64_t i = 0; i < nn_round_up(k, 2 * VF); i += VF) {
      vf_to_bf16(pairs + i, i < k ? vf_load_upto_as(x, row * k + i, k - i, dtype) : vf_set1(0.0f));
    }
    return;
  }
#endif
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

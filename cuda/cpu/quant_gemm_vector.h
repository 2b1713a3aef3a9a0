/*
 * Products of few rows in vectors, some rows of the activations at once. The block formats are in
 * quant_gemm_stream_avx512.h, quant_gemm_stream_avx2.h or quant_gemm_stream_neon.h, which all give quant_stream_rows.
 */
#ifndef NN_CPU_QUANT_GEMM_VECTOR_H
#define NN_CPU_QUANT_GEMM_VECTOR_H

#include "quant_gemm_interleaved.h"

#if NN_SIMD_NEON
#include "quant_gemm_stream_neon.h"
#elif NN_SIMD_AVX512
#include "quant_gemm_stream_avx512.h"
#else
#include "quant_gemm_stream_avx2.h"
#endif

/* A function for a piece's sums: of(t, row, rows, format) for all rows of its panel, `at_once` (1, 2 or 4) at a time.
 * Of four, three that are left are taken as if they were four, as the weights are then read once, and two have code of
 * their own. */
#define QUANT_VECTOR_COLUMNS(name, of, at_once)                                                                        \
  NN_INLINE void name(const quant_piece *t, const int32_t format) {                                                    \
    int64_t r = 0;                                                                                                     \
    for (; r + at_once <= t->panel->rows || (at_once == (int)QUANT_FOUR && r + QUANT_FOUR - 1 == t->panel->rows);      \
         r += at_once) {                                                                                               \
      of(t, r, at_once, format);                                                                                       \
    }                                                                                                                  \
    if (at_once == (int)QUANT_FOUR && r + 2 == t->panel->rows) {                                                       \
      of(t, r, 2, format);                                                                                             \
    } else if (at_once > 1 && r < t->panel->rows) {                                                                    \
      of(t, r, 1, format);                                                                                             \
    }                                                                                                                  \
  }

#endif

/* Products with block formats in vectors of eight lanes, AVX2's and NEON's: which blocks and rows quant_stream_step
 * takes in turn. It is included behind that. */
#ifndef NN_CPU_QUANT_GEMM_STREAM_EIGHT_H
#define NN_CPU_QUANT_GEMM_STREAM_EIGHT_H

#include "quant_gemm_rows.h"

/* All columns of a piece against `rows` rows of the activations from row `r0` on. */
NN_INLINE void quant_stream_rows(const quant_piece *t, int64_t r0, const int rows, const int32_t format) {
  const quant_activations *acts = &t->job->activations[QUANT_FORM_BLOCKS];
  const int64_t first = t->panel->tile * QUANT_ROWS + r0;
  const uint64_t blocks = (uint64_t)(t->k / QUANT_BLOCK);
  const int64_t lines = nn_ceil_div(VF * t->row_bytes, (int64_t)blocks * 64);
  const int32_t large = nn_format_block_of(format).elements > QUANT_BLOCK;
  for (int64_t c = 0; c < t->columns; c += VF) {
    quant_rows w;
    quant_rows_at(&w, t, c);
    vf sum[QUANT_ROWS_AT_ONCE];
    for (int r = 0; r < rows; r++) {
      sum[r] = vf_set1(0.0f);
    }
    uintptr_t next = quant_next(t, c, VF);
    for (uint64_t i = 0; i < blocks;) {
      for (int64_t l = 0; l < lines * (large ? 8 : 1); l++, next += 64) {
        __builtin_prefetch((const void *)next, 0, 2);
      }
      if (large) { /* 256 elements, so that what differs between their parts is constant */
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
          quant_stream_step(&w, i / 8 * 8 + (uint64_t)j, acts, first, t->k, sum, rows, format);
        }
        i += 8;
      } else {
        quant_stream_step(&w, i, acts, first, t->k, sum, rows, format);
        i++;
      }
    }
    for (int r = 0; r < rows; r++) {
      vf_store(t->sums + (r0 + r) * t->ld + c, sum[r]);
    }
  }
}

#endif

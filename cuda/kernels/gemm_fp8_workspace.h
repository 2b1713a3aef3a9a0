/* How products with factors in 8 bits lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_GEMM_FP8_WORKSPACE_H
#define NN_KERNELS_GEMM_FP8_WORKSPACE_H

#include "abi/gemm_fp8.h"
#include "numbers/fp8_blocks.h"
#include "runtime/engine.h"

/*
 * A factor as it is multiplied: where there are instructions for 8 bits, codes in rows of `padded` bytes along the
 * sums, whole blocks of which zeros fill up, and the scale of each block of each row, [blocks, lines], as the exponent
 * of its power of two plus NN_FP8_BIAS; else bf16, laid out as the factor itself, without scales.
 */
typedef struct nn_fp8_factor {
  void *numbers;
  uint8_t *scales;
  int64_t padded;
  int64_t lines,
      step; /* lines of scales in all, and from a matrix to the next: whole 16, as the copy engine wants it */
} nn_fp8_factor;

typedef struct nn_fp8_factors {
  nn_fp8_factor a, b;
} nn_fp8_factors;

/* Where E4M3 has products of its own: mma on sm_89, wgmma on sm_90a. For sm_90 the compiler makes f16 of mma's codes
 * and multiplies that (nvcc 13.0.88: F2FP.F16.E4M3.UNPACK_B and HMMA), which wgmma in bf16 outruns. */
static inline int32_t nn_fp8_has_codes(int32_t arch) { return arch == 89 || arch == 90; }

/* `count` matrices of `rows` rows of sums of `blocks` blocks, or `elements` in bf16: room for either on sm_90, whose
 * code may lack wgmma. */
static inline nn_fp8_factor nn_fp8_lay_out_factor(int64_t count, int64_t rows, int64_t blocks, int64_t elements,
                                                  nn_workspace *w) {
  const int32_t arch = w->machine->isa, codes = nn_fp8_has_codes(arch);
  const int64_t step = nn_round_up(rows, 16);
  nn_fp8_factor f = {NULL, NULL, blocks * NN_FP8_BLOCK, count * step, step};
  const int64_t in_codes = codes ? count * rows * f.padded : 0, in_bf16 = arch == 89 ? 0 : 2 * elements;
  f.numbers = nn_workspace_piece(w, (size_t)nn_max(in_codes, in_bf16));
  if (codes) {
    f.scales = (uint8_t *)nn_workspace_piece(w, (size_t)(f.lines * blocks));
  }
  return f;
}

static inline nn_fp8_factors nn_fp8_lay_out(const nn_grouped_gemm_fp8_args *a, nn_workspace *w) {
  const int64_t blocks = nn_ceil_div(a->k, NN_FP8_BLOCK);
  nn_fp8_factors made;
  made.a = nn_fp8_lay_out_factor(1, a->rows, blocks, a->rows * a->k, w);
  made.b = nn_fp8_lay_out_factor(a->groups, a->n, blocks, a->groups * a->n * a->k, w);
  return made;
}

static inline nn_fp8_factors nn_fp8_weights_lay_out(const nn_grouped_gemm_wgrad_fp8_args *a, nn_workspace *w) {
  const int64_t blocks = nn_fp8_first_block(a->rows, a->groups);
  nn_fp8_factors made;
  made.a = nn_fp8_lay_out_factor(1, a->m, blocks, a->rows * a->m, w);
  made.b = nn_fp8_lay_out_factor(1, a->n, blocks, a->rows * a->n, w);
  return made;
}

#endif

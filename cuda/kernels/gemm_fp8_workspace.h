/* How products with factors in 8 bits lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_GEMM_FP8_WORKSPACE_H
#define NN_KERNELS_GEMM_FP8_WORKSPACE_H

#include "abi/gemm_fp8.h"
#include "numbers/fp8_blocks.h"
#include "runtime/engine.h"

/*
 * A factor as it is multiplied: where there are instructions for 8 bits, codes in rows of `padded` bytes along the
 * sums, whole blocks of which zeros fill up, and the scale of each block of each row, [blocks, lines]; else bf16, laid
 * out as the factor itself, without scales.
 */
typedef struct nn_fp8_factor {
  void *numbers;
  float *scales;
  int64_t padded, lines;
} nn_fp8_factor;

typedef struct nn_fp8_factors {
  int32_t codes; /* rather than bf16 */
  nn_fp8_factor a, b;
} nn_fp8_factors;

/* Where mma of E4M3 is an instruction: on sm_89. For sm_90 the compiler makes f16 of the codes and multiplies that
 * (nvcc 13.0.88: F2FP.F16.E4M3.UNPACK_B and HMMA), which wgmma in bf16 outruns; only wgmma has E4M3 there. */
static inline int32_t nn_fp8_in_codes(int32_t arch) { return arch == 89; }

/* `lines` rows of sums of `blocks` blocks. */
static inline nn_fp8_factor nn_fp8_lay_out_codes(int64_t lines, int64_t blocks, nn_workspace *w) {
  nn_fp8_factor f = {NULL, NULL, blocks * NN_FP8_BLOCK, lines};
  f.numbers = nn_workspace_piece(w, (size_t)(lines * f.padded));
  f.scales = (float *)nn_workspace_piece(w, (size_t)(lines * blocks) * sizeof(float));
  return f;
}

static inline nn_fp8_factor nn_fp8_lay_out_bf16(int64_t elements, nn_workspace *w) {
  nn_fp8_factor f = {NULL, NULL, 0, 0};
  f.numbers = nn_workspace_piece(w, (size_t)elements * sizeof(uint16_t));
  return f;
}

static inline nn_fp8_factors nn_fp8_lay_out(const nn_grouped_gemm_fp8_args *a, nn_workspace *w) {
  const int64_t blocks = nn_ceil_div(a->k, NN_FP8_BLOCK);
  nn_fp8_factors made;
  made.codes = nn_fp8_in_codes(w->machine->isa);
  made.a = made.codes ? nn_fp8_lay_out_codes(a->rows, blocks, w) : nn_fp8_lay_out_bf16(a->rows * a->k, w);
  made.b =
      made.codes ? nn_fp8_lay_out_codes(a->groups * a->n, blocks, w) : nn_fp8_lay_out_bf16(a->groups * a->n * a->k, w);
  return made;
}

static inline nn_fp8_factors nn_fp8_weights_lay_out(const nn_grouped_gemm_wgrad_fp8_args *a, nn_workspace *w) {
  const int64_t blocks = nn_fp8_first_block(a->rows, a->groups);
  nn_fp8_factors made;
  made.codes = nn_fp8_in_codes(w->machine->isa);
  made.a = made.codes ? nn_fp8_lay_out_codes(a->m, blocks, w) : nn_fp8_lay_out_bf16(a->rows * a->m, w);
  made.b = made.codes ? nn_fp8_lay_out_codes(a->n, blocks, w) : nn_fp8_lay_out_bf16(a->rows * a->n, w);
  return made;
}

#endif

/* What rounding factors to 8 bits (gemm_fp8.cu) and multiplying them (gemm_fp8_mma.cu) share. */
#ifndef NN_KERNELS_GEMM_FP8_CUH
#define NN_KERNELS_GEMM_FP8_CUH

#include "kernels/gemm.cuh"
#include "kernels/gemm_fp8_workspace.h"

/* A product of codes: `a` and `b` of `problem` are pairs of codes, 16 bits, as are its lda, ldb and k. */
struct gemm_fp8_problem {
  gemm_problem problem;
  const float *a_scales, *b_scales; /* [blocks, lines] */
  int64_t a_lines, b_lines;
};

/* By mma. `large`: the larger tile. */
int32_t gemm_fp8_run_mma(nncuda_ctx *ctx, gemm_fp8_problem &p, bool large);

#endif

/* What rounding factors to 8 bits (gemm_fp8.cu) and multiplying them (gemm_fp8_mma.cu, gemm_wgmma_fp8.cu) share. */
#ifndef NN_KERNELS_GEMM_FP8_CUH
#define NN_KERNELS_GEMM_FP8_CUH

#include "kernels/gemm_fp8_workspace.h"
#include "kernels/gemm_wgmma_tile.cuh"

/* A product of codes: `a` and `b` of `problem` are pairs of codes, 16 bits, as are its lda, ldb and k. */
struct gemm_fp8_problem {
  gemm_problem problem;
  const uint8_t *a_scales, *b_scales; /* [blocks, lines] */
  int64_t a_lines, b_lines;
};

/* A scale from its byte. */
__device__ __forceinline__ float gemm_fp8_scale(uint32_t biased) { return __uint_as_float(biased << 23); }

/* By mma. `large`: the larger tile. */
int32_t gemm_fp8_run_mma(nncuda_ctx *ctx, gemm_fp8_problem &p, bool large);

/* By wgmma. What is settled before the factors are rounded, and then holds for their products. */
struct gemm_fp8_wgmma {
  gemm_wgmma_code_maps maps;
  gemm_wgmma_way way;
  bool wide; /* the wider tile */
};

/* False where the code on this GPU has no wgmma, the driver no tensor maps, or the products are too large for it. */
bool gemm_fp8_plan_wgmma(nncuda_ctx *ctx, gemm_fp8_problem &p, gemm_fp8_wgmma &to);
int32_t gemm_fp8_run_wgmma(nncuda_ctx *ctx, gemm_fp8_problem &p, const gemm_fp8_wgmma &by);

#endif

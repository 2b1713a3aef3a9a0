#include "kernels/gemm_wmma.cuh"

template <class TILE> static int32_t run_tile(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  return gemm_mma_run_tile<nn_f16, TILE, gemm_wmma_fragments>(ctx, p, choice);
}

int32_t gemm_run_wmma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  return !choice.wide   ? run_tile<gemm_wmma_narrow>(ctx, p, choice)
         : choice.large ? run_tile<gemm_wmma_large>(ctx, p, choice)
                        : run_tile<gemm_wmma_small>(ctx, p, choice);
}

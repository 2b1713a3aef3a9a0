#include "kernels/gemm_simt.cuh"

template <class T, class TILE> static int32_t run_tile(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  if (p.gate == GEMM_SWIGLU) {
    return gemm_start<TILE::BM, TILE::BN / 2, TILE::THREADS>(ctx, gemm_simt_kernel<T, false, true, TILE, GEMM_SWIGLU>,
                                                             p, 0, choice.wide != 0);
  }
  if (p.gate == GEMM_SWIGLU_BACKWARD) {
    return gemm_start<TILE::BM, TILE::BN, TILE::THREADS>(
        ctx, gemm_simt_kernel<T, false, false, TILE, GEMM_SWIGLU_BACKWARD>, p, 0, choice.wide != 0);
  }
  const auto kernel =
      choice.trans_a   ? choice.trans_b ? gemm_simt_kernel<T, true, true, TILE> : gemm_simt_kernel<T, true, false, TILE>
        : choice.trans_b ? gemm_simt_kernel<T, false, true, TILE>
                       : gemm_simt_kernel<T, false, false, TILE>;
  return gemm_start<TILE::BM, TILE::BN, TILE::THREADS>(ctx, kernel, p, 0, choice.wide != 0);
}

int32_t gemm_run_simt(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype) {
  if (dtype == NNCUDA_BF16) {
    return choice.large ? run_tile<nn_bf16, gemm_simt_large>(ctx, p, choice)
                        : run_tile<nn_bf16, gemm_simt_small>(ctx, p, choice);
  }
  return choice.large ? run_tile<float, gemm_simt_large>(ctx, p, choice)
                      : run_tile<float, gemm_simt_small>(ctx, p, choice);
}

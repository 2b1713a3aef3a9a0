#include "kernels/gemm_wgmma.cuh"

int32_t gemm_run_wgmma_bf16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, bool *done) {
  return gemm_wgmma_launch<nn_bf16>(ctx, p, choice, NNCUDA_BF16, done);
}

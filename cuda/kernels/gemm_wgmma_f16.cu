#include "kernels/gemm_wgmma.cuh"

int32_t gemm_run_wgmma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, bool *done) {
  return gemm_wgmma_launch<nn_f16>(ctx, p, choice, NNCUDA_F16, done);
}

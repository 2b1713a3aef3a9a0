#include "kernels/gemm_mma.cuh"

int32_t gemm_run_mma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  return gemm_mma_launch<nn_f16>(ctx, p, choice);
}

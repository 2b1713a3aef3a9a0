#include "kernels/gemm_mma.cuh"

int32_t gemm_run_mma_tf32(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  return gemm_mma_launch<float>(ctx, p, choice);
}

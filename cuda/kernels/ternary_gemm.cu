/* Chooses how codes and ternary weights are multiplied. */
#include "kernels/ternary_gemm.cuh"

/* Rows from which the tensor cores multiply: with more, dp4a would take longer than reading the weights does. By count
 * (n * k * rows / 4 dp4a, 64 a clock and multiprocessor). */
constexpr int64_t ROWS_FOR_MMA = 5;

static bool pairs_of(const void *y, const void *residual, int64_t n, int32_t dtype) {
  const uintptr_t bytes = dtype == NNCUDA_F16 || dtype == NNCUDA_BF16 ? 4 : 8;
  return n % 2 == 0 && ((reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(residual)) & (bytes - 1)) == 0;
}

NN_KERNEL(bitlinear) {
  ternary_product p = {};
  p.codes = a->codes;
  p.scale = a->scale;
  p.w_scale = a->w_scale;
  p.w = static_cast<const uint8_t *>(a->w);
  p.residual = a->residual;
  p.y = a->y;
  p.m = a->m;
  p.n = a->n;
  p.k = a->k;
  p.panels = a->stored / TERNARY_PANEL;
  p.units = (int32_t)(a->row_bytes / 4);
  p.dtype = a->dtype;
  p.wide = nn_aligned_16(a->codes, p.w) && a->k % 16 == 0;
  p.pairs = pairs_of(a->y, a->residual, a->n, a->dtype);
  return p.wide && p.m >= ROWS_FOR_MMA && nn_gpu_arch(ctx) >= 75 ? ternary_run_mma(ctx, p) : ternary_run_rows(ctx, p);
}

/* Chooses how codes and ternary weights are multiplied, and who rounds x to codes. */
#include "kernels/norm_row.cuh"
#include "kernels/parts.cuh"
#include "kernels/ternary_gemm.cuh"
#include "kernels/ternary_workspace.h"

/* Rows from which the tensor cores multiply: with more, dp4a would take longer than reading the weights does. By count
 * (n * k * rows / 4 dp4a, 64 a clock and multiprocessor). */
constexpr int64_t ROWS_FOR_MMA = 5;

static bool pairs_of(const void *y, const void *residual, int64_t n, int32_t dtype) {
  const uintptr_t bytes = dtype == NNCUDA_F16 || dtype == NNCUDA_BF16 ? 4 : 8;
  return n % 2 == 0 && ((reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(residual)) & (bytes - 1)) == 0;
}

static int32_t run(nncuda_ctx *ctx, const ternary_product &p) {
  return p.wide && p.m >= ROWS_FOR_MMA && nn_gpu_arch(ctx) >= 75 ? ternary_run_mma(ctx, p) : ternary_run_rows(ctx, p);
}

/* The product of codes that are there, or will be; of the arguments that both functions have. */
template <class ARGS> static ternary_product product_of(const ARGS *a, const int8_t *codes, const float *scale) {
  ternary_product p = {};
  p.codes = codes;
  p.scale = scale;
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
  p.wide = nn_aligned_16(codes, p.w) && a->k % 16 == 0;
  p.pairs = pairs_of(a->y, a->residual, a->n, a->dtype);
  return p;
}

NN_KERNEL(bitlinear) { return run(ctx, product_of(a, a->codes, a->scale)); }

/* Whether the product's kernel can itself round the rows. */
static bool takes_raw(const nn_bitlinear_norm_args *a, const ternary_product &p) {
  return a->dtype == NNCUDA_F32 && p.wide && a->m <= NN_SHARED_WORK_ROWS &&
         (a->norm == nullptr ? nn_aligned_16(a->x) : nn_aligned_16(a->norm) && nn_rms_takes(a->x, a->k));
}

static int32_t round_rows(nncuda_ctx *ctx, const nn_bitlinear_norm_args *a, const nn_ternary_rows &to) {
  if (a->norm == nullptr) {
    const nn_act_quant_i8_args plain = {a->x, to.codes, to.scale, a->m, a->k, a->dtype};
    return nn_cuda_act_quant_i8(ctx, &plain);
  }
  const nn_rmsnorm_quant_i8_args normed = {a->x, a->norm, to.codes, to.scale, a->m, a->k, a->eps, a->dtype};
  return nn_cuda_rmsnorm_quant_i8(ctx, &normed);
}

NN_KERNEL(bitlinear_norm) {
  const nn_ternary_rows to = nn_ternary_rows_lay_out(a, nn_workspace_of(ctx));
  ternary_product p = product_of(a, to.codes, to.scale);
  if (!takes_raw(a, p)) {
    const int32_t status = round_rows(ctx, a, to);
    return status == NNCUDA_SUCCESS ? run(ctx, p) : status;
  }
  p.raw = {static_cast<const float *>(a->x), static_cast<const float *>(a->norm), a->eps, to.codes, to.scale};
  if (p.m == 1 && p.k <= TERNARY_ONE_ROW_MOST) {
    p.codes = nullptr;
  } else {
    p.shared = nn_shared_work_of(ctx, p.m);
  }
  return run(ctx, p);
}

/* Gradients through stored weights: a panel of columns of W becomes numbers and is multiplied, one launch after the
 * other. */
#include "abi/ternary.h"

#include "kernels/lora_workspace.h"
#include "kernels/number.cuh"
#include "kernels/parts.cuh"

/* By count: as much as keeps memory busy; a number a thread, so that they leave in order. */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/* Multiplies panel after panel, each made by make(panel, first, columns). */
template <class MAKE> static int32_t multiply(nncuda_ctx *ctx, const nn_lora_product &p, const MAKE &make) {
  nn_workspace *const w = nn_workspace_of(ctx);
  void *const panel = nn_lora_lay_out_panel(&p, w);
  const nn_workspace free_behind = *w;
  for (int64_t first = 0; first < p.k; first += p.columns) {
    const int64_t columns = nn_min(p.columns, p.k - first);
    const nn_gemm_args part = nn_lora_part(&p, panel, first, columns);
    *w = free_behind;
    int32_t status = make(panel, first, columns);
    if (status == NNCUDA_SUCCESS) {
      status = p.offsets == nullptr ? nn_cuda_gemm_beta(ctx, &part) : nn_cuda_grouped_gemm(ctx, &part);
    }
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  return NNCUDA_SUCCESS;
}

NN_KERNEL(gemm_quant_backward) {
  return multiply(ctx, nn_lora_stored(a, NN_LORA_PANEL_BYTES), [&](void *panel, int64_t first, int64_t columns) {
    const nn_dequantize_args numbers = nn_lora_numbers(a, panel, first, columns);
    return nn_cuda_dequantize(ctx, &numbers);
  });
}

/* ---- ternary weights ---- */

struct ternary_columns {
  const uint8_t *w;
  const float *w_scale;
  int64_t n, first, columns, row_bytes;
};

template <class T> __global__ void __launch_bounds__(THREADS) ternary_numbers_kernel(ternary_columns p, T *y) {
  const int64_t numbers = p.n * p.columns, step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < numbers; i += step) {
    const int64_t row = i / p.columns, column = p.first + i % p.columns;
    const int at = (int)(column % NN_TERNARY_COLUMNS);
    const int64_t word = (row / NN_TERNARY_ROWS * (p.row_bytes / 4) + column / NN_TERNARY_COLUMNS) * NN_TERNARY_ROWS +
                         row % NN_TERNARY_ROWS;
    const int code = (p.w[4 * word + at % 4] >> at / 4 * 2 & 3) - 1;
    y[i] = nn_from_float<T>((float)code * p.w_scale[row]);
  }
}

NN_KERNEL(bitlinear_backward) {
  return multiply(ctx, nn_lora_ternary(a, NN_LORA_PANEL_BYTES), [&](void *panel, int64_t first, int64_t columns) {
    const ternary_columns p = {static_cast<const uint8_t *>(a->w), a->w_scale, a->n, first, columns, a->row_bytes};
    const dim3 blocks(nn_blocks(ctx, a->n * columns, THREADS, BLOCKS_PER_SM));
    NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, ternary_numbers_kernel<T>, blocks, dim3(THREADS), 0, p,
                                                static_cast<T *>(panel)));
  });
}

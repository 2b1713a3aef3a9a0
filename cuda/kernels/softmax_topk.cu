#include "abi/softmax.h"

#include "kernels/softmax_topk.cuh"

/* ---- softmax_topk ---- */

template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) softmax_topk_kernel(router a) {
  __shared__ router_shared shared;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / SHAPE::LANES;
    router_row<T, SHAPE, WIDE>(a, row, row < a.rows ? a.cols : 0, shared, [](int32_t) {});
  }
}

template <class T> static int32_t topk_launch(nncuda_ctx *ctx, const nn_softmax_topk_args *a) {
  const router r = {a->x, a->weights, a->indices, a->probs, a->rows, a->cols, (int)a->k, a->norm};
  const bool wide = by_fours(a->cols, a->x, a->dtype) && nn_aligned_16(a->probs);
  SWITCH_ROUTER(a->cols, wide,
                return nn_launch(ctx, softmax_topk_kernel<T, SHAPE, WIDE>, dim3(nn_row_blocks(a->rows, SHAPE::ROWS)),
                                 dim3(SHAPE::THREADS), 0, r));
}

NN_KERNEL(softmax_topk) { NN_SWITCH_FLOATS(a->dtype, return topk_launch<T>(ctx, a)); }

/* ---- softmax_topk_backward ---- */

template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) softmax_topk_backward_kernel(router_backward a, nn_range columns) {
  __shared__ float shared[2][NN_WARP];
  const double factor = router_loss_factor(a);
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / SHAPE::LANES;
    router_row_backward<T, SHAPE, WIDE>(a, columns, factor, row, row < a.rows ? a.cols : 0, shared[turn]);
    turn ^= 1;
  }
}

template <class T> static int32_t topk_backward_launch(nncuda_ctx *ctx, const router_backward &r, int32_t dtype) {
  const nn_range columns = nn_range_of(ctx, "indices", 0, r.cols - 1).in_rows_of(r.k);
  const bool wide = by_fours(r.cols, r.dx, dtype) && nn_aligned_16(r.probs, r.dprobs);
  SWITCH_ROUTER(r.cols, wide,
                return nn_launch(ctx, softmax_topk_backward_kernel<T, SHAPE, WIDE>,
                                 dim3(nn_row_blocks(r.rows, SHAPE::ROWS)), dim3(SHAPE::THREADS), 0, r, columns));
}

int32_t nn_router_backward(nncuda_ctx *ctx, const router_backward &r, int32_t dtype) {
  NN_SWITCH_FLOATS(dtype, return topk_backward_launch<T>(ctx, r, dtype));
}

NN_KERNEL(softmax_topk_backward) {
  return nn_router_backward(ctx,
                            {a->dweights, a->weights, a->indices, a->probs, a->dprobs, a->dx, a->rows, a->cols,
                             (int)a->k, a->norm, nullptr, nullptr, 0.0},
                            a->dtype);
}

/*
 * What the gradient of a layer of experts begins with, in one launch: a block's warps take the slots of its tokens,
 * each of which brings the gradient of its output to its row and leaves that of its weight; from these the block's
 * lanes make the gradients of the tokens' logits, by the code of softmax_topk_backward.
 */
#include "abi/softmax.h"

#include "kernels/moe.cuh"
#include "kernels/parts.cuh"
#include "kernels/softmax_topk.cuh"

constexpr int OUTPUT_THREADS = MOVE_WARPS * NN_WARP;

/* Tokens of a block: each warp has two or more of their slots, and there are enough blocks to fill a GPU from 2000
 * tokens on. By count. */
template <class SHAPE>
constexpr int OUTPUT_TOKENS = OUTPUT_THREADS / SHAPE::LANES < 16 ? OUTPUT_THREADS / SHAPE::LANES : 16;

template <class T, class SHAPE, bool WIDE>
static __global__ void __launch_bounds__(OUTPUT_THREADS, SHAPE::VECTORS > 2 ? 1 : 4)
    output_backward_kernel(nn_moe_combine_backward_args a, inverse_maps maps, router_backward r, nn_range columns) {
  static_assert(!SHAPE::is_long, "a row is a warp's, or less");
  constexpr int TOKENS = OUTPUT_TOKENS<SHAPE>;
  const int64_t token = (int64_t)blockIdx.x * TOKENS, end = token + TOKENS < a.tokens ? token + TOKENS : a.tokens;
  for (int64_t slot = token * a.k + threadIdx.x / NN_WARP; slot < end * a.k; slot += MOVE_WARPS) {
    combine_backward_slot<T, WIDE ? nn_per_16<T> : 1>(a, maps, slot);
  }
  __syncthreads(); /* the gradients of the weights are there */
  const int64_t row = token + threadIdx.x / SHAPE::LANES;
  router_row_backward<T, SHAPE, WIDE>(r, columns, router_loss_factor(r), row, row < end ? r.cols : 0, nullptr);
}

template <class T>
static int32_t output_launch(nncuda_ctx *ctx, const nn_moe_combine_backward_args &a, const router_backward &r) {
  const bool wide = nn_aligned_16(a.dout, a.y, a.dy) && nn_rows_16(a.dim, a.dim, a.dtype) &&
                    by_fours(r.cols, r.dx, a.dtype) && nn_aligned_16(r.probs);
  SWITCH_ROUTER(r.cols, wide, {
    if constexpr (!SHAPE::is_long) {
      return nn_launch(ctx, output_backward_kernel<T, SHAPE, WIDE>,
                       dim3((unsigned)nn_ceil_div(a.tokens, OUTPUT_TOKENS<SHAPE>)), dim3(OUTPUT_THREADS), 0, a,
                       inverse_maps_of(ctx, a.tokens * a.k), r,
                       nn_range_of(ctx, "indices", 0, r.cols - 1).in_rows_of(r.k));
    } else {
      const int32_t status = nn_cuda_moe_combine_backward(ctx, &a);
      return status != NNCUDA_SUCCESS ? status : nn_router_backward(ctx, r, a.dtype);
    }
  });
  return NNCUDA_ERROR_INTERNAL;
}

NN_KERNEL(moe_output_backward) {
  const nn_moe_combine_backward_args combine = {a->dout,     a->y,      a->weights, a->slot_row, a->row_slot, a->dy,
                                                a->dweights, a->tokens, a->k,       a->dim,      a->dtype};
  const router_backward router = {a->dweights, a->weights,    a->indices,      a->probs,  nullptr,
                                  a->dlogits,  a->tokens,     a->experts,      (int)a->k, a->norm,
                                  a->counts,   a->grad_scale, (double)a->alpha};
  NN_SWITCH_FLOATS(a->dtype, return output_launch<T>(ctx, combine, router));
}

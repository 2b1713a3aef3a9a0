/*
 * The router of a stored mixture of experts. For a few tokens it is one kernel, as a decoding step wants it: each warp
 * has the row of an expert, and multiplies it with the token's row, which its block norms; the block that ends last
 * takes the softmax, the k largest, and plans the rows. What decides bits is that of rmsnorm, gemm_quant, softmax_topk
 * and moe_plan, and most of it their code. Other calls are these, one after the other.
 */
#include "abi/generated/rmsnorm.h"
#include "abi/quant_experts.h"

#include "kernels/moe.cuh"
#include "kernels/moe_workspace.h"
#include "kernels/norm_row.cuh"
#include "kernels/parts.cuh"
#include "kernels/quant_format.cuh"
#include "kernels/quant_workspace.h"
#include "kernels/shared_work.cuh"
#include "kernels/softmax_topk.cuh"

/* Tokens that one block plans, and experts that it counts. By count: the softmax of a token is 4 to 32 of its threads',
 * and a warp places 32 slots at a time. */
constexpr int64_t MOST_TOKENS = 32, MOST_EXPERTS = 256;

/* A row of the norm's form for rows of 1025 to 8192 elements; an expert a warp. */
using norm_shape = nn_row_shape<NN_ROW_BLOCK, float>;
constexpr int THREADS = norm_shape::THREADS, WARPS = THREADS / NN_WARP;

struct quant_route {
  const float *x, *gains;
  const uint8_t *w;
  float *y, *logits;
  int64_t row_bytes, dim, limit;
  float eps;
  router choice;
  nn_moe_plan_args plan;
  unsigned *arrivals;
};

/* The token's normed row into shared memory, and to y by the first block of the token. */
__device__ __forceinline__ void norm_token(const quant_route &a, int64_t token, float *normed) {
  __shared__ float sums[NN_WARP];
  float values[norm_shape::VECTORS][norm_shape::N], squares = 0.0f;
#pragma unroll
  for (int v = 0; v < norm_shape::VECTORS; v++) {
    nn_row_load<true>(values[v], a.x + token * a.dim, (v * THREADS + threadIdx.x) * norm_shape::N, a.dim, 0.0f);
  }
  nn_rms_square(squares, values);
  const float rstd = nn_rms_rstd<THREADS>(squares, a.dim, a.eps, sums);
#pragma unroll
  for (int v = 0; v < norm_shape::VECTORS; v++) {
    const int64_t column = (v * THREADS + threadIdx.x) * norm_shape::N;
    float gain[norm_shape::N];
    nn_row_load<true>(gain, a.gains, column, a.dim, 0.0f);
    nn_rms_apply(values[v], rstd, gain);
    if (column < a.dim) { /* shared memory, which nn_row_store is not for */
      static_assert(norm_shape::N == 4, "of 16 bytes");
      *reinterpret_cast<float4 *>(normed + column) =
          make_float4(values[v][0], values[v][1], values[v][2], values[v][3]);
    }
    if (blockIdx.x == 0) {
      nn_row_store<true>(a.y + token * a.dim, column, a.dim, values[v]);
    }
  }
  __syncthreads();
}

template <class F> __device__ __forceinline__ void load_eight(float (&to)[8], const F *from) {
  constexpr int EACH = nn_per_16<F>;
#pragma unroll
  for (int first = 0; first < 8; first += EACH) {
    float part[EACH];
    nn_load(part, from + first);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      to[first + e] = part[e];
    }
  }
}

/* The product with a row of weights, as gemm_quant sums it: runs of 8 elements in turn to 32 sums. */
template <class F> __device__ __forceinline__ float logit_of(const F *w, const float *normed, int64_t dim) {
  const int lane = threadIdx.x % NN_WARP;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t i = lane * 8; i < dim; i += NN_WARP * 8) {
    float some[8], x[8];
    load_eight(some, w + i);
    load_eight(x, normed + i);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      sum = fmaf(nn_rounded<F>(x[e]), some[e], sum);
    }
  }
  return nn_warp_sum(sum);
}

template <class F, class SHAPE> static __global__ void __launch_bounds__(THREADS, 1) route_kernel(quant_route a) {
  static_assert(!SHAPE::is_long, "a row is a warp's, or less");
  NN_SHARED_BYTES(memory);
  float *const normed = reinterpret_cast<float *>(memory);
  __shared__ int last;
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP, experts = (int)a.choice.cols;
  const int64_t token = blockIdx.y, tokens = a.choice.rows, expert = (int64_t)blockIdx.x * WARPS + warp;
  const uint8_t *const row = a.w + expert * a.row_bytes;
  nn_let_next_start();
  constexpr int64_t LINE = 128;
  for (int64_t at = lane * LINE; expert < experts && at < a.row_bytes; at += NN_WARP * LINE) {
    nn_prefetch(row + at); /* weights, which no kernel writes */
  }
  nn_wait_for_kernels();
  norm_token(a, token, normed);
  if (expert < experts) {
    const float logit = logit_of(reinterpret_cast<const F *>(row), normed, a.dim);
    if (lane == 0) {
      a.logits[token * experts + expert] = logit;
    }
  }
  if (!nn_is_last_block(a.arrivals, gridDim.x * gridDim.y, &last)) {
    return;
  }
  __shared__ router_shared shared;
  __shared__ int32_t counts[MOST_EXPERTS], ranks[MOST_EXPERTS], offsets[MOST_EXPERTS + 1];
  for (int e = threadIdx.x; e < experts; e += THREADS) {
    counts[e] = ranks[e] = 0;
  }
  __syncthreads();
  for (int64_t first = 0; first < tokens; first += THREADS / SHAPE::LANES) {
    const int64_t at = first + threadIdx.x / SHAPE::LANES;
    router_row<float, SHAPE, false>(a.choice, at, at < tokens ? experts : 0, shared,
                                    [&](int32_t chosen) { atomicAdd(&counts[chosen], 1); });
  }
  __syncthreads();
  if (warp == 0) {
    moe_offsets(counts, experts, a.limit, offsets);
    __syncwarp();
    moe_place(a.plan, 0, a.limit, a.limit, offsets, ranks);
  }
  __syncthreads();
  for (int e = threadIdx.x; e <= experts; e += THREADS) {
    a.plan.offsets[e] = offsets[e];
    if (e < experts) {
      a.plan.counts[e] = counts[e];
    }
  }
}

static int32_t route_by_parts(nncuda_ctx *ctx, const nn_gemm_quant_route_args *a) {
  const nn_rmsnorm_args norm = {a->x, a->gains, a->y, nullptr, a->tokens, a->dim, a->eps, NNCUDA_F32};
  const nn_gemm_quant_args product = nn_route_product(a);
  const nn_moe_route_args route = nn_quant_route_rest(a);
  int32_t status = nn_cuda_rmsnorm(ctx, &norm);
  status = status != NNCUDA_SUCCESS ? status : nn_cuda_gemm_quant(ctx, &product);
  return status != NNCUDA_SUCCESS ? status : nn_cuda_moe_route(ctx, &route);
}

template <class F> static int32_t route_launch(nncuda_ctx *ctx, const quant_route &r) {
  const dim3 grid((unsigned)nn_ceil_div(r.choice.cols, WARPS), (unsigned)r.choice.rows);
  SWITCH_ROUTER(r.choice.cols, false, {
    (void)WIDE; /* logits come one by one */
    if constexpr (!SHAPE::is_long) {
      return nn_launch_ahead(ctx, route_kernel<F, SHAPE>, grid, dim3(THREADS), (size_t)r.dim * sizeof(float), r);
    }
  });
  return NNCUDA_ERROR_INTERNAL; /* there are no more than MOST_EXPERTS */
}

NN_KERNEL(gemm_quant_route) {
  const bool few = a->tokens <= MOST_TOKENS && a->experts <= MOST_EXPERTS && nn_is_dtype(a->format) &&
                   nn_row_form_of(a->dim, NNCUDA_F32) == NN_ROW_BLOCK && a->dim % 8 == 0 &&
                   nn_aligned_16(a->x, a->gains, a->y) && nn_aligned_16(a->w);
  if (!few) {
    return route_by_parts(ctx, a);
  }
  const quant_route r = {a->x,
                         a->gains,
                         static_cast<const uint8_t *>(a->w),
                         a->y,
                         a->logits,
                         a->row_bytes,
                         a->dim,
                         a->tokens * a->k,
                         a->eps,
                         {a->logits, a->weights, a->indices, a->probs, a->tokens, a->experts, (int)a->k, a->norm},
                         {a->indices, a->counts, a->offsets, a->slot_row, a->row_slot, a->tokens, a->k, a->experts, 0},
                         nn_gpu_arrivals(ctx)};
  if (a->format == NNCUDA_FORMAT_F32) {
    return route_launch<float>(ctx, r);
  }
  return a->format == NNCUDA_FORMAT_F16 ? route_launch<nn_f16>(ctx, r) : route_launch<nn_bf16>(ctx, r);
}

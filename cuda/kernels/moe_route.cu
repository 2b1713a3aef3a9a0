/*
 * The router of a mixture of experts in two launches. The first one has a block for each piece of the tokens: softmax,
 * the k largest, and how many slots of the piece each expert has. In the second each block adds up the counts of all
 * pieces, finds the rows of its own slots and copies its tokens there, each of which is read once. It also adds up
 * chunks of the balancing loss, and the block that is last to finish adds the chunks.
 *
 * Whole numbers are exact in any order, and what is a floating-point sum is summed as aux_loss_forward does it.
 */
#include "abi/generated/loss.h"
#include "abi/softmax.h"

#include "kernels/loss_aux.cuh"
#include "kernels/moe.cuh"
#include "kernels/moe_workspace.h"
#include "kernels/parts.cuh"
#include "kernels/softmax_topk.cuh"

/* Threads of a block that chooses, at most: a piece of 32 tokens at once, with up to 64 experts. By count. */
constexpr int CHOOSE_THREADS = 512;

template <class T, class SHAPE, bool WIDE>
static __global__ void __launch_bounds__(CHOOSE_THREADS) choose_kernel(router a, nn_moe_route_pieces p) {
  static_assert(!SHAPE::is_long, "a row is a warp's, or less");
  __shared__ router_shared shared;
  __shared__ int32_t chosen[NN_ROUTE_EXPERTS];
  const int cols = (int)a.cols;
  for (int e = threadIdx.x; e < cols; e += blockDim.x) {
    chosen[e] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *p.done = 0; /* for the next kernel */
  }
  __syncthreads();
  const int64_t begin = blockIdx.x * p.tokens, end = begin + p.tokens < a.rows ? begin + p.tokens : a.rows;
  for (int64_t first = begin; first < end; first += blockDim.x / SHAPE::LANES) {
    const int64_t row = first + threadIdx.x / SHAPE::LANES;
    router_row<T, SHAPE, WIDE>(a, row, row < end ? a.cols : 0, shared,
                               [&](int32_t expert) { atomicAdd(&chosen[expert], 1); });
  }
  __syncthreads();
  for (int e = threadIdx.x; e < cols; e += blockDim.x) {
    p.chosen[blockIdx.x * a.cols + e] = chosen[e];
  }
}

struct route {
  nn_moe_plan_args plan;
  nn_moe_route_pieces pieces;
  const void *x;
  void *y; /* null: no rows are wanted */
  int64_t dim, limit;
  const float *probs;
  float *loss; /* null for none */
  double alpha;
};

constexpr int BRING_THREADS = MOVE_WARPS * NN_WARP;
static_assert(BRING_THREADS == AUX_THREADS, "a chunk of the loss is a block's");

/* The counts of all pieces, and of those before this block's. */
static __device__ __forceinline__ void add_pieces(const route &r, int32_t *counts, int32_t *before) {
  const int experts = (int)r.plan.experts, pieces = (int)r.pieces.count;
  for (int e = threadIdx.x; e < experts; e += BRING_THREADS) {
    counts[e] = before[e] = 0;
  }
  __syncthreads();
  /* Several threads share an expert, where there are as many. */
  const int each = experts < BRING_THREADS ? BRING_THREADS / experts : 1;
  for (int i = threadIdx.x; i < each * experts; i += BRING_THREADS) {
    const int e = i % experts;
    int32_t all = 0, own = 0;
#pragma unroll 8
    for (int piece = i / experts; piece < pieces; piece += each) {
      const int32_t count = r.pieces.chosen[(int64_t)piece * experts + e];
      all += count;
      own += piece < (int)blockIdx.x ? count : 0;
    }
    atomicAdd(&counts[e], all); /* of whole numbers: the order does not matter */
    atomicAdd(&before[e], own);
  }
  __syncthreads();
}

/* The chunks' sums, added as AUX_SUM_THREADS threads of a block would: each thread here stands for several. */
static __device__ __forceinline__ void add_loss(const route &r, int64_t chunks, double *shared) {
  constexpr int TURNS = AUX_SUM_THREADS / BRING_THREADS;
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
#pragma unroll
  for (int turn = 0; turn < TURNS; turn++) {
    double sum = 0.0;
    for (int64_t i = turn * BRING_THREADS + threadIdx.x; i < chunks; i += AUX_SUM_THREADS) {
      sum += r.pieces.partial[i];
    }
    sum = nn_warp_sum(sum);
    if (lane == 0) {
      shared[turn * MOVE_WARPS + warp] = sum;
    }
  }
  __syncthreads();
  if (warp == 0) {
    const double sum = nn_warp_sum(shared[lane]);
    if (lane == 0) {
      aux_loss_add(r.loss, sum, (double)r.plan.tokens, r.alpha);
    }
  }
}
static_assert(AUX_SUM_THREADS == NN_WARP * NN_WARP, "a number a lane in the end");

/* A warp brings a token to its rows, and makes zeros of the rows that have its slots' numbers where they are empty. */
template <class T, int N> static __device__ __forceinline__ void bring(const route &r, int64_t token, int32_t rows) {
  const int lane = threadIdx.x % NN_WARP;
  const int64_t k = r.plan.k, dim = r.dim;
  const T *const from = static_cast<const T *>(r.x) + token * dim;
  T *const y = static_cast<T *>(r.y);
  const int32_t *slot_row = r.plan.slot_row + token * k;
#pragma unroll 1
  for (int64_t first = lane * N; first < dim; first += MOVE_UNROLL * NN_WARP * N) {
    nn_moved<T, N> v[MOVE_UNROLL];
#pragma unroll
    for (int j = 0; j < MOVE_UNROLL; j++) {
      const int64_t i = first + j * NN_WARP * N;
      if (i < dim) {
        v[j] = *reinterpret_cast<const nn_moved<T, N> *>(from + i);
      }
    }
    for (int64_t s = 0; s < k; s++) {
      const int32_t row = slot_row[s];
      const int64_t empty = token * k + s;
#pragma unroll
      for (int j = 0; j < MOVE_UNROLL; j++) {
        const int64_t i = first + j * NN_WARP * N;
        if (i < dim && row >= 0) {
          nn_move<N>(y + row * dim + i, v[j]);
        }
        if (i < dim && empty >= rows) {
          nn_move<N>(y + empty * dim + i, nn_moved<T, N>{});
        }
      }
    }
  }
}

// sass: bring_kernel<nn_bf16, 8> on sm_90: at least 4 LDG.128 under way
template <class T, int N>
static __global__ void __launch_bounds__(BRING_THREADS, 4) bring_kernel(route r, bool wide_probs) {
  __shared__ int32_t counts[NN_ROUTE_EXPERTS], before[NN_ROUTE_EXPERTS], offsets[NN_ROUTE_EXPERTS + 1];
  __shared__ double sums[NN_WARP];
  __shared__ int32_t place_in_end;
  const int warp = threadIdx.x / NN_WARP, experts = (int)r.plan.experts;
  add_pieces(r, counts, before);
  const int64_t token = blockIdx.x * r.pieces.tokens,
                end = token + r.pieces.tokens < r.plan.tokens ? token + r.pieces.tokens : r.plan.tokens;
  if (warp == 0) {
    moe_offsets(counts, experts, r.limit, offsets);
    __syncwarp();
    moe_place(r.plan, token * r.plan.k, end * r.plan.k, r.limit, offsets, before);
  }
  __syncthreads();
  if (blockIdx.x == 0) {
    for (int e = threadIdx.x; e <= experts; e += BRING_THREADS) {
      r.plan.offsets[e] = offsets[e];
      if (e < experts) {
        r.plan.counts[e] = counts[e];
      }
    }
  }
  const int32_t rows = offsets[experts];
  for (int64_t t = token + warp; r.y != nullptr && t < end; t += MOVE_WARPS) {
    bring<T, N>(r, t, rows);
  }
  if (r.loss == nullptr) {
    return;
  }
  const int64_t n = r.plan.tokens * r.plan.experts, chunks = nn_ceil_div(n, AUX_CHUNK);
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    __syncthreads(); /* the sums before have been read */
    const double sum = wide_probs ? aux_loss_chunk<true>(r.probs, counts, n, experts, chunk, sums)
                                  : aux_loss_chunk<false>(r.probs, counts, n, experts, chunk, sums);
    if (threadIdx.x == 0) {
      r.pieces.partial[chunk] = sum;
    }
  }
  if (threadIdx.x == 0) {
    __threadfence(); /* the sums are there before this block counts as done */
    place_in_end = atomicAdd(r.pieces.done, 1);
  }
  __syncthreads();
  if (place_in_end == (int32_t)gridDim.x - 1) {
    __threadfence();
    add_loss(r, chunks, sums);
  }
}

template <class T> static int32_t choose(nncuda_ctx *ctx, const nn_moe_route_args *a, const nn_moe_route_pieces &p) {
  const router r = {a->logits, a->weights, a->indices, a->probs, a->tokens, a->experts, (int)a->k, a->norm};
  const bool wide = by_fours(r.cols, r.x, a->dtype_logits) && nn_aligned_16(r.probs);
  SWITCH_ROUTER(r.cols, wide, {
    if constexpr (!SHAPE::is_long) {
      const int64_t threads = nn_round_up(p.tokens * SHAPE::LANES, NN_WARP);
      return nn_launch(ctx, choose_kernel<T, SHAPE, WIDE>, dim3((unsigned)p.count),
                       dim3((unsigned)(threads < CHOOSE_THREADS ? threads : CHOOSE_THREADS)), 0, r, p);
    }
  });
  return NNCUDA_ERROR_INTERNAL; /* rows that long are not cut into pieces */
}

template <class T> static int32_t bring_launch(nncuda_ctx *ctx, const route &r, int32_t dtype) {
  const bool wide = nn_aligned_16(r.x, r.y) && nn_rows_16(r.dim, r.dim, dtype);
  return nn_launch(ctx, wide ? bring_kernel<T, nn_per_16<T>> : bring_kernel<T, 1>, dim3((unsigned)r.pieces.count),
                   dim3(BRING_THREADS), 0, r, nn_aligned_16(r.probs));
}

/* The calls that it stands for, one after the other. */
static int32_t route_by_parts(nncuda_ctx *ctx, const nn_moe_route_args *a) {
  const nn_softmax_topk_args choice = {a->logits,  a->weights, a->indices, a->probs,       a->tokens,
                                       a->experts, a->k,       a->norm,    a->dtype_logits};
  const nn_moe_plan_args plan = nn_moe_route_plan(a);
  const nn_moe_gather_args gather = {a->x, a->row_slot, a->y, a->tokens, a->k, a->dim, a->dtype};
  const nn_aux_loss_forward_args loss = {a->probs, a->counts, a->loss, a->tokens, a->experts, a->alpha};
  int32_t status = nn_cuda_softmax_topk(ctx, &choice);
  status = status != NNCUDA_SUCCESS ? status : nn_cuda_moe_plan(ctx, &plan);
  status = status != NNCUDA_SUCCESS || a->y == nullptr ? status : nn_cuda_moe_gather(ctx, &gather);
  return status != NNCUDA_SUCCESS || a->loss == nullptr ? status : nn_cuda_aux_loss_forward(ctx, &loss);
}

NN_KERNEL(moe_route) {
  if (a->experts > NN_ROUTE_EXPERTS) {
    return route_by_parts(ctx, a);
  }
  route r = {};
  r.plan = nn_moe_route_plan(a);
  r.pieces = nn_moe_route_lay_out(a, nn_workspace_of(ctx));
  r.x = a->x;
  r.y = a->y;
  r.dim = a->dim;
  const int64_t slots = a->tokens * a->k;
  r.limit = a->capacity == 0 || a->capacity > slots ? slots : a->capacity;
  r.probs = a->probs;
  r.loss = a->loss;
  r.alpha = (double)a->alpha;
  int32_t status = NNCUDA_SUCCESS;
  NN_SWITCH_FLOATS(a->dtype_logits, status = choose<T>(ctx, a, r.pieces));
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  NN_SWITCH_FLOATS(a->dtype, return bring_launch<T>(ctx, r, a->dtype));
}

NN_KERNEL(moe_route_backward) {
  return nn_router_backward(ctx,
                            {a->dweights, a->weights, a->indices, a->probs, nullptr, a->dlogits, a->tokens, a->experts,
                             (int)a->k, a->norm, a->counts, a->grad_scale, (double)a->alpha},
                            a->dtype);
}

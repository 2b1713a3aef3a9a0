/*
 * Mixture of experts: a stable counting sort of the slots by expert, and the moves between token order and row order.
 * Nothing of it is read by the host: the products that follow take their groups from offsets on the device.
 */
#include "kernels/moe.cuh"
#include "kernels/moe_workspace.h"

/* ---- moe_plan: count a piece of the slots a warp, scan the counts, place a piece a warp ---- */

/*
 * A piece is large enough that the counts of all pieces are no more than a quarter of the slots, and that one warp an
 * expert scans them in a few steps: 256 pieces for 32768 tokens of 4 experts. By count.
 */
constexpr int PLAN_WARPS = 4, SCAN_THREADS = 1024;

struct plan {
  nn_moe_plan_args a;
  int64_t slots, piece, pieces, limit;
  int32_t *ranks;   /* [experts, pieces]: slots of an expert in a piece; then the rank of the first of them */
  int32_t *running; /* [pieces, experts], where shared memory is too small for it; else null */
};

/* The counts that this warp keeps while it goes through its piece. */
static __device__ __forceinline__ int32_t *running_counts(const plan &p, unsigned char *shared, int64_t piece) {
  return p.running != nullptr ? p.running + piece * p.a.experts
                              : reinterpret_cast<int32_t *>(shared) + threadIdx.x / NN_WARP * p.a.experts;
}

static __global__ void __launch_bounds__(PLAN_WARPS *NN_WARP) count_kernel(plan p, nn_range range) {
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP;
  const int64_t piece = (int64_t)blockIdx.x * PLAN_WARPS + threadIdx.x / NN_WARP;
  if (piece >= p.pieces) {
    return;
  }
  int32_t *counts = running_counts(p, shared, piece);
  for (int64_t e = lane; e < p.a.experts; e += NN_WARP) {
    counts[e] = 0;
  }
  __syncwarp();
  const int64_t begin = piece * p.piece, end = begin + p.piece < p.slots ? begin + p.piece : p.slots;
  for (int64_t first = begin; first < end; first += NN_WARP) {
    const int64_t slot = first + lane;
    const int32_t expert = slot < end ? p.a.indices[slot] : -1;
    if (slot < end && range.holds(slot, expert)) {
      atomicAdd(&counts[expert], 1); /* of whole numbers: the order does not matter */
    }
  }
  __syncwarp();
  for (int64_t e = lane; e < p.a.experts; e += NN_WARP) {
    p.ranks[e * p.pieces + piece] = counts[e];
  }
}

/* One block: over the pieces of each expert, then over the experts. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(plan p) {
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  for (int64_t e = warp; e < p.a.experts; e += SCAN_THREADS / NN_WARP) {
    int32_t *ranks = p.ranks + e * p.pieces, before = 0;
    for (int64_t first = 0; first < p.pieces; first += NN_WARP) {
      const int64_t i = first + lane;
      int32_t total;
      const int32_t rank = scan_warp(i < p.pieces ? ranks[i] : 0, &total);
      if (i < p.pieces) {
        ranks[i] = before + rank;
      }
      before += total;
    }
    if (lane == 0) {
      p.a.counts[e] = before;
    }
  }
  __syncthreads();
  if (warp == 0) {
    moe_offsets(p.a.counts, p.a.experts, p.limit, p.a.offsets);
  }
}

static __global__ void __launch_bounds__(PLAN_WARPS *NN_WARP) place_kernel(plan p) {
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP;
  const int64_t piece = (int64_t)blockIdx.x * PLAN_WARPS + threadIdx.x / NN_WARP;
  if (piece >= p.pieces) {
    return;
  }
  int32_t *ranks = running_counts(p, shared, piece);
  for (int64_t e = lane; e < p.a.experts; e += NN_WARP) {
    ranks[e] = p.ranks[e * p.pieces + piece];
  }
  __syncwarp();
  const int64_t begin = piece * p.piece, end = begin + p.piece < p.slots ? begin + p.piece : p.slots;
  moe_place(p.a, begin, end, p.limit, p.a.offsets, ranks);
}

NN_KERNEL(moe_plan) {
  plan p = {};
  p.a = *a;
  p.slots = p.a.tokens * p.a.k;
  p.limit = p.a.capacity == 0 || p.a.capacity > p.slots ? p.slots : p.a.capacity;
  const nn_moe_pieces pieces = nn_moe_plan_lay_out(&p.a, nn_workspace_of(ctx));
  p.piece = pieces.slots;
  p.pieces = pieces.count;
  p.ranks = pieces.ranks;
  p.running = pieces.running;
  const size_t shared = p.running != nullptr ? 0 : (size_t)p.a.experts * PLAN_WARPS * sizeof(int32_t);
  const dim3 grid((unsigned)nn_ceil_div(p.pieces, PLAN_WARPS)), block(PLAN_WARPS * NN_WARP);
  int32_t status = nn_launch(ctx, count_kernel, grid, block, shared, p,
                             nn_range_of(ctx, "indices", 0, p.a.experts - 1).in_rows_of(p.a.k));
  if (status == NNCUDA_SUCCESS) {
    status = nn_launch(ctx, scan_kernel, dim3(1), dim3(SCAN_THREADS), 0, p);
  }
  return status != NNCUDA_SUCCESS ? status : nn_launch(ctx, place_kernel, grid, block, shared, p);
}

/* ---- the moves ---- */

static unsigned move_blocks(nncuda_ctx *ctx, int64_t rows) {
  return nn_blocks(ctx, rows, MOVE_WARPS, MOVE_BLOCKS_PER_SM);
}

/* This warp's first row, and how far it is to its next one. */
static __device__ __forceinline__ int64_t first_row() {
  return (int64_t)blockIdx.x * MOVE_WARPS + threadIdx.x / NN_WARP;
}
static __device__ __forceinline__ int64_t row_step() { return (int64_t)gridDim.x * MOVE_WARPS; }

// sass: gather_kernel<nn_bf16, 8> on sm_90: at least 3 LDG.128 under way
template <class T, int N>
static __global__ void __launch_bounds__(MOVE_WARPS *NN_WARP, 4) gather_kernel(nn_moe_gather_args a, nn_range range) {
  const int lane = threadIdx.x % NN_WARP;
  const T *x = static_cast<const T *>(a.x);
  T *y = static_cast<T *>(a.y);
  for (int64_t row = first_row(); row < a.tokens * a.k; row += row_step()) {
    const int32_t slot = a.row_slot[row];
    const bool empty = slot == -1;
    if (!empty && !range.holds(row, slot)) {
      continue;
    }
    T *const to = y + row * a.dim;
    if (empty) {
      for (int64_t i = lane * N; i < a.dim; i += NN_WARP * N) {
        nn_move<N>(to + i, nn_moved<T, N>{});
      }
      continue;
    }
    const T *const from = x + slot / a.k * a.dim;
#pragma unroll 1
    for (int64_t first = lane * N; first < a.dim; first += MOVE_UNROLL * NN_WARP * N) {
      nn_moved<T, N> v[MOVE_UNROLL];
#pragma unroll
      for (int j = 0; j < MOVE_UNROLL; j++) {
        const int64_t i = first + j * NN_WARP * N;
        if (i < a.dim) {
          v[j] = *reinterpret_cast<const nn_moved<T, N> *>(from + i);
        }
      }
#pragma unroll
      for (int j = 0; j < MOVE_UNROLL; j++) {
        const int64_t i = first + j * NN_WARP * N;
        if (i < a.dim) {
          nn_move<N>(to + i, v[j]);
        }
      }
    }
  }
}

template <class T> static int32_t gather_launch(nncuda_ctx *ctx, const nn_moe_gather_args *a) {
  const bool wide = nn_aligned_16(a->x, a->y) && nn_rows_16(a->dim, a->dim, a->dtype);
  return nn_launch(ctx, wide ? gather_kernel<T, nn_per_16<T>> : gather_kernel<T, 1>,
                   dim3(move_blocks(ctx, a->tokens * a->k)), dim3(MOVE_WARPS * NN_WARP), 0, *a,
                   nn_range_of(ctx, "row_slot", -1, a->tokens * a->k - 1));
}

NN_KERNEL(moe_gather) { NN_SWITCH_FLOATS(a->dtype, return gather_launch<T>(ctx, a)); }

/* moe_combine and moe_gather_backward: a token is the weighted sum of its rows. */
struct row_sum {
  const void *rows;
  const float *weights; /* null for a plain sum */
  const int32_t *slot_row;
  const void *residual; /* null for none */
  void *out;
  int64_t tokens, k, dim;
};

template <class T, int N, bool WEIGHED>
static __global__ void __launch_bounds__(MOVE_WARPS *NN_WARP, 4) sum_kernel(row_sum p, nn_range range) {
  const int lane = threadIdx.x % NN_WARP;
  const T *rows = static_cast<const T *>(p.rows), *residual = static_cast<const T *>(p.residual);
  for (int64_t token = first_row(); token < p.tokens; token += row_step()) {
    const int32_t *slot_row = p.slot_row + token * p.k;
    for (int64_t i = lane * N; i < p.dim; i += NN_WARP * N) {
      float sum[N] = {};
      for (int64_t first = 0; first < p.k; first += MOVE_UNROLL) {
        int32_t row[MOVE_UNROLL];
        nn_vector<T, N> raw[MOVE_UNROLL];
        float weight[MOVE_UNROLL];
#pragma unroll
        for (int j = 0; j < MOVE_UNROLL; j++) {
          row[j] = first + j < p.k ? slot_row[first + j] : -1;
        }
#pragma unroll
        for (int j = 0; j < MOVE_UNROLL; j++) {
          if (row[j] >= 0 && row[j] <= range.high) {
            raw[j] = nn_load_raw<N>(rows + row[j] * p.dim + i);
            weight[j] = WEIGHED ? p.weights[token * p.k + first + j] : 1.0f;
          }
        }
#pragma unroll
        for (int j = 0; j < MOVE_UNROLL; j++) {
          if (row[j] == -1 || !range.holds(token * p.k + first + j, row[j])) {
            continue;
          }
          float x[N];
          nn_widen(x, raw[j]);
#pragma unroll
          for (int e = 0; e < N; e++) {
            sum[e] = WEIGHED ? fmaf(weight[j], x[e], sum[e]) : sum[e] + x[e];
          }
        }
      }
      if (residual != nullptr) {
        float x[N];
        nn_load(x, residual + token * p.dim + i);
#pragma unroll
        for (int e = 0; e < N; e++) {
          sum[e] = x[e] + sum[e];
        }
      }
      nn_store(static_cast<T *>(p.out) + token * p.dim + i, sum);
    }
  }
}

template <class T> static int32_t sum_launch(nncuda_ctx *ctx, const row_sum &p, int32_t dtype) {
  constexpr int N = nn_per_16<T>;
  const bool wide = nn_aligned_16(p.rows, p.residual, p.out) && nn_rows_16(p.dim, p.dim, dtype);
  const auto kernel = p.weights != nullptr ? (wide ? sum_kernel<T, N, true> : sum_kernel<T, 1, true>)
                                           : (wide ? sum_kernel<T, N, false> : sum_kernel<T, 1, false>);
  return nn_launch(ctx, kernel, dim3(move_blocks(ctx, p.tokens)), dim3(MOVE_WARPS * NN_WARP), 0, p,
                   nn_range_of(ctx, "slot_row", -1, p.tokens * p.k - 1));
}

NN_KERNEL(moe_gather_backward) {
  const row_sum p = {a->dy, nullptr, a->slot_row, nullptr, a->dx, a->tokens, a->k, a->dim};
  NN_SWITCH_FLOATS(a->dtype, return sum_launch<T>(ctx, p, a->dtype));
}

NN_KERNEL(moe_combine) {
  const row_sum p = {a->y, a->weights, a->slot_row, a->residual, a->out, a->tokens, a->k, a->dim};
  NN_SWITCH_FLOATS(a->dtype, return sum_launch<T>(ctx, p, a->dtype));
}

template <class T, int N>
static __global__ void __launch_bounds__(MOVE_WARPS *NN_WARP, 4)
    combine_backward_kernel(nn_moe_combine_backward_args a, inverse_maps maps) {
  for (int64_t slot = first_row(); slot < a.tokens * a.k; slot += row_step()) {
    combine_backward_slot<T, N>(a, maps, slot);
  }
}

template <class T> static int32_t combine_backward_launch(nncuda_ctx *ctx, const nn_moe_combine_backward_args *a) {
  const int64_t slots = a->tokens * a->k;
  const bool wide = nn_aligned_16(a->dout, a->y, a->dy) && nn_rows_16(a->dim, a->dim, a->dtype);
  return nn_launch(ctx, wide ? combine_backward_kernel<T, nn_per_16<T>> : combine_backward_kernel<T, 1>,
                   dim3(move_blocks(ctx, slots)), dim3(MOVE_WARPS * NN_WARP), 0, *a, inverse_maps_of(ctx, slots));
}

NN_KERNEL(moe_combine_backward) { NN_SWITCH_FLOATS(a->dtype, return combine_backward_launch<T>(ctx, a)); }

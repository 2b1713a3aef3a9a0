/* What moe.cu, moe_route.cu and moe_output.cu share: where rows begin, which row a slot takes, how rows are moved, and
 * the gradient of a slot's output. */
#ifndef NN_KERNELS_MOE_CUH
#define NN_KERNELS_MOE_CUH

#include "abi/generated/moe.h"
#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

/* Sum of the lanes before this one; `total` is that of all. */
static __device__ __forceinline__ int32_t scan_warp(int32_t x, int32_t *total) {
  const int32_t sum = nn_warp_scan(x);
  *total = __shfl_sync(NN_ALL_LANES, sum, NN_WARP - 1);
  return sum - x;
}

/* The first row of each expert, from their counts, of which at most `limit` are kept. A whole warp calls it. */
__device__ __forceinline__ void moe_offsets(const int32_t *counts, int64_t experts, int64_t limit, int32_t *offsets) {
  const int lane = threadIdx.x % NN_WARP;
  int32_t before = 0;
  for (int64_t first = 0; first < experts; first += NN_WARP) {
    const int64_t e = first + lane;
    const int32_t count = e < experts ? counts[e] : 0;
    int32_t total;
    const int32_t offset = scan_warp(count < limit ? count : (int32_t)limit, &total);
    if (e < experts) {
      offsets[e] = before + offset;
    }
    before += total;
  }
  if (lane == 0) {
    offsets[experts] = before;
  }
}

/* Gives the slots begin .. end - 1 their rows. `ranks`: how many slots of each expert come before, and, afterwards, how
 * many have come. A whole warp calls it. */
__device__ __forceinline__ void moe_place(const nn_moe_plan_args &a, int64_t begin, int64_t end, int64_t limit,
                                          const int32_t *offsets, int32_t *ranks) {
  const int lane = threadIdx.x % NN_WARP;
  const int32_t rows = offsets[a.experts];
  for (int64_t first = begin; first < end; first += NN_WARP) {
    const int64_t slot = first + lane;
    const int32_t expert = slot < end ? a.indices[slot] : -1;
    const bool counted = expert >= 0 && expert < a.experts;
    /* Slots of one expert keep their order: those of lower lanes come first. */
    const unsigned same = __match_any_sync(NN_ALL_LANES, expert);
    const int32_t rank = counted ? ranks[expert] + __popc(same & ((1u << lane) - 1)) : 0;
    __syncwarp();
    if (counted && (same >> lane) == 1) { /* the last of them */
      ranks[expert] = rank + 1;
    }
    __syncwarp();
    if (slot < end) {
      const bool kept = counted && rank < limit;
      const int32_t row = kept ? offsets[expert] + rank : -1;
      a.slot_row[slot] = row;
      if (kept) {
        a.row_slot[row] = (int32_t)slot;
      }
      if (slot >= rows) { /* as many rows as slots: this one stays empty */
        a.row_slot[slot] = -1;
      }
    }
  }
}

/* ---- moves: a warp a row or token, 16 bytes a lane at a time, of which MOVE_UNROLL are under way ---- */

constexpr int MOVE_WARPS = 8, MOVE_BLOCKS_PER_SM = 8, MOVE_UNROLL = 4;

/* ---- moe_combine_backward ---- */

/* What the maps of moe_combine_backward must be: ranges, and each other's inverse, so that a row has one slot alone. */
struct inverse_maps {
  nn_range slot_row, row_slot;
  nn_rule inverse;

  /* Else its own slot or row reports the entry, by its range. */
  __device__ bool within(int32_t entry) const { return entry >= slot_row.low && entry <= slot_row.high; }
};

/* Slot `slot` by a warp; and, since there are as many rows as slots, the row of the same number where that is empty. dy
 * may be y: each lane reads what it overwrites before it does. */
template <class T, int N>
__device__ __forceinline__ void combine_backward_slot(const nn_moe_combine_backward_args &a, const inverse_maps &maps,
                                                      int64_t slot) {
  const int lane = threadIdx.x % NN_WARP;
  T *dy = static_cast<T *>(a.dy);
  const int32_t back = a.row_slot[slot];
  if (back == -1) {
    for (int64_t i = lane * N; i < a.dim; i += NN_WARP * N) {
      nn_move<N>(dy + slot * a.dim + i, nn_moved<T, N>{});
    }
  } else if (maps.row_slot.holds(slot, back) && a.slot_row[back] != slot && maps.within(a.slot_row[back])) {
    maps.inverse.broken_by(slot, back);
  }
  const int32_t row = a.slot_row[slot];
  float dot = 0.0f;
  if (row != -1 && maps.slot_row.holds(slot, row)) {
    if (a.row_slot[row] != slot) {
      if (maps.within(a.row_slot[row])) {
        maps.inverse.broken_by(row, a.row_slot[row]);
      }
      return; /* the whole warp */
    }
    const T *dout = static_cast<const T *>(a.dout) + slot / a.k * a.dim, *y = static_cast<const T *>(a.y) + row * a.dim;
    const float weight = a.weights[slot];
    constexpr int PAIRS = MOVE_UNROLL / 2;
    for (int64_t first = lane * N; first < a.dim; first += PAIRS * NN_WARP * N) {
      nn_vector<T, N> p[PAIRS], q[PAIRS];
#pragma unroll
      for (int j = 0; j < PAIRS; j++) {
        const int64_t i = first + j * NN_WARP * N;
        if (i < a.dim) {
          p[j] = nn_load_raw<N>(dout + i);
          q[j] = nn_load_raw<N>(y + i);
        }
      }
#pragma unroll
      for (int j = 0; j < PAIRS; j++) {
        const int64_t i = first + j * NN_WARP * N;
        if (i < a.dim) {
          float u[N], v[N];
          nn_widen(u, p[j]);
          nn_widen(v, q[j]);
#pragma unroll
          for (int e = 0; e < N; e++) {
            dot = fmaf(u[e], v[e], dot);
            u[e] *= weight;
          }
          nn_store(dy + row * a.dim + i, u);
        }
      }
    }
  }
  dot = nn_warp_sum(dot);
  if (lane == 0) {
    a.dweights[slot] = dot;
  }
}

inline inverse_maps inverse_maps_of(nncuda_ctx *ctx, int64_t slots) {
  return {nn_range_of(ctx, "slot_row", -1, slots - 1), nn_range_of(ctx, "row_slot", -1, slots - 1),
          nn_rule_of(ctx, "row_slot", "the slot whose row this is: slot_row and row_slot are inverse")};
}

#endif

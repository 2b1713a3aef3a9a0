/* What moe.cu and moe_route.cu share: where rows begin, which row a slot takes, and how rows are moved. */
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

#endif

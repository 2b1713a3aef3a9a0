/*
 * How products of one row of x share out the rows of weights that stream through shared memory (quant_gemm_stream.cu,
 * quant_gemm_stream_dtype.cu).
 */
#ifndef NN_KERNELS_QUANT_STREAM_CUH
#define NN_KERNELS_QUANT_STREAM_CUH

#include "kernels/instructions_copy.cuh"
#include "kernels/quant_gemm.cuh"

/* Two blocks a multiprocessor, and room for those of the next kernel, whose weights come meanwhile. By count. */
constexpr int STREAM_WARPS = 8, STREAM_THREADS = STREAM_WARPS * NN_WARP, STREAM_BLOCKS_PER_SM = 2;
constexpr int STREAM_ROWS = 4;              /* of a stage: their sums share what a warp waits for */
constexpr int STREAM_RING_BYTES = 56 << 10; /* of a block, as far as two stages need no more */

/* The ring of a warp, where a stage has BYTES of each row: the runs of 16 bytes that these touch, since rows begin at
 * one, but parts of them perhaps not. */
template <int BYTES> struct stream_ring {
  static constexpr int ROW = (BYTES / 16 + (BYTES % 16 == 0 ? 0 : 2)) * 16, STAGE = STREAM_ROWS * ROW;
  static constexpr int FIT = STREAM_RING_BYTES / (STREAM_WARPS * STAGE), STAGES = FIT < 2 ? 2 : FIT > 4 ? 4 : FIT;
  static constexpr int all = STREAM_WARPS * STAGES * STAGE; /* of a block */
};

/* How the rows of all matrices are cut: groups of `each` columns, of one row of weights or, with a gate, two. */
struct stream_plan {
  int32_t each, groups;
};

/* Some columns of y, which a warp makes together, and the rows of a stage that they take. */
struct stream_group {
  int32_t which, column, columns, rows;

  __device__ __forceinline__ stream_group(const quant_product &p, const stream_plan &plan, int32_t group)
      : which(quant_matrix_of(p, group)) {
    const quant_weights &matrix = p.matrix[which];
    column = (group - (int32_t)matrix.first_tile) * plan.each;
    const int32_t left = (int32_t)matrix.n - column;
    columns = left < plan.each ? left : plan.each;
    rows = p.combine == NN_QUANT_SWIGLU ? 2 * plan.each : columns;
  }
};

/* The way of a warp through its work: a stage's columns of x after another, of one group after another. */
struct stream_place {
  int32_t group, step;

  static __device__ __forceinline__ stream_place first() {
    return {(int32_t)(threadIdx.x / NN_WARP * gridDim.x + blockIdx.x), 0};
  }
  /* Whether a group ends. */
  __device__ __forceinline__ bool next(int32_t steps) {
    step++;
    if (step < steps) {
      return false;
    }
    step = 0;
    group += (int32_t)gridDim.x * STREAM_WARPS;
    return true;
  }
};

/* The row of the weights that a row of a stage has; null where there is none. */
__device__ __forceinline__ const uint8_t *stream_row(const quant_product &p, const stream_plan &plan, int32_t group,
                                                     int r) {
  if (group >= plan.groups) {
    return nullptr;
  }
  const stream_group some(p, plan, group);
  const int column = r < plan.each ? r : r - plan.each;
  const quant_weights &matrix = p.matrix[some.which + (r < plan.each ? 0 : p.combine)];
  return r < some.rows && column < some.columns ? matrix.w + (int64_t)(some.column + column) * matrix.row_bytes
                                                : nullptr;
}

/* The copies of a warp's stages. Eight lanes have a row, of which they copy 128 bytes at a time. What a block runs once
 * is short: it waits for each instruction. */
template <int BYTES> struct stream_copies {
  using R = stream_ring<BYTES>;
  static constexpr int LANES = NN_WARP / STREAM_ROWS;
  const quant_product &p;
  const stream_plan &plan;
  const int32_t bytes, steps; /* of a row; stages of a group */
  stream_place place;
  const uint8_t *row; /* the lane's; null where there is none */

  __device__ __forceinline__ stream_copies(const quant_product &product, const stream_plan &cut, int32_t row_bytes,
                                           int32_t stages)
      : p(product), plan(cut), bytes(row_bytes), steps(stages), place(stream_place::first()), row(nullptr) {}
  static __device__ __forceinline__ int row_of_lane() { return threadIdx.x % NN_WARP / LANES; }

  /* Starts the next stage, and closes its group. */
  __device__ __forceinline__ void next(unsigned char *stage) {
    if (place.step == 0) {
      row = stream_row(p, plan, place.group, row_of_lane());
    }
    if (row != nullptr) {
      const int from = place.step * BYTES, skip = from % 16;
      const int left = bytes - from, here = skip + (left < BYTES ? left : BYTES);
      const int lane = threadIdx.x % LANES * 16;
      const uint8_t *const source = row + (from - skip + lane);
      const uint32_t to = nn_shared_address(stage + row_of_lane() * R::ROW + lane);
#pragma unroll
      for (int at = 0; at < R::ROW; at += LANES * 16) {
        if (at + lane < here) {
          nn_copy_async<16>(to + at, source + at);
        }
      }
    }
    nn_copy_async_commit();
    place.next(steps);
  }
};

/* What lane r has the sum of row r of a stage for. */
__device__ __forceinline__ void stream_finish(const quant_product &p, const stream_plan &plan,
                                              const stream_group &group, float sum) {
  const int lane = threadIdx.x % NN_WARP;
  float x = sum;
  if (p.combine == NN_QUANT_SWIGLU) {
    x = __shfl_sync(NN_ALL_LANES, sum, (lane + plan.each) % NN_WARP) * quant_silu(sum);
  }
  if (lane < group.columns) {
    quant_finish(p, 0, p.matrix[group.which].column + group.column + lane, x);
  }
}

/* Brings the gains of the norm to the second cache: no kernel of a decoding step writes them. */
__device__ __forceinline__ void stream_prefetch_gains(const quant_product &p) {
  constexpr int LINE = 128 / sizeof(float);
  for (int64_t i = threadIdx.x * LINE; p.norm != nullptr && i < p.k; i += STREAM_THREADS * LINE) {
    nn_prefetch(p.norm + i);
  }
}

/* Starts a kernel, which takes the product and the plan. */
template <class KERNEL> inline int32_t stream_start(nncuda_ctx *ctx, KERNEL kernel, quant_product &p, size_t shared) {
  const int64_t blocks = (int64_t)nn_gpu_sms(ctx) * STREAM_BLOCKS_PER_SM;
  const int64_t most = p.combine == NN_QUANT_SWIGLU ? STREAM_ROWS / 2 : STREAM_ROWS;
  const int64_t wanted = nn_ceil_div(quant_column_tiles(p, 1), blocks * STREAM_WARPS);
  const int64_t each = wanted < most ? wanted : most, groups = quant_column_tiles(p, each);
  const int64_t filled = nn_ceil_div(groups, STREAM_WARPS);
  return nn_launch_ahead(ctx, kernel, dim3((unsigned)(filled < blocks ? filled : blocks)), dim3(STREAM_THREADS), shared,
                         p, {(int32_t)each, (int32_t)groups});
}

#endif

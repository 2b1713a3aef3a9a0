/*
 * How products of one row of x share out the rows of weights that stream through shared memory (quant_gemm_stream.cu,
 * quant_gemm_stream_dtype.cu).
 */
#ifndef NN_KERNELS_QUANT_STREAM_CUH
#define NN_KERNELS_QUANT_STREAM_CUH

#include "kernels/quant_gemm.cuh"

/* Two blocks a multiprocessor, and room for those of the next kernel, whose weights come meanwhile. By count. */
constexpr int STREAM_WARPS = 8, STREAM_THREADS = STREAM_WARPS * NN_WARP, STREAM_BLOCKS_PER_SM = 2;
constexpr int STREAM_ROWS = 4;              /* of a stage: their sums share what a warp waits for */
constexpr int STREAM_RING_BYTES = 56 << 10; /* of a block, as far as two stages need no more */

/* Stages of so many bytes that the ring of a warp has. */
constexpr int stream_stages(int bytes) {
  const int fit = STREAM_RING_BYTES / (STREAM_WARPS * bytes);
  return fit < 2 ? 2 : fit > 4 ? 4 : fit;
}

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

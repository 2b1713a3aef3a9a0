/* One vector for the rows of a text: their sum, in the order of the rows, brought to length 1. */
#include "abi/generated/embedding.h"

#include "kernels/reduce.cuh"

/* A column a thread, which has so many rows under way at once: by count, for rows of some thousand columns. */
constexpr int THREADS = 64, UNROLL = 16;
constexpr int UNIT_THREADS = 512; /* of the one block: by count */

/* ---- pool_rows ---- */

/* Adds to a sum of two f32. Only additions: nothing can be contracted. */
static __device__ __forceinline__ void add_exactly(float &nearest, float &rest, float x) {
  const float s = nearest + x, added = s - nearest;
  const float error = ((nearest - (s - added)) + (x - added)) + rest;
  nearest = s + error;
  rest = error - (nearest - s);
}

__global__ void __launch_bounds__(THREADS) pool_rows_kernel(const float *x, float *sum, int64_t rows, int64_t dim) {
  const int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (column >= dim) {
    return;
  }
  float nearest = sum[column], rest = sum[dim + column];
  for (int64_t first = 0; first < rows; first += UNROLL) {
    float some[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      some[u] = first + u < rows ? x[(first + u) * dim + column] : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (first + u < rows) {
        add_exactly(nearest, rest, some[u]);
      }
    }
  }
  sum[column] = nearest;
  sum[dim + column] = rest;
}

NN_KERNEL(pool_rows) {
  return nn_launch(ctx, pool_rows_kernel, dim3((unsigned)nn_ceil_div(a->dim, THREADS)), dim3(THREADS), 0, a->x, a->sum,
                   a->rows, a->dim);
}

/* ---- pool_unit ---- */

__global__ void __launch_bounds__(UNIT_THREADS) pool_unit_kernel(const float *sum, float *y, int64_t dim) {
  __shared__ double shared[UNIT_THREADS / NN_WARP];
  double squares = 0.0; /* of f32: neither too large nor too small for an f64 */
  for (int64_t i = threadIdx.x; i < dim; i += UNIT_THREADS) {
    const double s = (double)sum[i] + (double)sum[dim + i];
    squares += s * s;
  }
  squares = nn_block_sum<UNIT_THREADS>(squares, shared);
  const double length = squares == 0.0 ? 1.0 : sqrt(squares);
  for (int64_t i = threadIdx.x; i < dim; i += UNIT_THREADS) {
    y[i] = (float)(((double)sum[i] + (double)sum[dim + i]) / length);
  }
}

NN_KERNEL(pool_unit) { return nn_launch(ctx, pool_unit_kernel, dim3(1), dim3(UNIT_THREADS), 0, a->sum, a->y, a->dim); }

#include "abi/softmax.h"

#include "kernels/softmax_row.cuh"

/* ---- softmax ---- */

/* y may be x. */
template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) softmax_kernel(const T *x, T *y, int64_t rows, int64_t cols) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float largest_of[NN_WARP], sum_of[NN_WARP];
  const int lane = threadIdx.x % LANES;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES;
    const T *from = x + row * cols;
    T *to = y + row * cols;
    if constexpr (SHAPE::form == NN_ROW_LONG) {
      nn_softmax_long_row<T, LANES, VECTORS, N, WIDE>(from, to, cols, largest_of, sum_of);
    } else {
      const int64_t end = row < rows ? cols : 0; /* rows that there are not are empty */
      float values[VECTORS][N];
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], from, (v * LANES + lane) * N, end, -INFINITY);
      }
      nn_softmax_row<T, LANES>(values, largest_of, sum_of);
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_store<WIDE>(to, (v * LANES + lane) * N, end, values[v]);
      }
    }
  }
}

template <class T> static int32_t softmax_launch(nncuda_ctx *ctx, const nn_softmax_args *a) {
  const bool wide = nn_aligned_16(a->x, a->y) && nn_rows_16(a->cols, a->cols, a->dtype);
  NN_SWITCH_ROWS(a->cols, a->dtype, wide,
                 return nn_launch(ctx, softmax_kernel<T, SHAPE, WIDE>, dim3(nn_row_blocks(a->rows, SHAPE::ROWS)),
                                  dim3(SHAPE::THREADS), 0, static_cast<const T *>(a->x), static_cast<T *>(a->y),
                                  a->rows, a->cols));
}

NN_KERNEL(softmax) { NN_SWITCH_FLOATS(a->dtype, return softmax_launch<T>(ctx, a)); }

/* ---- softmax_backward ---- */

/* dx may be dy. */
template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS)
    softmax_backward_kernel(const T *dy, const T *y, T *dx, int64_t rows, int64_t cols) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float shared[2][NN_WARP]; /* in turn, so that one row need not wait for the one before */
  const int lane = threadIdx.x % LANES;
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES, end = row < rows ? cols : 0;
    const T *gradient = dy + row * cols, *output = y + row * cols;
    T *to = dx + row * cols;
    float g[VECTORS][N], p[VECTORS][N];
    const auto load = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(g[v], gradient, at + (v * LANES + lane) * N, end, 0.0f);
        nn_row_load<WIDE>(p[v], output, at + (v * LANES + lane) * N, end, 0.0f);
      }
    };
    nn_softmax_gradient<LANES, SHAPE::form == NN_ROW_LONG, WIDE>(g, p, load, to, end, shared[turn]);
    turn ^= 1;
  }
}

template <class T> static int32_t backward_launch(nncuda_ctx *ctx, const nn_softmax_backward_args *a) {
  const bool wide = nn_aligned_16(a->dy, a->y, a->dx) && nn_rows_16(a->cols, a->cols, a->dtype);
  NN_SWITCH_ROWS(a->cols, a->dtype, wide,
                 return nn_launch(ctx, softmax_backward_kernel<T, SHAPE, WIDE>,
                                  dim3(nn_row_blocks(a->rows, SHAPE::ROWS)), dim3(SHAPE::THREADS), 0,
                                  static_cast<const T *>(a->dy), static_cast<const T *>(a->y), static_cast<T *>(a->dx),
                                  a->rows, a->cols));
}

NN_KERNEL(softmax_backward) { NN_SWITCH_FLOATS(a->dtype, return backward_launch<T>(ctx, a)); }

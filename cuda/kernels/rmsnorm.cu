#include "kernels/norm_row.cuh"
#include "kernels/rmsnorm_workspace.h"

/* ---- forward: of x, or of x + residual, which is kept in `sum` ---- */

struct forward {
  const void *x, *residual, *weight;
  void *sum, *y;
  float *rstd;
  int64_t rows, cols;
  float eps;
};

/* y may be x; sum may be x or residual. */
template <class T, class SHAPE, bool WIDE, bool RESIDUAL>
__global__ void __launch_bounds__(SHAPE::THREADS) rmsnorm_kernel(forward a) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float shared[2][NN_WARP]; /* in turn, so that one row need not wait for the one before */
  const int lane = threadIdx.x % LANES;
  const T *weight = static_cast<const T *>(a.weight);
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES, end = row < a.rows ? a.cols : 0;
    const T *x = static_cast<const T *>(a.x) + row * a.cols;
    T *y = static_cast<T *>(a.y) + row * a.cols;
    float values[VECTORS][N], squares = 0.0f;
    const auto square = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], x, at + (v * LANES + lane) * N, end, 0.0f);
      }
      if constexpr (RESIDUAL) {
        const T *residual = static_cast<const T *>(a.residual) + row * a.cols;
        T *sum = static_cast<T *>(a.sum) + row * a.cols;
        float other[VECTORS][N];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
          nn_row_load<WIDE>(other[v], residual, at + (v * LANES + lane) * N, end, 0.0f);
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
          for (int e = 0; e < N; e++) { /* as it is rounded, for that is what the backward call will see */
            values[v][e] = nn_rounded<T>(values[v][e] + other[v][e]);
          }
          nn_row_store<WIDE>(sum, at + (v * LANES + lane) * N, end, values[v]);
        }
      }
      nn_rms_square(squares, values);
    };
    const auto store = [&](int64_t at, float rstd) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        float gain[N];
        nn_row_load<WIDE>(gain, weight, at + (v * LANES + lane) * N, end, 0.0f);
        nn_rms_apply(values[v], rstd, gain);
        nn_row_store<WIDE>(y, at + (v * LANES + lane) * N, end, values[v]);
      }
    };
    const auto rstd_of = [&] { return nn_rms_rstd<LANES>(squares, a.cols, a.eps, shared[turn]); };
    float rstd;
    if constexpr (SHAPE::form != NN_ROW_LONG) {
      square(0);
      rstd = rstd_of();
      store(0, rstd);
    } else {
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        square(at);
      }
      rstd = rstd_of();
      const T *again = RESIDUAL ? static_cast<const T *>(a.sum) + row * a.cols : x;
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
          nn_row_load<WIDE>(values[v], again, at + (v * LANES + lane) * N, end, 0.0f);
        }
        store(at, rstd);
      }
    }
    if (lane == 0 && end > 0 && a.rstd != nullptr) {
      a.rstd[row] = rstd;
    }
    turn ^= 1;
  }
}

template <bool RESIDUAL, class T> static int32_t forward_launch(nncuda_ctx *ctx, const forward &a, int32_t dtype) {
  const bool wide = nn_aligned_16(a.x, a.residual, a.weight, a.sum, a.y) && nn_rows_16(a.cols, a.cols, dtype);
  NN_SWITCH_ROWS(a.cols, dtype, wide,
                 return nn_launch(ctx, rmsnorm_kernel<T, SHAPE, WIDE, RESIDUAL>,
                                  dim3(nn_row_blocks(a.rows, SHAPE::ROWS)), dim3(SHAPE::THREADS), 0, a));
}

NN_KERNEL(rmsnorm) {
  const forward f = {a->x, nullptr, a->weight, nullptr, a->y, a->rstd, a->rows, a->cols, a->eps};
  NN_SWITCH_FLOATS(a->dtype, return (forward_launch<false, T>(ctx, f, a->dtype)));
}

NN_KERNEL(rmsnorm_residual) {
  const forward f = {a->x, a->residual, a->weight, a->sum, a->y, a->rstd, a->rows, a->cols, a->eps};
  NN_SWITCH_FLOATS(a->dtype, return (forward_launch<true, T>(ctx, f, a->dtype)));
}

/* ---- backward ---- */

/*
 * dweight is a sum over rows, which rmsnorm_workspace.h cuts into pieces: a block takes a piece, its threads add up
 * their own columns in registers, row by row, and leave the sums in scratch memory; a second kernel adds the pieces in
 * order.
 */
struct backward {
  const void *dy, *x, *weight;
  const float *rstd;
  const void *dresidual;
  void *dx;
  float *partial; /* [pieces, cols] */
  int64_t rows, cols, piece;
};

/* dx may be dy or dresidual. */
template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) rmsnorm_backward_kernel(backward a) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS, ROWS = SHAPE::ROWS;
  constexpr bool whole = SHAPE::form != NN_ROW_LONG; /* a row is in registers, and so are the sums over rows */
  __shared__ float shared[2][NN_WARP];
  __shared__ float sums[whole && ROWS > 1 ? LANES * VECTORS * N : 1];
  const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
  const int64_t begin = blockIdx.x * a.piece, stop = begin + a.piece < a.rows ? begin + a.piece : a.rows;
  const T *weight = static_cast<const T *>(a.weight);
  float *partial = a.partial + blockIdx.x * a.cols;
  float total[VECTORS][N] = {};
  int turn = 0;
  for (int64_t first = begin; first < stop; first += ROWS) {
    const int64_t row = first + group, end = row < stop ? a.cols : 0;
    const T *dy = static_cast<const T *>(a.dy) + row * a.cols, *x = static_cast<const T *>(a.x) + row * a.cols;
    T *dx = static_cast<T *>(a.dx) + row * a.cols;
    const float rstd = end > 0 ? a.rstd[row] : 0.0f;
    float g[VECTORS][N], xhat[VECTORS][N], dot = 0.0f;
    const auto load = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(g[v], dy, at + (v * LANES + lane) * N, end, 0.0f);
        nn_row_load<WIDE>(xhat[v], x, at + (v * LANES + lane) * N, end, 0.0f);
      }
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          xhat[v][e] *= rstd;
        }
      }
    };
    const auto multiply = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        float gain[N];
        nn_row_load<WIDE>(gain, weight, at + (v * LANES + lane) * N, end, 0.0f);
#pragma unroll
        for (int e = 0; e < N; e++) {
          dot = fmaf(g[v][e] * gain[e], xhat[v][e], dot);
        }
      }
    };
    const auto store = [&](int64_t at, float mean) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        const int64_t column = at + (v * LANES + lane) * N;
        float gain[N], past[N];
        nn_row_load<WIDE>(gain, weight, column, end, 0.0f);
        if (a.dresidual != nullptr) {
          nn_row_load<WIDE>(past, static_cast<const T *>(a.dresidual) + row * a.cols, column, end, 0.0f);
        }
#pragma unroll
        for (int e = 0; e < N; e++) {
          const float d = rstd * (g[v][e] * gain[e] - xhat[v][e] * mean);
          total[v][e] = fmaf(g[v][e], xhat[v][e], total[v][e]);
          g[v][e] = a.dresidual != nullptr ? d + past[e] : d;
        }
        nn_row_store<WIDE>(dx, column, end, g[v]);
      }
    };
    if constexpr (whole) {
      load(0);
      multiply(0);
      store(0, nn_row_sum<LANES>(dot, shared[turn]) / (float)a.cols);
    } else {
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        load(at);
        multiply(at);
      }
      const float mean = nn_row_sum<LANES>(dot, shared[turn]) / (float)a.cols;
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        /* the sums over rows are in scratch memory meanwhile; each is one thread's */
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            const int64_t column = at + (v * LANES + lane) * N + e;
            total[v][e] = first > begin && column < end ? partial[column] : 0.0f;
          }
        }
        load(at);
        store(at, mean);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            const int64_t column = at + (v * LANES + lane) * N + e;
            if (column < end) {
              partial[column] = total[v][e];
            }
          }
        }
      }
    }
    turn ^= 1;
  }
  if constexpr (whole) {
    for (int turn_of = 0; turn_of < ROWS; turn_of++) { /* the groups' sums, in order */
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          const int column = (v * LANES + lane) * N + e;
          if (group == turn_of && column < a.cols) {
            if constexpr (ROWS > 1) {
              total[v][e] += turn_of > 0 ? sums[column] : 0.0f;
              sums[column] = total[v][e];
            }
            if (turn_of == ROWS - 1) {
              partial[column] = total[v][e];
            }
          }
        }
      }
      __syncthreads();
    }
  }
}

/* 32 columns a block; each of its 32 warps adds up a run of pieces, and then the runs are added, all in f64. */
__global__ void __launch_bounds__(1024)
    dweight_kernel(const float *partial, float *dweight, int64_t pieces, int64_t cols) {
  __shared__ double sums[NN_WARP][NN_WARP + 1];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t column = (int64_t)blockIdx.x * NN_WARP + lane, run = nn_ceil_div(pieces, NN_WARP);
  const int64_t begin = warp * run, end = begin + run < pieces ? begin + run : pieces;
  double sum = 0.0;
  if (column < cols) {
#pragma unroll 8
    for (int64_t piece = begin; piece < end; piece++) {
      sum += (double)partial[piece * cols + column];
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && column < cols) {
    sum = (double)dweight[column];
    for (int i = 0; i < NN_WARP; i++) {
      sum += sums[i][lane];
    }
    dweight[column] = (float)sum;
  }
}

template <class T> static int32_t backward_launch(nncuda_ctx *ctx, const backward &a, int64_t pieces, int32_t dtype) {
  const bool wide = nn_aligned_16(a.dy, a.x, a.weight, a.dresidual, a.dx) && nn_rows_16(a.cols, a.cols, dtype);
  NN_SWITCH_ROWS(a.cols, dtype, wide,
                 return nn_launch(ctx, rmsnorm_backward_kernel<T, SHAPE, WIDE>, dim3((unsigned)pieces),
                                  dim3(SHAPE::THREADS), 0, a));
}

NN_KERNEL(rmsnorm_backward) {
  const nn_norm_pieces p = nn_norm_lay_out(a, nn_workspace_of(ctx));
  const backward b = {a->dy, a->x, a->weight, a->rstd, a->dresidual, a->dx, p.partial, a->rows, a->cols, p.rows};
  int32_t status = NNCUDA_SUCCESS;
  NN_SWITCH_FLOATS(a->dtype, status = backward_launch<T>(ctx, b, p.count, a->dtype));
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return nn_launch(ctx, dweight_kernel, dim3((unsigned)nn_ceil_div(a->cols, NN_WARP)), dim3(1024), 0,
                   static_cast<const float *>(p.partial), a->dweight, p.count, a->cols);
}

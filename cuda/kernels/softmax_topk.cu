#include "abi/softmax.h"

#include "kernels/softmax_row.cuh"

/* ---- softmax_topk ---- */

/*
 * The router's rows are short: 16 experts are four lanes, and a warp does eight tokens. Elements go by fours, which are
 * 16 bytes of the f32 that prevail here. The k largest are found one after another: the next is the largest among those
 * that come after the last in the order of falling probability and rising column, which is total.
 */
template <int LANES_, int VECTORS_> struct router_shape {
  static constexpr int N = 4, LANES = LANES_, VECTORS = VECTORS_;
  static constexpr bool is_long = LANES > NN_WARP; /* read again from memory; a row a block */
  static constexpr int THREADS = is_long ? LANES : 128, ROWS = THREADS / LANES;
};

#define SWITCH_ROUTER(cols, wide, ...)                                                                                 \
  do {                                                                                                                 \
    if ((cols) <= 4 * 4) {                                                                                             \
      ROUTER_CASE(wide, 4, 1, __VA_ARGS__)                                                                             \
    } else if ((cols) <= 16 * 4) {                                                                                     \
      ROUTER_CASE(wide, 16, 1, __VA_ARGS__)                                                                            \
    } else if ((cols) <= 32 * 8) {                                                                                     \
      ROUTER_CASE(wide, 32, 2, __VA_ARGS__)                                                                            \
    } else if ((cols) <= 32 * 32) {                                                                                    \
      ROUTER_CASE(wide, 32, 8, __VA_ARGS__)                                                                            \
    } else {                                                                                                           \
      ROUTER_CASE(wide, 256, 4, __VA_ARGS__)                                                                           \
    }                                                                                                                  \
  } while (0)
#define ROUTER_CASE(wide, lanes, vectors, ...)                                                                         \
  using SHAPE = router_shape<lanes, vectors>;                                                                          \
  if (wide) {                                                                                                          \
    constexpr bool WIDE = true;                                                                                        \
    __VA_ARGS__;                                                                                                       \
  } else {                                                                                                             \
    constexpr bool WIDE = false;                                                                                       \
    __VA_ARGS__;                                                                                                       \
  }

/* A place in the order in which experts are chosen. */
struct place {
  float key;
  int column;

  /* Whether it comes before the other. */
  __device__ __forceinline__ bool before(place other) const {
    return key > other.key || (key == other.key && column < other.column);
  }
};

/* NaN is below zero, so below all probabilities. */
__device__ __forceinline__ place place_of(float p, int column) { return place{p != p ? -1.0f : p, column}; }

/* Behind every column that there is. */
__device__ __forceinline__ place nowhere() { return place{-INFINITY, INT32_MAX}; }

template <int LANES> __device__ __forceinline__ place foremost(place best, place *shared) {
  constexpr int WIDTH = LANES < NN_WARP ? LANES : NN_WARP;
#pragma unroll
  for (int step = WIDTH / 2; step > 0; step /= 2) {
    const place other = {__shfl_xor_sync(NN_ALL_LANES, best.key, step),
                         __shfl_xor_sync(NN_ALL_LANES, best.column, step)};
    best = other.before(best) ? other : best;
  }
  if constexpr (LANES > NN_WARP) {
    __syncthreads(); /* those of the turn before were read */
    if (threadIdx.x % NN_WARP == 0) {
      shared[threadIdx.x / NN_WARP] = best;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < LANES / NN_WARP; warp++) {
      best = shared[warp].before(best) ? shared[warp] : best;
    }
  }
  return best;
}

struct router {
  const void *x;
  float *weights;
  int32_t *indices;
  float *probs;
  int64_t rows, cols;
  int k, norm;
};

template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) softmax_topk_kernel(router a) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float largest_of[NN_WARP], sum_of[NN_WARP];
  __shared__ place places[NN_WARP];
  const int lane = threadIdx.x % LANES;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES, end = row < a.rows ? a.cols : 0;
    const T *x = static_cast<const T *>(a.x) + row * a.cols;
    float *probs = a.probs + row * a.cols, *weights = a.weights + row * a.k;
    int32_t *indices = a.indices + row * a.k;
    float values[VECTORS][N];
    if constexpr (SHAPE::is_long) {
      nn_softmax_long_row<float, LANES, VECTORS, N, WIDE>(x, probs, a.cols, largest_of, sum_of);
    } else {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], x, (v * LANES + lane) * N, end, -INFINITY);
      }
      nn_softmax_row<float, LANES>(values, largest_of, sum_of);
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_store<WIDE>(probs, (v * LANES + lane) * N, end, values[v]);
      }
    }
    place last = {INFINITY, -1};
    float total = 0.0f;
    for (int j = 0; j < a.k; j++) {
      place best = nowhere();
      const auto look = [&](int64_t at) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            const int64_t column = at + (v * LANES + lane) * N + e;
            const place here = place_of(values[v][e], (int)column);
            best = column < end && last.before(here) && here.before(best) ? here : best;
          }
        }
      };
      if constexpr (SHAPE::is_long) { /* a thread reads what it wrote */
        for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
#pragma unroll
          for (int v = 0; v < VECTORS; v++) {
            nn_row_load<WIDE>(values[v], probs, at + (v * LANES + lane) * N, end, 0.0f);
          }
          look(at);
        }
      } else {
        look(0);
      }
      last = foremost<LANES>(best, places);
      const float weight = last.key < 0.0f ? NAN : last.key;
      total += weight;
      if (lane == 0 && end > 0) {
        indices[j] = last.column;
        weights[j] = weight;
      }
    }
    if (a.norm) {
      if constexpr (SHAPE::is_long) {
        __syncthreads();
      } else {
        __syncwarp();
      }
      for (int j = lane; j < a.k && end > 0; j += LANES) {
        weights[j] /= total;
      }
    }
  }
}

/* Whether rows of `cols` elements can be moved by fours. */
static bool by_fours(int64_t cols, const void *x, int32_t dtype) {
  return cols % 4 == 0 && reinterpret_cast<uintptr_t>(x) % (dtype == NNCUDA_F32 ? 16 : 8) == 0;
}

template <class T> static int32_t topk_launch(nncuda_ctx *ctx, const nn_softmax_topk_args *a) {
  const router r = {a->x, a->weights, a->indices, a->probs, a->rows, a->cols, (int)a->k, a->norm};
  const bool wide = by_fours(a->cols, a->x, a->dtype) && nn_aligned_16(a->probs);
  SWITCH_ROUTER(a->cols, wide,
                return nn_launch(ctx, softmax_topk_kernel<T, SHAPE, WIDE>, dim3(nn_row_blocks(a->rows, SHAPE::ROWS)),
                                 dim3(SHAPE::THREADS), 0, r));
}

NN_KERNEL(softmax_topk) { NN_SWITCH_FLOATS(a->dtype, return topk_launch<T>(ctx, a)); }

/* ---- softmax_topk_backward ---- */

struct router_backward {
  const float *dweights, *weights;
  const int32_t *indices;
  const float *probs, *dprobs;
  void *dx;
  int64_t rows, cols;
  int k, norm;
};

template <class T, class SHAPE, bool WIDE>
__global__ void __launch_bounds__(SHAPE::THREADS) softmax_topk_backward_kernel(router_backward a, nn_range columns) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float shared[2][NN_WARP];
  const int lane = threadIdx.x % LANES;
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES;
    const float *probs = a.probs + row * a.cols, *dprobs = a.dprobs == nullptr ? nullptr : a.dprobs + row * a.cols;
    const float *dweights = a.dweights + row * a.k, *weights = a.weights + row * a.k;
    const int32_t *indices = a.indices + row * a.k;
    T *dx = static_cast<T *>(a.dx) + row * a.cols;
    int64_t end = row < a.rows ? a.cols : 0;
    for (int j = 0; j < a.k && end > 0; j++) {
      end = columns.holds(row * a.k + j, indices[j]) ? end : 0; /* a row with a bad index is left out */
    }
    /* weights = p / total: its gradient loses what would scale all of them alike. */
    float total = 1.0f, along = 0.0f;
    if (a.norm && end > 0) {
      total = 0.0f;
      for (int j = 0; j < a.k; j++) {
        total += probs[indices[j]];
        along = fmaf(dweights[j], weights[j], along);
      }
    }
    float g[VECTORS][N], p[VECTORS][N];
    const auto load = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        const int64_t column = at + (v * LANES + lane) * N;
        nn_row_load<WIDE>(p[v], probs, column, end, 0.0f);
        if (dprobs != nullptr) {
          nn_row_load<WIDE>(g[v], dprobs, column, end, 0.0f);
        } else {
#pragma unroll
          for (int e = 0; e < N; e++) {
            g[v][e] = 0.0f;
          }
        }
      }
      for (int j = 0; j < a.k && end > 0; j++) {
        const int64_t chosen = indices[j];
        const float more = (dweights[j] - along) / total;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            g[v][e] += chosen == at + (v * LANES + lane) * N + e ? more : 0.0f;
          }
        }
      }
    };
    nn_softmax_gradient<LANES, SHAPE::is_long, WIDE>(g, p, load, dx, end, shared[turn]);
    turn ^= 1;
  }
}

template <class T> static int32_t topk_backward_launch(nncuda_ctx *ctx, const nn_softmax_topk_backward_args *a) {
  const router_backward r = {a->dweights, a->weights, a->indices, a->probs,  a->dprobs,
                             a->dx,       a->rows,    a->cols,    (int)a->k, a->norm};
  const nn_range columns = nn_range_of(ctx, "indices", 0, a->cols - 1).in_rows_of(a->k);
  const bool wide = by_fours(a->cols, a->dx, a->dtype) && nn_aligned_16(a->probs, a->dprobs);
  SWITCH_ROUTER(a->cols, wide,
                return nn_launch(ctx, softmax_topk_backward_kernel<T, SHAPE, WIDE>,
                                 dim3(nn_row_blocks(a->rows, SHAPE::ROWS)), dim3(SHAPE::THREADS), 0, r, columns));
}

NN_KERNEL(softmax_topk_backward) { NN_SWITCH_FLOATS(a->dtype, return topk_backward_launch<T>(ctx, a)); }

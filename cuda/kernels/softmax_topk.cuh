/*
 * The router's rows: which threads take one, its softmax and its k largest, and the gradient, for softmax_topk.cu and
 * moe_*.cu.
 */
#ifndef NN_KERNELS_SOFTMAX_TOPK_CUH
#define NN_KERNELS_SOFTMAX_TOPK_CUH

#include "kernels/softmax_row.cuh"

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

/* What lies in shared memory for a row that more than a warp takes. */
struct router_shared {
  float largest_of[NN_WARP], sum_of[NN_WARP];
  place places[NN_WARP];
};

/* Row `row`, of which `end` columns are there: all, or none where there is no such row. Its first thread calls
 * chosen(expert) for each of the k. All threads of the block call it. */
template <class T, class SHAPE, bool WIDE, class CHOSEN>
__device__ __forceinline__ void router_row(const router &a, int64_t row, int64_t end, router_shared &shared,
                                           const CHOSEN &chosen) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  const int lane = threadIdx.x % LANES;
  const T *x = static_cast<const T *>(a.x) + row * a.cols;
  float *probs = a.probs + row * a.cols, *weights = a.weights + row * a.k;
  int32_t *indices = a.indices + row * a.k;
  float values[VECTORS][N];
  if constexpr (SHAPE::is_long) {
    nn_softmax_long_row<float, LANES, VECTORS, N, WIDE>(x, probs, a.cols, shared.largest_of, shared.sum_of);
  } else {
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      nn_row_load<WIDE>(values[v], x, (v * LANES + lane) * N, end, -INFINITY);
    }
    nn_softmax_row<float, LANES>(values, shared.largest_of, shared.sum_of);
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
    last = foremost<LANES>(best, shared.places);
    const float weight = last.key < 0.0f ? NAN : last.key;
    total += weight;
    if (lane == 0 && end > 0) {
      indices[j] = last.column;
      weights[j] = weight;
      chosen(last.column);
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

/* Whether rows of `cols` elements can be moved by fours. */
inline bool by_fours(int64_t cols, const void *x, int32_t dtype) {
  return cols % 4 == 0 && reinterpret_cast<uintptr_t>(x) % (dtype == NNCUDA_F32 ? 16 : 8) == 0;
}

/* The gradient of the router's logits, for softmax_topk_backward and moe_route_backward. */
struct router_backward {
  const float *dweights, *weights;
  const int32_t *indices;
  const float *probs, *dprobs; /* dprobs may be null */
  void *dx;
  int64_t rows, cols;
  int k, norm;
  /* Null, or the gradient of the balancing loss in place of dprobs: grad_scale * alpha * counts / rows^2. */
  const int32_t *counts;
  const float *grad_scale;
  double alpha;
};

/* What the balancing loss gives the probability of an expert, over its count. */
__device__ __forceinline__ double router_loss_factor(const router_backward &a) {
  return a.counts == nullptr ? 0.0 : (double)a.grad_scale[0] * a.alpha / ((double)a.rows * (double)a.rows);
}

/* Row `row` of the gradient, of which `end` columns are there: all, or none where there is no such row. `shared`: of a
 * row that a block takes; all its threads call this. */
template <class T, class SHAPE, bool WIDE>
__device__ __forceinline__ void router_row_backward(const router_backward &a, const nn_range &columns, double factor,
                                                    int64_t row, int64_t end, float *shared) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  const int lane = threadIdx.x % LANES;
  const float *probs = a.probs + row * a.cols, *dprobs = a.dprobs == nullptr ? nullptr : a.dprobs + row * a.cols;
  const float *dweights = a.dweights + row * a.k, *weights = a.weights + row * a.k;
  const int32_t *indices = a.indices + row * a.k;
  T *dx = static_cast<T *>(a.dx) + row * a.cols;
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
      } else if (a.counts != nullptr) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          g[v][e] = column + e < end ? (float)(factor * (double)a.counts[column + e]) : 0.0f;
        }
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
  nn_softmax_gradient<LANES, SHAPE::is_long, WIDE>(g, p, load, dx, end, shared);
}

int32_t nn_router_backward(nncuda_ctx *ctx, const router_backward &r, int32_t dtype); /* of dx */

#endif

/* The softmax of one row, and its gradient, by the threads of a row (row_threads.cuh). */
#ifndef NN_KERNELS_SOFTMAX_ROW_CUH
#define NN_KERNELS_SOFTMAX_ROW_CUH

#include "kernels/row_threads.cuh"

/* -inf - -inf has no value; relative to zero the exponentials of a row of -inf are the zeros that they should be. */
__device__ __forceinline__ float nn_softmax_shift(float shift) { return shift == -INFINITY ? 0.0f : shift; }

/* A row without anything above -inf gives zeros. */
__device__ __forceinline__ float nn_softmax_scale(float total) { return total == 0.0f ? 0.0f : 1.0f / total; }

/* What a thread has seen of a long row: the sum of exp(x - shift), shift being the largest element so far. (Milakov and
 * Gimelshein 2018, algorithm 3) NaN does not become the shift, but the sum. */
struct nn_running_sum {
  float shift = -INFINITY, sum = 0.0f;

  template <class T, int V, int N> __device__ __forceinline__ void add(const float (&x)[V][N]) {
    float largest = shift;
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        largest = fmaxf(largest, x[v][e]);
      }
    }
    if (largest > shift) {
      sum *= nn_exp_for<T>(shift - largest);
      shift = largest;
    }
    const float from = nn_softmax_shift(shift);
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        sum += nn_exp_for<T>(x[v][e] - from);
      }
    }
  }
};

/* A row in registers becomes its softmax. E is the type whose precision the exponentials need. */
template <class E, int LANES, int V, int N>
__device__ __forceinline__ void nn_softmax_row(float (&x)[V][N], float *largest_of, float *sum_of) {
  float largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      largest = fmaxf(largest, x[v][e]);
    }
  }
  const float shift = nn_softmax_shift(nn_row_max<LANES>(largest, largest_of));
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      x[v][e] = nn_exp_for<E>(x[v][e] - shift);
      sum += x[v][e];
    }
  }
  const float scale = nn_softmax_scale(nn_row_sum<LANES>(sum, sum_of));
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      x[v][e] *= scale;
    }
  }
}

/* A row that does not fit: read once for its sum, and again when it is written. y may be x. */
template <class E, int LANES, int VECTORS, int N, bool WIDE, class X, class Y>
__device__ __forceinline__ void nn_softmax_long_row(const X *x, Y *y, int64_t cols, float *largest_of, float *sum_of) {
  float values[VECTORS][N];
  const auto load = [&](int64_t at) {
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      nn_row_load<WIDE>(values[v], x, at + (v * LANES + (int)threadIdx.x) * N, cols, -INFINITY);
    }
  };
  nn_running_sum part;
  for (int64_t at = 0; at < cols; at += LANES * VECTORS * N) {
    load(at);
    part.template add<E>(values);
  }
  const float largest = nn_row_max<LANES>(part.shift, largest_of), shift = nn_softmax_shift(largest);
  const float sum = part.shift == largest ? part.sum : part.sum * nn_exp_for<E>(part.shift - largest);
  const float scale = nn_softmax_scale(nn_row_sum<LANES>(sum, sum_of));
  for (int64_t at = 0; at < cols; at += LANES * VECTORS * N) {
    load(at);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        values[v][e] = nn_exp_for<E>(values[v][e] - shift) * scale;
      }
      nn_row_store<WIDE>(y, at + (v * LANES + (int)threadIdx.x) * N, cols, values[v]);
    }
  }
}

/* The gradient of a row: p (g - the sum of p g). `load(at)` brings g and p of the elements from `at` on; a row that is
 * LONG does not fit and is loaded again. */
template <int LANES, bool LONG, bool WIDE, int V, int N, class T, class LOAD>
__device__ __forceinline__ void nn_softmax_gradient(float (&g)[V][N], float (&p)[V][N], const LOAD &load, T *to,
                                                    int64_t end, float *shared) {
  const int lane = threadIdx.x % LANES;
  float dot = 0.0f;
  const auto multiply = [&] {
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        dot = fmaf(g[v][e], p[v][e], dot);
      }
    }
  };
  const auto store = [&](int64_t at, float mean) {
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        g[v][e] = p[v][e] * (g[v][e] - mean);
      }
      nn_row_store<WIDE>(to, at + (v * LANES + lane) * N, end, g[v]);
    }
  };
  if constexpr (!LONG) {
    load(0);
    multiply();
    store(0, nn_row_sum<LANES>(dot, shared));
  } else {
    for (int64_t at = 0; at < end; at += LANES * V * N) {
      load(at);
      multiply();
    }
    const float mean = nn_row_sum<LANES>(dot, shared);
    for (int64_t at = 0; at < end; at += LANES * V * N) {
      load(at);
      store(at, mean);
    }
  }
}

#endif

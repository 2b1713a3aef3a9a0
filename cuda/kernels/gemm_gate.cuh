/*
 * Products of groups of rows that end with SwiGLU or its gradient, which then cost neither a launch nor a trip of what
 * they read to memory.
 *
 * SWIGLU: n is the number of gates, and B has as many rows of ups behind theirs. A tile of BN columns has BN / 2 of the
 * gates and the ups that belong to them, side by side in runs, so that a thread (a warp, where sums pass through shared
 * memory) has both. An element is summed as it would be in any other place, and rounded before the gate as
 * grouped_gemm rounds it: the bits are those of the two calls.
 * SWIGLU_BACKWARD: the sums are the gradients of y; they meet gate and up on the way to C, and their gradients leave in
 * these places.
 */
#ifndef NN_KERNELS_GEMM_GATE_CUH
#define NN_KERNELS_GEMM_GATE_CUH

#include "kernels/gemm.cuh"
#include "kernels/silu.cuh"

/* Columns of y, or of C, that a tile of BN columns of sums stands for. */
template <int GATE, int BN> constexpr int gemm_columns = GATE == GEMM_SWIGLU ? BN / 2 : BN;

/* Where row r of a tile's part of B lies, in runs of RUN gates and RUN ups: the row from the tile's first gate on, and
 * whether it is an up. */
template <int RUN> struct gemm_paired_row {
  int32_t row, is_up;
  __device__ __forceinline__ explicit gemm_paired_row(int32_t r)
      : row(r / (2 * RUN) * RUN + r % RUN), is_up(r / RUN % 2) {}
};

template <class T, int N>
__device__ __forceinline__ void gemm_load_some(float (&to)[N], const T *from, int32_t valid, bool wide) {
  if (wide) {
    nn_load(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      to[i] = i < valid ? nn_to_float(from[i]) : 0.0f;
    }
  }
}

template <class T, int N>
__device__ __forceinline__ void gemm_store_some(T *to, const float (&x)[N], int32_t valid, bool wide) {
  if (wide) {
    nn_store(to, x);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (i < valid) {
        to[i] = nn_from_float<T>(x[i]);
      }
    }
  }
}

/* As it will be read again. */
template <class T> __device__ __forceinline__ float gemm_rounded(float x) { return nn_to_float(nn_from_float<T>(x)); }

/* Row r, columns c to c + N - 1 of a tile, a multiple of N: gates and ups to C, the gated to y. */
template <class T, int N>
__device__ __forceinline__ void gemm_put_swiglu(const gemm_problem &p, const gemm_place &place, int32_t r, int32_t c,
                                                const float (&gate)[N], const float (&up)[N]) {
  const int64_t row = place.row + r, column = place.column + c;
  const int32_t valid = place.columns - c;
  if (r >= place.rows || valid <= 0) {
    return;
  }
  const bool wide = p.c_wide && valid >= N;
  T *const to = static_cast<T *>(p.c) + place.c + row * p.ldc + column;
  gemm_store_some(to, gate, valid, wide);
  gemm_store_some(to + p.up, up, valid, wide);
  float y[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    y[i] = silu_of<T>(gemm_rounded<T>(gate[i])) * gemm_rounded<T>(up[i]);
  }
  gemm_store_some(static_cast<T *>(p.gated) + (place.first + row) * p.n + column, y, valid, wide);
}

/* The same place: gradients of y to those of gate and up, over these. */
template <class T, int N>
__device__ __forceinline__ void gemm_put_slopes(const gemm_problem &p, const gemm_place &place, int32_t r, int32_t c,
                                                const float (&x)[N]) {
  const int64_t row = place.row + r, column = place.column + c;
  const int32_t valid = place.columns - c;
  if (r >= place.rows || valid <= 0) {
    return;
  }
  const bool wide = p.c_wide && valid >= N;
  T *const to = static_cast<T *>(p.c) + place.c + row * p.ldc + column;
  float gate[N], up[N], dgate[N], dup[N];
  gemm_load_some(gate, to, valid, wide);
  gemm_load_some(up, to + p.up, valid, wide);
#pragma unroll
  for (int i = 0; i < N; i++) {
    dgate[i] = gemm_rounded<T>(x[i]);
    swiglu_slopes<T>(dgate[i], dup[i], gate[i], up[i]);
  }
  gemm_store_some(to, dgate, valid, wide);
  gemm_store_some(to + p.up, dup, valid, wide);
}

/* Eight sums of an f32 product are two vectors. */
template <class T, int N>
__device__ __forceinline__ void gemm_put_slopes_any(const gemm_problem &p, const gemm_place &place, int32_t r,
                                                    int32_t c, const float (&x)[N]) {
  constexpr int EACH = sizeof(T) == 2 ? N : 4;
#pragma unroll
  for (int first = 0; first < N; first += EACH) {
    float some[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      some[i] = x[first + i];
    }
    gemm_put_slopes<T, EACH>(p, place, r, c + first, some);
  }
}
template <class T, int N>
__device__ __forceinline__ void gemm_put_swiglu_any(const gemm_problem &p, const gemm_place &place, int32_t r,
                                                    int32_t c, const float *gate, const float *up) {
  constexpr int EACH = sizeof(T) == 2 ? N : 4;
#pragma unroll
  for (int first = 0; first < N; first += EACH) {
    float g[EACH], u[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      g[i] = gate[first + i];
      u[i] = up[first + i];
    }
    gemm_put_swiglu<T, EACH>(p, place, r, c + first, g, u);
  }
}

#endif

/*
 * Work row by row, bound by memory: how a row is spread over threads, and how its elements come and go.
 *
 * A row is cut into vectors of N elements, 16 bytes of T. Vector i belongs to thread i % LANES of the row's threads, as
 * its vector i / LANES. So it is whether or not the memory allows accesses of 16 bytes (WIDE); where it does not, the N
 * elements come one by one, and the sums, and with them the bits, stay the same.
 *
 * Rows that fit are kept in registers between reading and writing:
 *
 *   NN_ROW_SHORT   a vector each for 8 lanes; several rows a warp (the router's logits, heads)
 *   NN_ROW_WARP    32 elements each for the 32 lanes of a warp; several rows a block
 *   NN_ROW_BLOCK   32 elements each for a block
 *   NN_ROW_LONG    a block goes through the row again; the second time it comes from the second-level cache
 *
 * 32 elements are four (f32: eight) loads of 16 bytes under way a thread, and leave room for a second row in registers;
 * half of that in a long row is enough for its 512 threads, and leaves each of them less than 128 registers to fill. By
 * count of bytes and registers.
 */
#ifndef NN_KERNELS_ROW_THREADS_CUH
#define NN_KERNELS_ROW_THREADS_CUH

#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

enum nn_row_form { NN_ROW_SHORT, NN_ROW_WARP, NN_ROW_BLOCK, NN_ROW_LONG };

constexpr int NN_ROW_ELEMENTS = 32;

template <nn_row_form FORM, class T> struct nn_row_shape {
  static constexpr nn_row_form form = FORM;
  static constexpr int N = nn_per_16<T>;
  static constexpr int LANES = FORM == NN_ROW_SHORT ? 8 : FORM == NN_ROW_WARP ? 32 : FORM == NN_ROW_BLOCK ? 256 : 512;
  static constexpr int VECTORS = FORM == NN_ROW_SHORT  ? 1
                                 : FORM == NN_ROW_LONG ? NN_ROW_ELEMENTS / 2 / N /* under way at once */
                                                       : NN_ROW_ELEMENTS / N;
  static constexpr int THREADS = LANES < 128 ? 128 : LANES;
  static constexpr int ROWS = THREADS / LANES; /* a block has at once */
};

/* The form for rows of `cols` elements of the type of `dtype`. */
__host__ __device__ inline nn_row_form nn_row_form_of(int64_t cols, int32_t dtype) {
  const int64_t n = dtype == NNCUDA_F32 ? 4 : 8;
  return cols <= 8 * n                   ? NN_ROW_SHORT
         : cols <= 32 * NN_ROW_ELEMENTS  ? NN_ROW_WARP
         : cols <= 256 * NN_ROW_ELEMENTS ? NN_ROW_BLOCK
                                         : NN_ROW_LONG;
}

/* N elements from element `at` of a row that ends at `end`; those after it are `rest`. A row that is WIDE has whole
 * vectors only. */
template <bool WIDE, int N, class T>
__device__ __forceinline__ void nn_row_load(float (&to)[N], const T *row, int64_t at, int64_t end, float rest) {
  if constexpr (WIDE) {
    if (at < end) {
      nn_load(to, row + at);
    } else {
#pragma unroll
      for (int i = 0; i < N; i++) {
        to[i] = rest;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      to[i] = at + i < end ? nn_to_float(row[at + i]) : rest;
    }
  }
}

template <bool WIDE, int N, class T>
__device__ __forceinline__ void nn_row_store(T *row, int64_t at, int64_t end, const float (&from)[N]) {
  if constexpr (WIDE) {
    if (at < end) {
      nn_store(row + at, from);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (at + i < end) {
        row[at + i] = nn_from_float<T>(from[i]);
      }
    }
  }
}

/* exp(x) for x that is not above 0 by much. What 16-bit results round away need not be computed: two instructions that
 * a processor has 4 (instead of 16) multiplications' time for keep up with its memory. */
template <class T> __device__ __forceinline__ float nn_exp_for(float x) { return nn_exp2_approx(x * 1.44269504f); }
template <> __device__ __forceinline__ float nn_exp_for<float>(float x) { return expf(x); }

/* Over the LANES threads of a row. `shared` (32 elements) is only touched where they are more than a warp; it may be
 * used again after the next __syncthreads. */
template <int LANES> __device__ __forceinline__ float nn_row_sum(float x, float *shared) {
  if constexpr (LANES <= NN_WARP) {
    return nn_warp_sum<LANES>(x);
  } else {
    return nn_block_sum<LANES>(x, shared);
  }
}

template <int LANES> __device__ __forceinline__ float nn_row_max(float x, float *shared) {
  if constexpr (LANES <= NN_WARP) {
    return nn_warp_max<LANES>(x);
  } else {
    return nn_block_max<LANES>(x, shared);
  }
}

/* Blocks for rows that are taken `each` at a time; a block continues to further rows only where the grid would be too
 * large. */
inline unsigned nn_row_blocks(int64_t rows, int64_t each) {
  const int64_t wanted = nn_ceil_div(rows, each), most = (int64_t)1 << 30;
  return (unsigned)(wanted < most ? wanted : most);
}

/* Runs `statement` with SHAPE the shape of rows of `cols` elements and WIDE whether they come 16 bytes at a time. */
#define NN_SWITCH_ROWS(cols, dtype, wide, ...)                                                                         \
  switch (nn_row_form_of(cols, dtype) * 2 + (wide)) {                                                                  \
    NN_ROW_CASE(NN_ROW_SHORT, __VA_ARGS__)                                                                             \
    NN_ROW_CASE(NN_ROW_WARP, __VA_ARGS__)                                                                              \
    NN_ROW_CASE(NN_ROW_BLOCK, __VA_ARGS__)                                                                             \
  default:                                                                                                             \
    NN_ROW_CASE(NN_ROW_LONG, __VA_ARGS__)                                                                              \
  }
#define NN_ROW_CASE(row_form, ...)                                                                                     \
  case (row_form) * 2: {                                                                                               \
    using SHAPE = nn_row_shape<row_form, T>;                                                                           \
    constexpr bool WIDE = false;                                                                                       \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }                                                                                                                    \
  case (row_form) * 2 + 1: {                                                                                           \
    using SHAPE = nn_row_shape<row_form, T>;                                                                           \
    constexpr bool WIDE = true;                                                                                        \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }

#endif

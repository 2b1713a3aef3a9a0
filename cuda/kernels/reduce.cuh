/* Sums, running sums and maxima over a warp or a block, always in the same order. Every thread of it must take part. */
#ifndef NN_KERNELS_REDUCE_CUH
#define NN_KERNELS_REDUCE_CUH

#include "kernels/kernel.cuh"

constexpr int NN_WARP = 32;
constexpr unsigned NN_ALL_LANES = 0xffffffffu;

struct nn_plus {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};

/* NaN wins, as in the formula that a maximum stands for. */
struct nn_larger {
  static __device__ __forceinline__ float of(float a, float b) { return a > b || a != a ? a : b; }
};

/* The result is in every lane. `WIDTH` consecutive lanes (a power of two) make a group. */
template <class OP, int WIDTH = NN_WARP, class T> __device__ __forceinline__ T nn_warp_reduce(T x) {
#pragma unroll
  for (int step = WIDTH / 2; step > 0; step /= 2) {
    x = OP::of(x, __shfl_xor_sync(NN_ALL_LANES, x, step));
  }
  return x;
}

template <int WIDTH = NN_WARP, class T> __device__ __forceinline__ T nn_warp_sum(T x) {
  return nn_warp_reduce<nn_plus, WIDTH>(x);
}

template <int WIDTH = NN_WARP> __device__ __forceinline__ float nn_warp_max(float x) {
  return nn_warp_reduce<nn_larger, WIDTH>(x);
}

/* The sum of whole numbers over this lane and those before it. */
template <class T> __device__ __forceinline__ T nn_warp_scan(T x) {
  const int lane = threadIdx.x % NN_WARP;
#pragma unroll
  for (int step = 1; step < NN_WARP; step *= 2) {
    const T other = __shfl_up_sync(NN_ALL_LANES, x, step);
    x += lane >= step ? other : 0;
  }
  return x;
}

/*
 * Over a block of THREADS threads (a multiple of 32, at most 1024); the result is in every thread. `shared` has room
 * for THREADS/32 elements; it may be used again after the next __syncthreads, which the call does not end with.
 */
template <class OP, int THREADS, class T> __device__ __forceinline__ T nn_block_reduce(T x, T *shared, T neutral) {
  x = nn_warp_reduce<OP>(x);
  if (THREADS == NN_WARP) {
    return x;
  }
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  if (lane == 0) {
    shared[warp] = x;
  }
  __syncthreads();
  return nn_warp_reduce<OP>(lane < THREADS / NN_WARP ? shared[lane] : neutral);
}

template <int THREADS, class T> __device__ __forceinline__ T nn_block_sum(T x, T *shared) {
  return nn_block_reduce<nn_plus, THREADS>(x, shared, T(0));
}

template <int THREADS> __device__ __forceinline__ float nn_block_max(float x, float *shared) {
  return nn_block_reduce<nn_larger, THREADS>(x, shared, __int_as_float(0xff800000));
}

#endif

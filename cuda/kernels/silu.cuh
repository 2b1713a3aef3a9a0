/* silu(x) = x * sigmoid(x) and its slope: of elementwise.cu, and of the products that end with a gate. */
#ifndef NN_KERNELS_SILU_CUH
#define NN_KERNELS_SILU_CUH

#include "kernels/number.cuh"

/*
 * E is the type whose precision a result needs. 16 bits round away what three instructions leave out: a relative error
 * of (6 + |x|) * 2^-24, of which 16 |x| are less than the spacing of f16 wherever f16 has numbers. f32 has all it can.
 */
template <class E> __device__ __forceinline__ float sigmoid(float x) {
  if constexpr (sizeof(E) == 2) {
    return nn_reciprocal_approx(1.0f + nn_exp2_approx(x * -1.44269504f));
  } else {
    return 1.0f / (1.0f + expf(-x));
  }
}
template <class E> __device__ __forceinline__ float silu_of(float x) {
  if constexpr (sizeof(E) == 2) {
    return x * sigmoid<E>(x);
  } else {
    return x / (1.0f + expf(-x));
  }
}
/* The derivative of x * s is s + x * s * (1 - s). */
__device__ __forceinline__ float silu_slope(float x, float s) { return s * fmaf(x, 1.0f - s, 1.0f); }

/* dy becomes the gradient of gate, and `dup` that of up, for y = silu(gate) * up. */
template <class E> __device__ __forceinline__ void swiglu_slopes(float &dy, float &dup, float gate, float up) {
  const float s = sigmoid<E>(gate);
  dup = dy * (gate * s);
  dy = dy * up * silu_slope(gate, s);
}

#endif

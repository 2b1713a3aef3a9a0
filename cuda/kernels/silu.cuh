/* silu(x) = x * sigmoid(x) and its slope: of elementwise.cu, and of the products that end with a gate. */
#ifndef NN_KERNELS_SILU_CUH
#define NN_KERNELS_SILU_CUH

#include "kernels/number.cuh"

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu_of(float x) { return x / (1.0f + expf(-x)); }
/* The derivative of x * s is s + x * s * (1 - s). */
__device__ __forceinline__ float silu_slope(float x, float s) { return s * fmaf(x, 1.0f - s, 1.0f); }

/* dy becomes the gradient of gate, and `dup` that of up, for y = silu(gate) * up. */
__device__ __forceinline__ void swiglu_slopes(float &dy, float &dup, float gate, float up) {
  const float s = sigmoid(gate);
  dup = dy * (gate * s);
  dy = dy * up * silu_slope(gate, s);
}

#endif

/* How a row's numbers become 8 bits (bindings.h, section ternary, act_quant_i8). */
#ifndef NN_KERNELS_TERNARY_UNIT_CUH
#define NN_KERNELS_TERNARY_UNIT_CUH

#include "kernels/kernel.cuh"

/* Magnitudes of a row below this count as this: 127 / a stays finite. */
constexpr float TERNARY_LEAST = 1e-5f;

/* Of a row whose largest magnitude is `most`, or NaN. A row that is not finite has codes 0. */
struct ternary_unit {
  float held, inverse;
  bool finite;

  __device__ __forceinline__ explicit ternary_unit(float most) {
    held = most < TERNARY_LEAST ? TERNARY_LEAST : most;
    inverse = __fdiv_rn(127.0f, held);
    finite = most <= 3.402823466e38f;
  }
  __device__ __forceinline__ uint32_t code(float x) const {
    return finite ? (uint32_t)(int)rintf(__fmul_rn(x, inverse)) & 255u : 0u;
  }
  __device__ __forceinline__ float scale() const {
    return finite ? __fdiv_rn(held, 127.0f) : __int_as_float(0x7fc00000);
  }
};

#endif

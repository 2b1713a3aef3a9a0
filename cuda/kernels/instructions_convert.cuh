/* Conversions between f32 and narrower floats, and an approximate 2^x. */
#ifndef NN_INSTRUCTIONS_CONVERT_CUH
#define NN_INSTRUCTIONS_CONVERT_CUH

#include "kernels/instructions_absent.cuh"
#include "numbers/e4m3.h"
#include <cuda_runtime.h>
#include <stdint.h>

/* Name the type of 16-bit operands where registers hold bits only: nn_mma_m16n8k16<nn_bf16>(...). */
struct nn_f16 {
  uint16_t bits;
};
struct nn_bf16 {
  uint16_t bits;
};
/* OCP E4M3. */
struct nn_e4m3 {
  uint8_t bits;
};

/* Round to nearest even; NaN becomes 0x7fff. cvt.rn.f16.f32, PTX 9.7.9.21. */
__device__ __forceinline__ uint16_t nn_f32_to_f16(float x) {
  uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

/* Exact. cvt.f32.f16, PTX 9.7.9.21. */
__device__ __forceinline__ float nn_f16_to_f32(uint16_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

/* Round to nearest even; NaN becomes 0x7fff. cvt.rn.bf16.f32 from sm_80 (PTX 9.7.9.21), integer arithmetic below. */
__device__ __forceinline__ uint16_t nn_f32_to_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const uint32_t u = __float_as_uint(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? (uint16_t)0x7fffu : (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
#endif
}

/* Exact: a bf16 is the upper half of an f32. */
__device__ __forceinline__ float nn_bf16_to_f32(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }

/* Two at once, `low` into bits 0-15 and `high` into bits 16-31; rounding as above. One cvt.rn.f16x2.f32 from sm_80,
 * whose first source is the upper half (PTX 9.7.9.21). */
__device__ __forceinline__ uint32_t nn_f32x2_to_f16x2(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return nn_f32_to_f16(low) | (uint32_t)nn_f32_to_f16(high) << 16;
#endif
}

__device__ __forceinline__ uint32_t nn_f32x2_to_bf16x2(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return nn_f32_to_bf16(low) | (uint32_t)nn_f32_to_bf16(high) << 16;
#endif
}

/* The way back: .x from the lower half, .y from the upper. */
__device__ __forceinline__ float2 nn_f16x2_to_f32x2(uint32_t x) {
  return make_float2(nn_f16_to_f32((uint16_t)x), nn_f16_to_f32((uint16_t)(x >> 16)));
}

__device__ __forceinline__ float2 nn_bf16x2_to_f32x2(uint32_t x) {
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

/* Rounds to nearest even and saturates at 448; NaN becomes 0x7f. cvt.rn.satfinite.e4m3x2.f32 from sm_90, whose first
 * source is the upper half (PTX 9.7.9.21), integer arithmetic below. */
__device__ __forceinline__ uint8_t nn_f32_to_e4m3(float x) {
#if __CUDA_ARCH__ >= 900
  uint16_t y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
  return (uint8_t)y;
#else
  return nn_e4m3_encoded(x);
#endif
}

/* Two neighbours, exact. cvt.rn.f16x2.e4m3x2 from sm_90 (PTX 9.7.9.21), integer arithmetic below. */
__device__ __forceinline__ uint32_t nn_e4m3x2_to_f16x2(uint16_t x) {
#if __CUDA_ARCH__ >= 900
  uint32_t y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(x));
  return y;
#else
  return nn_f32x2_to_f16x2(nn_e4m3_decoded((uint8_t)x), nn_e4m3_decoded((uint8_t)(x >> 8)));
#endif
}

__device__ __forceinline__ float nn_e4m3_to_f32(uint8_t x) {
#if __CUDA_ARCH__ >= 900
  return nn_f16_to_f32((uint16_t)nn_e4m3x2_to_f16x2(x));
#else
  return nn_e4m3_decoded(x);
#endif
}

/* f32 to tf32 (8 bits of exponent, 10 of mantissa, in the place of an f32's), ties away from zero: the only rounding
 * that cvt offers for tf32 before sm_90. sm_80+. cvt.rna.tf32.f32, PTX 9.7.9.21. */
__device__ __forceinline__ uint32_t nn_f32_to_tf32(float x) {
#if __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
#else
  nn_absent(x);
  return 0;
#endif
}

/* 2^x within 2 units in the last place; results below 2^-126 are 0, and so is 2^-inf; 2^NaN is NaN. exp(x) is
 * nn_exp2_approx(x * log2(e)), whose argument's rounding adds a relative error of |x| * 2^-24.
 * ex2.approx.ftz.f32, PTX 9.7.3.21. */
__device__ __forceinline__ float nn_exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* 1 / x within 1 unit in the last place, 0 for infinities and where it would be less than 2^-126. rcp.approx.ftz.f32,
 * PTX 9.7.3.13. */
__device__ __forceinline__ float nn_reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

/* Stands in for CUDA's header of this name: the 16-bit float as storage, and its conversions. */
#ifndef NN_EMULATOR_CUDA_FP16_H
#define NN_EMULATOR_CUDA_FP16_H

#include "emulator/builtins.h"

struct alignas(2) __half {
  unsigned short bits;
};
typedef __half half;
struct alignas(4) __half2 {
  __half x, y;
};
typedef __half2 half2;

inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

inline float __half2float(__half h) {
  const unsigned sign = (unsigned)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, fraction = h.bits & 0x3ff;
  if (exponent == 0) { /* zero or subnormal: a multiple of 2^-24 */
    return __uint_as_float(sign | __float_as_uint((float)fraction * 0x1p-24f));
  }
  return __uint_as_float(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

/* To the nearest, ties to even. */
inline __half __float2half_rn(float x) {
  const unsigned sign = __float_as_uint(x) >> 16 & 0x8000;
  const float size = fabsf(x);
  if (size != size) {
    return {0x7fff};
  }
  if (size < 0x1p-14f) { /* the sum's last bit is worth 2^-24 */
    return {(unsigned short)(sign | (__float_as_uint(size + 0.5f) - __float_as_uint(0.5f)))};
  }
  const unsigned bits = __float_as_uint(size), odd = bits >> 13 & 1;
  const unsigned rounded = (bits + 0xfff + odd - (112u << 23)) >> 13;
  return {(unsigned short)(sign | (size >= 65520.0f ? 0x7c00 : rounded))};
}
inline __half __float2half(float x) { return __float2half_rn(x); }

#endif

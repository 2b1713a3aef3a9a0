/* Twin of cuda/kernels/instructions_convert.cuh. */
#ifndef NN_INSTRUCTIONS_CONVERT_CUH
#define NN_INSTRUCTIONS_CONVERT_CUH

#include "emulator/warp.h"
#include "numbers/e4m3.h"
#include <cmath>
#include <cuda_runtime.h>
#include <stdint.h>

/* The architecture whose code path is compiled, which must have the instruction. */
inline void nn_emulated_requires(unsigned architecture, const char *instruction) {
  if (__CUDA_ARCH__ < architecture) {
    nn_emulated_fail("%s needs sm_%u, this is sm_%u", instruction, architecture / 10, (unsigned)__CUDA_ARCH__ / 10);
  }
}

struct nn_f16 {
  uint16_t bits;
};
struct nn_bf16 {
  uint16_t bits;
};
struct nn_e4m3 {
  uint8_t bits;
};

/* Rounds a finite |x| to a multiple of 2^exponent, ties to even. Exact in double for every f32 and every exponent here.
 */
inline double nn_emulated_round(double x, int exponent) {
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

inline uint16_t nn_f32_to_f16(float x) {
  if (std::isnan(x)) {
    return 0x7fff;
  }
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::fabs((double)x);
  if (a == 0) {
    return sign;
  }
  int e = std::isinf(x) ? 16 : std::ilogb(a);
  e = e < -14 ? -14 : e; /* below 2^-14 f16 has a fixed spacing, 2^-24 */
  const double r = e > 15 ? 65536.0 : nn_emulated_round(a, e - 10);
  if (r >= 65536.0) {
    return sign | 0x7c00;
  }
  /* The bits above zero count the spacings of 2^-24 up to 2^-14, then 1024 to each power of two. */
  if (r < 0x1p-14) {
    return (uint16_t)(sign | (uint16_t)std::ldexp(r, 24));
  }
  e = std::ilogb(r);
  return (uint16_t)(sign | ((e + 15) << 10) | (uint16_t)(std::ldexp(r, 10 - e) - 1024));
}

inline float nn_emulated_f16_value(uint16_t x) {
  const int e = x >> 10 & 31, m = x & 1023;
  if (e == 31 && m != 0) {
    return __uint_as_float(0x7fffffffu);
  }
  const float a = e == 31 ? INFINITY : e == 0 ? std::ldexp((float)m, -24) : std::ldexp((float)(m + 1024), e - 25);
  return x & 0x8000 ? -a : a;
}

/* Looked up, since emulated products convert every operand. */
inline float nn_f16_to_f32(uint16_t x) {
  static const struct table {
    float values[65536];
    table() {
      for (unsigned i = 0; i < 65536; i++) {
        values[i] = nn_emulated_f16_value((uint16_t)i);
      }
    }
  } table;
  return table.values[x];
}

inline uint16_t nn_f32_to_bf16(float x) {
  if (std::isnan(x)) {
    return 0x7fff;
  }
  /* Of the two bf16 around x (bit patterns count up with the magnitude), the nearer; of equally near ones the even. */
  const uint32_t u = __float_as_uint(x), below = u >> 16, rest = u & 0xffffu;
  return (uint16_t)(below + (rest > 0x8000u || (rest == 0x8000u && (below & 1u)) ? 1u : 0u));
}

inline float nn_bf16_to_f32(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }

inline uint32_t nn_f32x2_to_f16x2(float low, float high) {
  return nn_f32_to_f16(low) | (uint32_t)nn_f32_to_f16(high) << 16;
}

inline uint32_t nn_f32x2_to_bf16x2(float low, float high) {
  return nn_f32_to_bf16(low) | (uint32_t)nn_f32_to_bf16(high) << 16;
}

inline float2 nn_f16x2_to_f32x2(uint32_t x) {
  return make_float2(nn_f16_to_f32((uint16_t)x), nn_f16_to_f32((uint16_t)(x >> 16)));
}

inline float2 nn_bf16x2_to_f32x2(uint32_t x) {
  return make_float2(nn_bf16_to_f32((uint16_t)x), nn_bf16_to_f32((uint16_t)(x >> 16)));
}

/* Instructions that sm_89 has, too, but one arithmetic serves all that sm_80 does; below, what the kernels do there. */
inline uint8_t nn_f32_to_e4m3(float x) {
  if (__CUDA_ARCH__ < 900) {
    return nn_e4m3_encoded(x);
  }
  if (std::isnan(x)) {
    return 0x7f;
  }
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const double a = std::fmin(std::fabs((double)x), 448.0);
  if (a == 0) {
    return sign;
  }
  int e = std::ilogb(a);
  e = e < -6 ? -6 : e; /* below 2^-6 the spacing is 2^-9 */
  const double r = nn_emulated_round(a, e - 3);
  if (r < 0x1p-6) {
    return (uint8_t)(sign | (uint8_t)std::ldexp(r, 9));
  }
  e = std::ilogb(r);
  return (uint8_t)(sign | ((e + 7) << 3) | (uint8_t)(std::ldexp(r, 3 - e) - 8));
}

inline float nn_e4m3_to_f32(uint8_t x) {
  if (__CUDA_ARCH__ < 900) {
    return nn_e4m3_decoded(x);
  }
  const int e = x >> 3 & 15, m = x & 7;
  if (e == 15 && m == 7) {
    return __uint_as_float(0x7fffffffu);
  }
  const float a = e == 0 ? std::ldexp((float)m, -9) : std::ldexp((float)(m + 8), e - 10);
  return x & 0x80 ? -a : a;
}

inline uint32_t nn_e4m3x2_to_f16x2(uint16_t x) {
  return nn_f32x2_to_f16x2(nn_e4m3_to_f32((uint8_t)x), nn_e4m3_to_f32((uint8_t)(x >> 8)));
}

inline uint32_t nn_f32_to_tf32(float x) {
  nn_emulated_requires(800, "cvt.rna.tf32.f32");
  const uint32_t u = __float_as_uint(x);
  if (std::isnan(x)) {
    return 0x7fffffffu & ~0x1fffu;
  }
  return std::isinf(x) ? u : (u + 0x1000u) & ~0x1fffu; /* half a spacing of 2^13 bits up: ties away from zero */
}

/* Correctly rounded, where the hardware may be 2 units off. */
inline float nn_exp2_approx(float x) {
  const float y = (float)std::exp2((double)x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline float nn_reciprocal_approx(float x) {
  const float y = 1.0f / x;
  return std::fabs(y) < 0x1p-126f ? std::copysign(0.0f, y) : y;
}

#endif

/* CUDA's mathematical functions that the C library lacks. */
#ifndef NN_EMULATOR_MATH_H
#define NN_EMULATOR_MATH_H

#include "builtins.h"

/* ---- rounded operations that the compiler must not join to a multiply-add */
#if defined(__x86_64__)
#define NN_KEEP(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define NN_KEEP(x) __asm__("" : "+w"(x))
#else
#define NN_KEEP(x) __asm__("" : "+m"(x))
#endif
#define NN_ROUNDED(name, T, expression)                                                                                \
  inline T name(T x, T y) {                                                                                            \
    T result = (expression);                                                                                           \
    NN_KEEP(result);                                                                                                   \
    return result;                                                                                                     \
  }
NN_ROUNDED(__fadd_rn, float, x + y)
NN_ROUNDED(__fmul_rn, float, x *y)
NN_ROUNDED(__fdiv_rn, float, x / y)
NN_ROUNDED(__dadd_rn, double, x + y)
NN_ROUNDED(__dmul_rn, double, x *y)
#undef NN_ROUNDED

/* To the nearest, saturating, NaN becomes 0 (a C cast would be undefined). */
inline unsigned long long __float2ull_rn(float x) {
  const float rounded = nearbyintf(x);
  return !(rounded > 0) ? 0 : rounded >= 0x1p64f ? ~0ull : (unsigned long long)rounded;
}
inline float __int2float_rn(int x) { return (float)x; }

/* Newer C libraries have some of these, so they get names of their own. */
#define cospi nn_cospi
#define sincospi nn_sincospi
/* sin(pi x): x is brought to the nearest quarter turn exactly first, so large x lose nothing. */
inline void sincospi(double x, double *sine, double *cosine) {
  const double quarters = nearbyint(2.0 * fmod(x, 2.0)), rest = (fmod(x, 2.0) - 0.5 * quarters) * M_PI;
  const double s = sin(rest), c = cos(rest);
  switch ((int)quarters & 3) {
  case 0:
    *sine = s, *cosine = c;
    break;
  case 1:
    *sine = c, *cosine = -s;
    break;
  case 2:
    *sine = -s, *cosine = -c;
    break;
  default:
    *sine = -c, *cosine = s;
    break;
  }
}
inline double cospi(double x) {
  double s, c;
  sincospi(x, &s, &c);
  return c;
}

#endif

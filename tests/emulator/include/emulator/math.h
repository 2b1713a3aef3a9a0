/* CUDA's mathematical functions that the C library lacks. The fast ones (__expf ...) are the exact ones here: how wrong
 * a GPU's are is not imitated. */
#ifndef NN_EMULATOR_MATH_H
#define NN_EMULATOR_MATH_H

#include "builtins.h"

/* ---- min and max of any two numbers; of floats the one that is not NaN, as on the device */
template <class A, class B>
using nn_both_numbers = typename std::enable_if<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                                                typename std::common_type<A, B>::type>::type;
template <class A, class B> constexpr nn_both_numbers<A, B> min(A a, B b) {
  using T = nn_both_numbers<A, B>;
  const T x = (T)a, y = (T)b;
  return y < x || x != x ? y : x;
}
template <class A, class B> constexpr nn_both_numbers<A, B> max(A a, B b) {
  using T = nn_both_numbers<A, B>;
  const T x = (T)a, y = (T)b;
  return y > x || x != x ? y : x;
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }

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
NN_ROUNDED(__fsub_rn, float, x - y)
NN_ROUNDED(__fmul_rn, float, x *y)
NN_ROUNDED(__fdiv_rn, float, x / y)
NN_ROUNDED(__dadd_rn, double, x + y)
NN_ROUNDED(__dsub_rn, double, x - y)
NN_ROUNDED(__dmul_rn, double, x *y)
NN_ROUNDED(__ddiv_rn, double, x / y)
#undef NN_ROUNDED
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }

/* ---- conversions: saturating, NaN becomes 0 (a C cast would be undefined) */
template <class To, class From> inline To nn_saturated(From rounded) {
  const From limit = (From)(1ull << (8 * sizeof(To) - 2)) * (std::is_signed<To>::value ? 2 : 4);
  const bool below = std::is_signed<To>::value ? rounded < -limit : rounded < 0;
  return rounded != rounded ? 0
         : below            ? std::numeric_limits<To>::min()
         : rounded >= limit ? std::numeric_limits<To>::max()
                            : (To)rounded;
}
#define NN_TO_INTEGER(from, From, to, To)                                                                              \
  inline To __##from##2##to##_rn(From x) { return nn_saturated<To>((From)nearbyint(x)); }                              \
  inline To __##from##2##to##_rz(From x) { return nn_saturated<To>((From)trunc(x)); }                                  \
  inline To __##from##2##to##_rd(From x) { return nn_saturated<To>((From)floor(x)); }                                  \
  inline To __##from##2##to##_ru(From x) { return nn_saturated<To>((From)ceil(x)); }
NN_TO_INTEGER(float, float, int, int)
NN_TO_INTEGER(float, float, uint, unsigned)
NN_TO_INTEGER(float, float, ll, long long)
NN_TO_INTEGER(float, float, ull, unsigned long long)
NN_TO_INTEGER(double, double, int, int)
NN_TO_INTEGER(double, double, uint, unsigned)
NN_TO_INTEGER(double, double, ll, long long)
NN_TO_INTEGER(double, double, ull, unsigned long long)
#undef NN_TO_INTEGER
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }

/* ---- fast functions */
inline float __saturatef(float x) { return x >= 1 ? 1.0f : x > 0 ? x : 0.0f; }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }

/* ---- what C lacks; newer C libraries have some of them, so these get names of their own */
#define rsqrt nn_rsqrt
#define rsqrtf nn_rsqrtf
#define sinpi nn_sinpi
#define sinpif nn_sinpif
#define cospi nn_cospi
#define cospif nn_cospif
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
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
inline void sincospif(float x, float *sine, float *cosine) {
  double s, c;
  sincospi(x, &s, &c);
  *sine = (float)s, *cosine = (float)c;
}
inline double sinpi(double x) {
  double s, c;
  sincospi(x, &s, &c);
  return s;
}
inline double cospi(double x) {
  double s, c;
  sincospi(x, &s, &c);
  return c;
}
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }
inline float norm3df(float a, float b, float c) { return (float)sqrt((double)a * a + (double)b * b + (double)c * c); }
inline float norm4df(float a, float b, float c, float d) {
  return (float)sqrt((double)a * a + (double)b * b + (double)c * c + (double)d * d);
}
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
inline float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
inline float normcdff(float x) { return (float)(0.5 * erfc(-M_SQRT1_2 * (double)x)); }
inline double normcdf(double x) { return 0.5 * erfc(-M_SQRT1_2 * x); }

#endif

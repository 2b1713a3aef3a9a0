/* Device functions that threads use together, and those on memory and bits. As in the CUDA C++ Programming Guide, §10.
 */
#ifndef NN_EMULATOR_BUILTINS_H
#define NN_EMULATOR_BUILTINS_H

#include "language.h"

/* ---- barriers */
inline void __syncthreads(nn_site site = nn_site::here()) { nn_emulated_barrier(0, 0, 0, site.in("__syncthreads")); }
inline int __syncthreads_count(int predicate, nn_site site = nn_site::here()) {
  return (int)nn_emulated_barrier(0, 0, predicate != 0, site.in("__syncthreads_count"));
}
inline int __syncthreads_or(int predicate, nn_site site = nn_site::here()) {
  return nn_emulated_barrier(0, 0, predicate != 0, site.in("__syncthreads_or")) != 0;
}
inline int __syncthreads_and(int predicate, nn_site site = nn_site::here()) {
  return nn_emulated_barrier(0, 0, predicate == 0, site.in("__syncthreads_and")) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, nn_site site = nn_site::here()) {
  nn_emulated_exchange(mask, nullptr, 0, site.in("__syncwarp"));
}
/* One thread runs at a time and memory is the host's, so fences have only the compiler to hold back. */
inline void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
inline void __threadfence() { __asm__ volatile("" ::: "memory"); }
inline void __threadfence_system() { __asm__ volatile("" ::: "memory"); }
inline void __nanosleep(unsigned, nn_site site = nn_site::here()) { nn_emulated_yield(site.in("__nanosleep")); }
[[noreturn]] inline void __trap() { nn_emulated_fail("__trap()"); }

/* ---- shuffles */
/* What lane `source` gave; 0xff bytes when it takes no part, where a GPU's answer is undefined. */
template <class T> T nn_shuffled(unsigned mask, T value, unsigned source, nn_site site) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 2, 4 or 8 bytes");
  const T *all = nn_emulated_gather(mask, value, site);
  if (mask >> source & 1) {
    return all[source];
  }
  T poison;
  memset(&poison, 0xff, sizeof poison);
  return poison;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, nn_site site = nn_site::here()) {
  const unsigned lane = nn_emulated_lane(), segment = (unsigned)width - 1;
  return nn_shuffled(mask, value, (lane & ~segment) | ((unsigned)source & segment), site.in("__shfl_sync"));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, nn_site site = nn_site::here()) {
  const unsigned lane = nn_emulated_lane(), in_segment = lane & ((unsigned)width - 1);
  return nn_shuffled(mask, value, delta > in_segment ? lane : lane - delta, site.in("__shfl_up_sync"));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, nn_site site = nn_site::here()) {
  const unsigned lane = nn_emulated_lane(), in_segment = lane & ((unsigned)width - 1);
  const bool inside = delta < (unsigned)width && in_segment + delta < (unsigned)width;
  return nn_shuffled(mask, value, inside ? lane + delta : lane, site.in("__shfl_down_sync"));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, nn_site site = nn_site::here()) {
  const unsigned lane = nn_emulated_lane(), source = lane ^ (unsigned)lane_mask;
  return nn_shuffled(mask, value, source <= (lane | ((unsigned)width - 1)) ? source : lane, site.in("__shfl_xor_sync"));
}

/* ---- votes, matches, reductions */
inline unsigned nn_voted(unsigned mask, int predicate, nn_site site) {
  const unsigned char *all = nn_emulated_gather(mask, (unsigned char)(predicate != 0), site);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    votes |= (unsigned)(all[lane] == 1) << lane;
  }
  return votes & mask;
}
inline unsigned __ballot_sync(unsigned mask, int predicate, nn_site site = nn_site::here()) {
  return nn_voted(mask, predicate, site.in("__ballot_sync"));
}
inline int __any_sync(unsigned mask, int predicate, nn_site site = nn_site::here()) {
  return nn_voted(mask, predicate, site.in("__any_sync")) != 0;
}
inline int __all_sync(unsigned mask, int predicate, nn_site site = nn_site::here()) {
  return nn_voted(mask, !predicate, site.in("__all_sync")) == 0;
}
template <class T> unsigned __match_any_sync(unsigned mask, T value, nn_site site = nn_site::here()) {
  const T *all = nn_emulated_gather(mask, value, site.in("__match_any_sync"));
  unsigned equal = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    equal |= (unsigned)(memcmp(&all[lane], &value, sizeof value) == 0) << lane;
  }
  return equal & mask;
}
template <class T> unsigned __match_all_sync(unsigned mask, T value, int *same, nn_site site = nn_site::here()) {
  const T *all = nn_emulated_gather(mask, value, site.in("__match_all_sync"));
  *same = 1;
  for (unsigned lane = 0; lane < 32; lane++) {
    *same &= !(mask >> lane & 1) || memcmp(&all[lane], &value, sizeof value) == 0;
  }
  return *same ? mask : 0;
}
template <class T, class F> T nn_reduced(unsigned mask, T value, F combine, nn_site site) {
  static_assert(std::is_same<T, int>::value || std::is_same<T, unsigned>::value, "int or unsigned, sm_80 and up");
  const T *all = nn_emulated_gather(mask, value, site);
  T result = all[__builtin_ctz(mask)];
  for (unsigned rest = mask & (mask - 1); rest; rest &= rest - 1) {
    result = combine(result, all[__builtin_ctz(rest)]);
  }
  return result;
}
#define NN_REDUCE(name, expression)                                                                                    \
  template <class T> T name(unsigned mask, T value, nn_site site = nn_site::here()) {                                  \
    return nn_reduced(mask, value, [](T a, T b) { return (T)(expression); }, site.in(#name));                          \
  }
NN_REDUCE(__reduce_add_sync, (unsigned)a + (unsigned)b)
NN_REDUCE(__reduce_min_sync, a < b ? a : b)
NN_REDUCE(__reduce_max_sync, a > b ? a : b)
NN_REDUCE(__reduce_and_sync, a &b)
NN_REDUCE(__reduce_or_sync, a | b)
NN_REDUCE(__reduce_xor_sync, a ^ b)
#undef NN_REDUCE

/* ---- memory. Templates, so that the compiler's check of alignment sees the type. */
#define NN_LOAD(name)                                                                                                  \
  template <class T> inline T name(const T *p) { return *p; }
NN_LOAD(__ldg);
NN_LOAD(__ldca);
NN_LOAD(__ldcg);
NN_LOAD(__ldcs);
NN_LOAD(__ldlu);
NN_LOAD(__ldcv);
#undef NN_LOAD
#define NN_STORE(name)                                                                                                 \
  template <class T> inline void name(T *p, T value) { *p = value; }
NN_STORE(__stwb);
NN_STORE(__stcg);
NN_STORE(__stcs);
NN_STORE(__stwt);
#undef NN_STORE
inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)p; }
inline size_t __cvta_generic_to_global(const void *p) { return (size_t)p; }

/* Only integers: sums of floats in an order that changes are not allowed here, so they do not compile. */
#define NN_ATOMIC(name, T, expression)                                                                                 \
  inline T name(T *p, T value) {                                                                                       \
    const T old = *p;                                                                                                  \
    *p = (T)(expression);                                                                                              \
    return old;                                                                                                        \
  }
#define NN_ATOMIC_WORDS(name, expression)                                                                              \
  NN_ATOMIC(name, int, expression)                                                                                     \
  NN_ATOMIC(name, unsigned, expression)                                                                                \
  NN_ATOMIC(name, unsigned long long, expression)
NN_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)value)
NN_ATOMIC(atomicAdd, unsigned, old + value)
NN_ATOMIC(atomicAdd, unsigned long long, old + value)
NN_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
NN_ATOMIC(atomicSub, unsigned, old - value)
NN_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
NN_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
NN_ATOMIC_WORDS(atomicMin, value < old ? value : old)
NN_ATOMIC(atomicMin, long long, value < old ? value : old)
NN_ATOMIC_WORDS(atomicMax, value > old ? value : old)
NN_ATOMIC(atomicMax, long long, value > old ? value : old)
NN_ATOMIC_WORDS(atomicAnd, old &value)
NN_ATOMIC_WORDS(atomicOr, old | value)
NN_ATOMIC_WORDS(atomicXor, old ^ value)
NN_ATOMIC_WORDS(atomicExch, value)
NN_ATOMIC(atomicExch, float, value)
#undef NN_ATOMIC_WORDS
#undef NN_ATOMIC
#define NN_CAS(T)                                                                                                      \
  inline T atomicCAS(T *p, T expected, T value) {                                                                      \
    const T old = *p;                                                                                                  \
    *p = old == expected ? value : old;                                                                                \
    return old;                                                                                                        \
  }
NN_CAS(int);
NN_CAS(unsigned);
NN_CAS(unsigned long long);
NN_CAS(unsigned short);
#undef NN_CAS

/* ---- bits */
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long reversed = 0;
  for (int i = 0; i < 64; i++) {
    reversed |= (x >> i & 1) << (63 - i);
  }
  return reversed;
}
inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned pick = selector >> (4 * i) & 15, byte = bytes >> (8 * (pick & 7)) & 255;
    result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 32; i += 8) {
    sum += (a >> i & 255) * (b >> i & 255);
  }
  return sum;
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) {
    sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
  }
  return sum;
}

template <class To, class From> inline To nn_bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline int __float_as_int(float x) { return nn_bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return nn_bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return nn_bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return nn_bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return nn_bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return nn_bits_as<double>(x); }
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

#endif

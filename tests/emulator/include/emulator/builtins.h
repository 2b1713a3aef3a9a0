/* Device functions that threads use together, and those on memory and bits. As in the CUDA C++ Programming Guide, §10.
 */
#ifndef NN_EMULATOR_BUILTINS_H
#define NN_EMULATOR_BUILTINS_H

#include "language.h"

/* ---- barriers */
inline void __syncthreads(nn_site site = nn_site::here()) { nn_emulated_barrier(0, 0, site.in("__syncthreads")); }
inline void __syncwarp(unsigned mask = ~0u, nn_site site = nn_site::here()) {
  nn_emulated_exchange(mask, nullptr, 0, site.in("__syncwarp"));
}
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

/* ---- votes and matches */
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
template <class T> unsigned __match_any_sync(unsigned mask, T value, nn_site site = nn_site::here()) {
  const T *all = nn_emulated_gather(mask, value, site.in("__match_any_sync"));
  unsigned equal = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    equal |= (unsigned)(memcmp(&all[lane], &value, sizeof value) == 0) << lane;
  }
  return equal & mask;
}

/* ---- memory. Templates, so that the compiler's check of alignment sees the type. */
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
inline void __threadfence() {} /* one thread runs at a time and sees everything written before it */
inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)p; }
inline size_t __cvta_generic_to_global(const void *p) { return (size_t)p; }

/* Only integers: sums of floats in an order that changes are not allowed here, so they do not compile. */
#define NN_ATOMIC_ADD(T)                                                                                               \
  inline T atomicAdd(T *p, T value) {                                                                                  \
    const T old = *p;                                                                                                  \
    *p = (T)((unsigned)old + (unsigned)value);                                                                         \
    return old;                                                                                                        \
  }
NN_ATOMIC_ADD(int)
NN_ATOMIC_ADD(unsigned)
#undef NN_ATOMIC_ADD
inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long value) {
  const unsigned long long old = *p;
  *p = old + value;
  return old;
}
inline int atomicCAS(int *p, int expected, int value) {
  const int old = *p;
  *p = old == expected ? value : old;
  return old;
}

/* ---- bits */
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
/* Bytes of the eight of low and high that the low four bits of each half byte of `which` number; bit 3 of one counts
 * for nothing, as the intrinsic has it. */
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
  const uint64_t both = (uint64_t)high << 32 | low;
  unsigned y = 0;
  for (unsigned i = 0; i < 4; i++) {
    y |= (unsigned)(both >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
  }
  return y;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
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

#endif

/* Arithmetic of sizes, and what functions of it are marked with that must run everywhere. */
#ifndef NN_NUMBERS_SIZES_H
#define NN_NUMBERS_SIZES_H

#include <stdint.h>

/* A function that runs on any processor, whatever instruction set its file is compiled for: one that lays out a
 * workspace, since a run on one processor may be planned on another, and all that it calls. */
#if defined(__x86_64__) && !defined(__cplusplus)
#define NN_PLAIN __attribute__((target("no-avx")))
#else
#define NN_PLAIN
#endif

/* A function of numbers that kernels and host code share. */
#ifdef __CUDACC__
#define NN_NUMBER_FUNCTION static inline __host__ __device__
#else
#define NN_NUMBER_FUNCTION static inline
#endif

#if defined(__CUDACC__)
#define NN_SIZE_FUNCTION __host__ __device__ constexpr
#elif defined(__cplusplus)
#define NN_SIZE_FUNCTION constexpr
#else
#define NN_SIZE_FUNCTION NN_PLAIN static inline __attribute__((always_inline, unused))
#endif
NN_SIZE_FUNCTION int64_t nn_min(int64_t a, int64_t b) { return a < b ? a : b; }
NN_SIZE_FUNCTION int64_t nn_max(int64_t a, int64_t b) { return a > b ? a : b; }
NN_SIZE_FUNCTION int64_t nn_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
NN_SIZE_FUNCTION int64_t nn_round_up(int64_t a, int64_t b) { return nn_ceil_div(a, b) * b; }

#endif

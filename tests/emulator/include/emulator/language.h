/* CUDA's words and built-in types as plain C++: qualifiers, vectors, the thread's coordinates. */
#ifndef NN_EMULATOR_LANGUAGE_H
#define NN_EMULATOR_LANGUAGE_H

#include "warp.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <limits>

/* Tells that a source is compiled for the emulator. */
#define NN_EMULATED 1

/* sm_90 is emulated with what only sm_90a has (wgmma, setmaxnreg). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
/* Blocks run one at a time on one thread of the system, so a block's variables can be static. The mark beside them lets
 * shared.cpp know the functions whose static variables these are. */
#define __shared__ NN_SHARED_MARKED(__COUNTER__)
#define NN_SHARED_MARKED(n) NN_SHARED_MARKED_(n)
#define NN_SHARED_MARKED_(n)                                                                                           \
  static __attribute__((used)) char nn_shared_mark_##n;                                                                \
  static
/* The block's dynamic shared memory (kernel.cuh has this for the GPU). */
#define NN_SHARED_BYTES(name) unsigned char *const name = nn_emulated_shared()
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define NN_VECTOR(name, type)                                                                                          \
  struct alignas(8) name##2 { type x, y; };                                                                            \
  struct name##3 { type x, y, z; };                                                                                    \
  struct alignas(16) name##4 { type x, y, z, w; };                                                                     \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                     \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                          \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

NN_VECTOR(int, int)
NN_VECTOR(uint, unsigned)
NN_VECTOR(float, float)
#undef NN_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

/* Set whenever another fiber or block continues. Not const: the compiler must read them anew after every wait. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

#endif

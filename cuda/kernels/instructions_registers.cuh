/* What tells the compiler to leave registers free. */
#ifndef NN_INSTRUCTIONS_REGISTERS_CUH
#define NN_INSTRUCTIONS_REGISTERS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* The same number, as one that the compiler has not met: what is made of it is computed anew where it is used, and does
 * not wait in registers from before a loop. */
__device__ __forceinline__ uint32_t nn_anew(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

/* A number that all lanes of the warp have alike, known to be so: it may lie in a uniform register, where descriptors
 * are computed beside what the lanes do. All 32 lanes must call. */
__device__ __forceinline__ uint32_t nn_uniform(uint32_t x) { return __shfl_sync(0xffffffff, x, 0); }

#endif

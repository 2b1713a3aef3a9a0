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

#endif

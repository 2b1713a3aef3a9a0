/* What passes between a kernel and those before and after it in a stream (programmatic dependent launch). */
#ifndef NN_INSTRUCTIONS_GRID_CUH
#define NN_INSTRUCTIONS_GRID_CUH

#include <cuda_runtime.h>

/* Waits until all kernels before this one have ended and what they wrote can be read. Nothing where the kernel was not
 * started ahead of their end. griddepcontrol.wait. */
__device__ __forceinline__ void nn_wait_for_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the kernel after this one start, as far as it was launched so, once all blocks have come here or ended. What it
 * may read it knows by nn_wait_for_kernels alone. griddepcontrol.launch_dependents. */
__device__ __forceinline__ void nn_let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Brings a line of memory to the second cache. prefetch.global.L2, PTX 9.7.9. */
__device__ __forceinline__ void nn_prefetch(const void *from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

#endif

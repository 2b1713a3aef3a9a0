/* Blocks that share a result: the one that ends last finishes it, and sees what the others have left. */
#ifndef NN_KERNELS_LAST_BLOCK_CUH
#define NN_KERNELS_LAST_BLOCK_CUH

#include "kernels/kernel.cuh"

/* Whether the block is the last one of `blocks` to come here. `arrivals` is theirs alone, 0 before and after. All
 * threads call it; `shared` is free. */
__device__ __forceinline__ bool nn_is_last_block(unsigned *arrivals, int64_t blocks, int *shared) {
  if (blocks <= 1) {
    __syncthreads();
    return true;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool last = atomicAdd(arrivals, 1u) == blocks - 1;
    if (last) {
      *arrivals = 0; /* for the next launch */
    }
    *shared = last;
  }
  __syncthreads();
  const bool last = *shared != 0;
  __threadfence();
  __syncthreads();
  return last;
}

/* What other blocks wrote, past this multiprocessor's own cache. clang 19, which checks the code for sm_70, has no
 * __ldcg. */
static __device__ __forceinline__ float nn_from_others(const float *p) {
#ifdef __clang__
  return *(const volatile float *)p;
#else
  return __ldcg(p);
#endif
}

#endif

/* Which code has kernels by the instructions of sm_90a. */
#ifndef NN_KERNELS_WGMMA_KERNEL_CUH
#define NN_KERNELS_WGMMA_KERNEL_CUH

#include "kernels/kernel.cuh"

/* Code of other architectures has no such kernels, and says so by launch bounds of one warp: the host asks for the most
 * threads that the code loaded on this GPU can be started with. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool NN_HAS_WGMMA = true;
#else
constexpr bool NN_HAS_WGMMA = false;
#endif

/* Whether the code on this GPU has a kernel, which takes `threads`. The GPUs of one architecture have the same code, so
 * the answer is kept in `known`, at first 0. */
inline bool nn_wgmma_loaded(const void *kernel, int threads, int *known) {
  int found = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (found == 0) {
    cudaFuncAttributes attributes;
    const bool there =
        cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.maxThreadsPerBlock >= threads;
    found = there ? 1 : -1;
    __atomic_store_n(known, found, __ATOMIC_RELAXED);
  }
  return found > 0;
}

#endif

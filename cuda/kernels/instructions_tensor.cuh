/*
 * The copy engine's copies of boxes of tensors between global and shared memory (TMA; sm_90+). A CUtensorMap says how
 * the tensor lies in global memory and how a box lies in shared memory (kernels/tensormap.cuh makes them); the kernel
 * takes it as a `const __grid_constant__ CUtensorMap` parameter and passes its address.
 *
 * Coordinates count elements, the contiguous dimension first, and may lie outside: what a box has outside of its tensor
 * is loaded as zeros, and not stored. The first coordinate comes to a multiple of 16 bytes, or the instruction is an
 * illegal one (so an H200; the manual does not say it). The shared address of a box is aligned to 128 bytes; with a
 * swizzle, here, to the pattern's size (1024 bytes for 128-byte rows, 512 for 64, 256 for 32: PTX 5.5.7), so that the
 * pattern depends on the address bits alone: bits 4-6 are XORed with bits 7-9 (two bits and one for the narrower ones).
 */
#ifndef NN_INSTRUCTIONS_TENSOR_CUH
#define NN_INSTRUCTIONS_TENSOR_CUH

#include "kernels/instructions_absent.cuh"
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* clang 19, which checks the code for sm_70, does not know the attribute. */
#if defined(__clang__) && !__has_attribute(grid_constant)
#undef __grid_constant__
#define __grid_constant__
#endif

/* How L2 treats what a copy touches: as it does by itself. sm_80+. createpolicy, PTX 9.7.9.18. */
__device__ __forceinline__ uint64_t nn_l2_evict_normal() {
#if __CUDA_ARCH__ >= 800
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
#else
  nn_absent();
  return 0;
#endif
}

/* Fetches a tensor map ahead of its use, from a kernel parameter. prefetch.tensormap, PTX 9.7.9.15. */
__device__ __forceinline__ void nn_tensor_prefetch(const CUtensorMap *map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#else
  nn_absent(map);
#endif
}

/* By one thread: starts to copy the box at these coordinates to shared memory. Its bytes are counted on the barrier,
 * which must expect them (nn_mbarrier_arrive_expect); the box is there when the barrier's phase has ended.
 * cp.async.bulk.tensor, PTX 9.7.9.25.5.2. */
__device__ __forceinline__ void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                               uint64_t policy, int32_t c0, int32_t c1) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared),
               "l"(map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1)
               : "memory");
#else
  nn_absent(shared, map, barrier, policy, c0, c1);
#endif
}

__device__ __forceinline__ void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                               uint64_t policy, int32_t c0, int32_t c1, int32_t c2) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared),
               "l"(map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
#else
  nn_absent(shared, map, barrier, policy, c0, c1, c2);
#endif
}

__device__ __forceinline__ void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                               uint64_t policy, int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared),
               "l"(map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
#else
  nn_absent(shared, map, barrier, policy, c0, c1, c2, c3);
#endif
}

/* By one thread: starts to copy a box from shared memory to the tensor, as part of this thread's group of such copies.
 * What other threads wrote there, each has followed by nn_fence_async_shared before a barrier. cp.async.bulk.tensor,
 * PTX 9.7.9.25.5.2. */
__device__ __forceinline__ void nn_tensor_store(const CUtensorMap *map, uint32_t shared, int32_t c0, int32_t c1,
                                                int32_t c2) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
#else
  nn_absent(map, shared, c0, c1, c2);
#endif
}

/* Closes the group of the boxes that this thread stores since the last group. cp.async.bulk.commit_group,
 * PTX 9.7.9.25.6.1. */
__device__ __forceinline__ void nn_tensor_store_commit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  nn_absent();
#endif
}

/* Waits until at most PENDING of this thread's newest groups have not been read from shared memory, which may then be
 * written again. All of them must be before the block ends; the tensor has them when the kernel has ended.
 * cp.async.bulk.wait_group.read, PTX 9.7.9.25.6.2. */
template <int PENDING> __device__ __forceinline__ void nn_tensor_store_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
#else
  nn_absent();
#endif
}

#endif

/*
 * Barriers in shared memory that also count the bytes of asynchronous copies (mbarrier, PTX 9.7.13.15), barriers of
 * some of a block's warps, fences between ordinary accesses and the copy engine's, and what steers warps.
 */
#ifndef NN_INSTRUCTIONS_BARRIER_CUH
#define NN_INSTRUCTIONS_BARRIER_CUH

#include "kernels/instructions_absent.cuh"
#include <cuda_runtime.h>
#include <stdint.h>

/*
 * An mbarrier is 8 bytes of shared memory, 8-byte aligned. It goes through phases 0, 1, 2, ...: a phase ends when
 * `count` arrivals have come and all expected bytes have been copied. Waiting names a phase by its parity, which must
 * be that of the current phase or of the one before; so a fresh barrier counts as having ended a phase of parity 1. All
 * sm_90+.
 *
 * One thread initialises, calls nn_fence_mbarrier_init, and __syncthreads lets the others see it. mbarrier.init,
 * PTX 9.7.13.15.9.
 */
__device__ __forceinline__ void nn_mbarrier_init(uint32_t barrier, uint32_t count) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
#else
  nn_absent(barrier, count);
#endif
}

/* Makes barriers that this thread initialised known to the copy engine. fence.mbarrier_init, PTX 9.7.13.4. */
__device__ __forceinline__ void nn_fence_mbarrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  nn_absent();
#endif
}

/* One arrival; what this thread did before is seen by those who wait for the phase. mbarrier.arrive,
 * PTX 9.7.13.15.13. */
__device__ __forceinline__ void nn_mbarrier_arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#else
  nn_absent(barrier);
#endif
}

/* One arrival, and the current phase also waits for `bytes` more to be copied: all bytes of the boxes that are loaded
 * on it, those outside of the tensor included. Before the loads. mbarrier.arrive.expect_tx, PTX 9.7.13.15.13. */
__device__ __forceinline__ void nn_mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#else
  nn_absent(barrier, bytes);
#endif
}

/* Whether the phase of this parity has ended; may sleep for a while before it says no. mbarrier.try_wait.parity,
 * PTX 9.7.13.15.16. */
__device__ __forceinline__ bool nn_mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t ended;
  asm volatile("{\n"
               ".reg .pred ended;\n"
               "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
               "selp.u32 %0, 1, 0, ended;\n"
               "}"
               : "=r"(ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return ended != 0;
#else
  nn_absent(barrier, parity);
  return true;
#endif
}

__device__ __forceinline__ void nn_mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!nn_mbarrier_try_wait(barrier, parity)) {
  }
}

/* Orders this thread's ordinary accesses to shared memory before those of the copy engine and of wgmma: after writing
 * what they read, before the barrier that tells the thread which starts them. fence.proxy.async, PTX 9.7.13.4. */
__device__ __forceinline__ void nn_fence_async_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  nn_absent();
#endif
}

/* A barrier of `threads` (a multiple of 32) of the block's threads, whole warps. `barrier` is 1 to 15; __syncthreads
 * has 0. bar.sync, PTX 9.7.13.1. */
__device__ __forceinline__ void nn_barrier_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The same without waiting for the others: those that call nn_barrier_sync wait for these threads, too. bar.arrive,
 * PTX 9.7.13.1. */
__device__ __forceinline__ void nn_barrier_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* True in one lane of the warp, always the same one, but not said which. All 32 lanes must call. sm_90+. elect.sync,
 * PTX 9.7.13.14. */
__device__ __forceinline__ bool nn_elect() {
#if __CUDA_ARCH__ >= 900
  uint32_t elected;
  asm volatile("{\n"
               ".reg .pred elected;\n"
               "elect.sync _|elected, 0xffffffff;\n"
               "selp.u32 %0, 1, 0, elected;\n"
               "}"
               : "=r"(elected));
  return elected != 0;
#else
  nn_absent();
  return false;
#endif
}

/* Raises or lowers to REGISTERS (24 to 256, a multiple of 8) what each thread of the calling warpgroup may use; raising
 * waits until others have lowered. Only in kernels with __launch_bounds__(threads, 1), each role in its own branch.
 * sm_90a. setmaxnreg, PTX 9.7.19.5. */
template <int REGISTERS> __device__ __forceinline__ void nn_registers_raise() {
  static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#else
  nn_absent();
#endif
}

template <int REGISTERS> __device__ __forceinline__ void nn_registers_lower() {
  static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#else
  nn_absent();
#endif
}

#endif

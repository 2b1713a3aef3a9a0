/*
 * How blocks of one kernel wait for one another, by numbers in global memory that only grow while it runs. Blocks that
 * share work count what is made (nn_count_raise) and wait for all of it (nn_count_wait): shared_work.cuh. Blocks that
 * take turns at a piece of global memory also have bulk copies, which store and add what a block has in shared memory:
 *
 *   wait for the number (nn_turn_wait); nn_bulk_add; nn_tensor_store_commit; nn_bulk_wait; raise it (nn_turn_raise)
 *
 * all by one thread. A block may only wait for one that certainly has begun: one with a lower ticket (nn_turn_ticket).
 */
#ifndef NN_INSTRUCTIONS_TURNS_CUH
#define NN_INSTRUCTIONS_TURNS_CUH

#include "kernels/instructions_absent.cuh"
#include <cuda_runtime.h>
#include <stdint.h>

/* How many blocks took a ticket before. */
__device__ __forceinline__ uint32_t nn_turn_ticket(uint32_t *tickets) { return atomicAdd(tickets, 1u); }

/* Adds 1 to the number, after what this thread did, and what threads did that it met at a barrier since. red.release,
 * PTX 9.7.13.6. */
__device__ __forceinline__ void nn_count_raise(uint32_t *number) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(number)) : "memory");
}

/* Waits until the number is at least `count`. What came before those additions comes before what this thread does next,
 * and what threads do that it meets at a barrier; but not before loads as of constants (__ldg). ld.acquire,
 * PTX 9.7.9.8.
 */
__device__ __forceinline__ void nn_count_wait(const uint32_t *number, uint32_t count) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(number)) : "memory");
  } while (now < count);
}

/* Waits until the number is at least `turn`. What the thread that raised it so far did before, bulk copies that it
 * waited for among it, comes before what this thread does next, bulk copies among it. ld.acquire, PTX 9.7.9.8;
 * fence.proxy.async, PTX 9.7.13.4. sm_90+. */
__device__ __forceinline__ void nn_turn_wait(const uint32_t *number, uint32_t turn) {
#if __CUDA_ARCH__ >= 900
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(number)) : "memory");
  } while (now < turn);
  asm volatile("fence.proxy.async;" ::: "memory");
#else
  nn_absent(number, turn);
#endif
}

/* Raises the number to `turn`, unless it is larger, after what this thread did and waited for. red.release,
 * PTX 9.7.13.6. sm_90+. */
__device__ __forceinline__ void nn_turn_raise(uint32_t *number, uint32_t turn) {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;\n"
               "fence.acq_rel.gpu;\n"
               "red.release.gpu.global.max.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(number)),
               "r"(turn)
               : "memory");
#else
  nn_absent(number, turn);
#endif
}

/* By one thread: starts to store `bytes` of shared memory, as part of this thread's group of such copies; addresses and
 * bytes are multiples of 16. What other threads wrote there, each has followed by nn_fence_async_shared before a
 * barrier. cp.async.bulk, PTX 9.7.9.25.4.1. sm_90+. */
__device__ __forceinline__ void nn_bulk_store(void *global, uint32_t shared, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared), "r"(bytes)
               : "memory");
#else
  nn_absent(global, shared, bytes);
#endif
}

/* The same, adding f32 to f32, rounded to the nearest; subnormal numbers may count as zero. cp.reduce.async.bulk,
 * PTX 9.7.9.25.4.2. sm_90+. */
__device__ __forceinline__ void nn_bulk_add(float *global, uint32_t shared, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(shared), "r"(bytes)
               : "memory");
#else
  nn_absent(global, shared, bytes);
#endif
}

/* Waits until at most PENDING of this thread's newest groups are unfinished: global memory has the others. With
 * nn_tensor_store_wait they have only been read. cp.async.bulk.wait_group, PTX 9.7.9.25.6.2. */
template <int PENDING> __device__ __forceinline__ void nn_bulk_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
#else
  nn_absent();
#endif
}

#endif

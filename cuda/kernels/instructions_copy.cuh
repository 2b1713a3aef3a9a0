/* Shared addresses, asynchronous copies by single threads, and loads and stores that say how they want to be cached. */
#ifndef NN_INSTRUCTIONS_COPY_CUH
#define NN_INSTRUCTIONS_COPY_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* The address within the block's shared memory of a generic pointer into it. cvta, PTX 9.7.9.20. */
__device__ __forceinline__ uint32_t nn_shared_address(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Starts to copy BYTES (4, 8 or 16; 16 bypass L1) from global to shared memory, both aligned to BYTES: the first
 * `source_bytes` (0 to BYTES) from `global`, zeros for the rest. With 0, `global` is not read, and may be any aligned
 * address of global memory. Nothing may read or write the destination until a wait below covers the copy, and others
 * than this thread not until a barrier after that. sm_80+: cp.async, PTX 9.7.9.25.3.1; below, an ordinary copy. */
template <int BYTES>
__device__ __forceinline__ void nn_copy_async(uint32_t shared, const void *global, int source_bytes = BYTES) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
#if __CUDA_ARCH__ >= 800
  const uint64_t from = (uint64_t)__cvta_generic_to_global(global);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(BYTES), "r"(source_bytes)
                 : "memory");
  }
#else
  unsigned char *to = (unsigned char *)__cvta_shared_to_generic(shared);
  const unsigned char *from = (const unsigned char *)global;
  if (source_bytes == BYTES || source_bytes == 0) {
    uint32_t words[BYTES / 4] = {};
    if (source_bytes != 0) {
      if constexpr (BYTES == 16) {
        *(uint4 *)words = *(const uint4 *)from;
      } else if constexpr (BYTES == 8) {
        *(uint2 *)words = *(const uint2 *)from;
      } else {
        words[0] = *(const uint32_t *)from;
      }
    }
    if constexpr (BYTES == 16) {
      *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (BYTES == 8) {
      *(uint2 *)to = make_uint2(words[0], words[1]);
    } else {
      *(uint32_t *)to = words[0];
    }
  } else {
    for (int i = 0; i < BYTES; i++) {
      to[i] = i < source_bytes ? from[i] : (unsigned char)0;
    }
  }
#endif
}

/* Closes the group of the copies that this thread started since the last group (an empty group is one too).
 * cp.async.commit_group, PTX 9.7.9.25.3.2. */
__device__ __forceinline__ void nn_copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most PENDING of this thread's newest groups are unfinished. cp.async.wait_group, PTX 9.7.9.25.3.3. */
template <int PENDING> __device__ __forceinline__ void nn_copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/* 16 aligned bytes of global memory that nothing writes while the kernel runs and that are read once: they take no
 * place in L1. In a kernel that calls nn_grid_wait, only after it. ld.global.nc.L1::no_allocate, PTX 9.7.9.9. */
__device__ __forceinline__ uint4 nn_load_streaming(const void *global) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(__cvta_generic_to_global(global)));
  return v;
}

/* The same for memory that this kernel writes (in-place updates). ld.global.L1::no_allocate, PTX 9.7.9.8. */
__device__ __forceinline__ uint4 nn_load_streaming_coherent(const void *global) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(global))
               : "memory");
  return v;
}

/* 16 aligned bytes to global memory, first in line to leave the caches. st.global.cs, PTX 9.7.9.11 and 9.7.9.1. */
__device__ __forceinline__ void nn_store_streaming(void *global, uint4 v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

/* Brings the cache line of a global address into L2. The address must be one that may be read.
 * prefetch.global.L2, PTX 9.7.9.15. */
__device__ __forceinline__ void nn_prefetch_l2(const void *global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
}

/* Words by which blocks hand memory to each other. What a thread wrote before a release is seen by the thread that
 * acquires the value; a barrier extends this to its block. ld.acquire, st.release, atom.acq_rel with .gpu scope,
 * sm_70+, PTX 9.7.9.8, 9.7.9.11, 9.7.13.5. */
__device__ __forceinline__ uint32_t nn_load_acquire(const uint32_t *global) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(global)) : "memory");
  return v;
}

__device__ __forceinline__ void nn_store_release(uint32_t *global, uint32_t v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(global)), "r"(v) : "memory");
}

/* Adds and returns the value before: the block that gets (blocks - 1) from a counter that began at 0 came last. */
__device__ __forceinline__ uint32_t nn_add_acquire_release(uint32_t *global, uint32_t v) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(global)), "r"(v)
               : "memory");
  return before;
}

#endif

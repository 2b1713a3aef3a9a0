/* Shared addresses, asynchronous copies by single threads, and loads past the first cache. */
#ifndef NN_INSTRUCTIONS_COPY_CUH
#define NN_INSTRUCTIONS_COPY_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* The address within the block's shared memory of a generic pointer into it. cvta, PTX 9.7.9.20. */
__device__ __forceinline__ uint32_t nn_shared_address(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Stores 4, 8 or 16 bytes to global memory, aligned to as many, at once. An ordinary store of a vector may be taken
 * apart by the compiler where branches are near. st.global, PTX 9.7.9.12. */
template <int WORDS> __device__ __forceinline__ void nn_store_global(void *to, const uint32_t (&words)[WORDS]) {
  static_assert(WORDS == 1 || WORDS == 2 || WORDS == 4, "a store has 4, 8 or 16 bytes");
  const uint64_t at = (uint64_t)__cvta_generic_to_global(to);
  if constexpr (WORDS == 4) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  } else if constexpr (WORDS == 2) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1]) : "memory");
  } else {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(words[0]) : "memory");
  }
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
 * place in L1. ld.global.nc.L1::no_allocate, PTX 9.7.9.9. */
__device__ __forceinline__ uint4 nn_load_streaming(const void *global) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(__cvta_generic_to_global(global)));
  return v;
}

#endif

/*
 * Twin of cuda/kernels/instructions_copy.cuh.
 *
 * An asynchronous copy fills its destination with NaN bits at once and happens only when a wait covers it: a kernel
 * that reads too early, overwrites a buffer that others still read, or forgets to wait gets NaN whatever the order of
 * threads.
 */
#ifndef NN_INSTRUCTIONS_COPY_CUH
#define NN_INSTRUCTIONS_COPY_CUH

#include "emulator/proxy.h"
#include "emulator/warp.h"
#include "kernels/instructions_convert.cuh"
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>
#include <utility>
#include <vector>

/* Shared addresses count from the block's dynamic shared memory, aligned to 1024 bytes as on the device. Static
 * __shared__ variables are variables of the program (emulator/language.h): those addresses lie around a number far
 * above and count from a variable of the program. Both keep alignments. */
static constexpr uint32_t nn_emulated_static_shared = 1u << 30;

inline unsigned char *nn_emulated_static_anchor() {
  alignas(1024) static unsigned char anchor[1024];
  return anchor;
}

inline uint32_t nn_shared_address(const void *pointer) {
  const uintptr_t offset = (uintptr_t)pointer - (uintptr_t)nn_emulated_shared();
  if (offset <= nn_emulated_shared_size()) {
    return (uint32_t)offset;
  }
  const intptr_t from_anchor = (intptr_t)pointer - (intptr_t)nn_emulated_static_anchor();
  if (from_anchor < -(intptr_t)(nn_emulated_static_shared / 2) || from_anchor > (intptr_t)nn_emulated_static_shared) {
    nn_emulated_fail("nn_shared_address: %p is not in shared memory", pointer);
  }
  return (uint32_t)(from_anchor + nn_emulated_static_shared);
}

template <int WORDS> inline void nn_store_global(void *to, const uint32_t (&words)[WORDS]) {
  static_assert(WORDS == 1 || WORDS == 2 || WORDS == 4, "a store has 4, 8 or 16 bytes");
  if ((uintptr_t)to % sizeof words != 0) {
    nn_emulated_fail("nn_store_global: %p is not aligned to %zu bytes", to, sizeof words);
  }
  if ((uintptr_t)to - (uintptr_t)nn_emulated_shared() < nn_emulated_shared_size()) {
    nn_emulated_fail("nn_store_global: %p is in shared memory", to);
  }
  memcpy(to, words, sizeof words);
}

/* The memory behind a shared address of an instruction that touches `bytes` bytes there, of a block of the cluster. */
inline unsigned char *nn_emulated_shared_bytes(uint32_t address, uint32_t bytes, uint32_t alignment,
                                               const char *instruction, unsigned rank) {
  if (address % alignment != 0) {
    nn_emulated_fail("%s: shared address %#x is not a multiple of %u", instruction, address, alignment);
  }
  if (address >= nn_emulated_static_shared / 2) {
    return nn_emulated_static_anchor() + ((intptr_t)address - (intptr_t)nn_emulated_static_shared);
  }
  if ((size_t)address + bytes > nn_emulated_shared_size()) {
    nn_emulated_fail("%s: bytes %#x to %#x of a block with %#zx bytes of dynamic shared memory", instruction, address,
                     address + bytes, nn_emulated_shared_size());
  }
  return nn_emulated_shared_of(rank) + address;
}
inline unsigned char *nn_emulated_shared_bytes(uint32_t address, uint32_t bytes, uint32_t alignment,
                                               const char *instruction) {
  return nn_emulated_shared_bytes(address, bytes, alignment, instruction, nn_emulated_cluster_rank());
}

/* What one thread started to copy, in groups; the last one is still open. */
struct nn_emulated_copy {
  unsigned char *to;
  const unsigned char *from;
  int bytes, source_bytes;
};
struct nn_emulated_copies {
  uint64_t block = ~(uint64_t)0;
  std::vector<std::vector<nn_emulated_copy>> groups[1024];
};

inline std::vector<std::vector<nn_emulated_copy>> &nn_emulated_copy_groups() {
  static nn_emulated_copies copies;
  if (copies.block != nn_emulated_cluster_serial()) {
    copies.block = nn_emulated_cluster_serial();
    for (auto &groups : copies.groups) {
      groups.clear();
    }
  }
  auto &groups = copies.groups[nn_emulated_thread()];
  if (groups.empty()) {
    groups.emplace_back();
  }
  return groups;
}

template <int BYTES> inline void nn_copy_async(uint32_t shared, const void *global, int source_bytes = BYTES) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  unsigned char *to = nn_emulated_shared_bytes(shared, BYTES, BYTES, "cp.async");
  if ((uintptr_t)global % BYTES != 0) {
    nn_emulated_fail("cp.async: global address %p is not a multiple of %d", global, BYTES);
  }
  if (source_bytes < 0 || source_bytes > BYTES) {
    nn_emulated_fail("cp.async: %d bytes of %d", source_bytes, BYTES);
  }
  const nn_emulated_copy copy = {to, (const unsigned char *)global, BYTES, source_bytes};
#if __CUDA_ARCH__ >= 800
  memset(to, 0xff, BYTES);
  nn_emulated_copy_groups().back().push_back(copy);
#else
  memset(to, 0, BYTES);
  memcpy(to, copy.from, (size_t)source_bytes);
#endif
}

inline void nn_copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  nn_emulated_copy_groups().emplace_back();
#endif
}

template <int PENDING> inline void nn_copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  auto &groups = nn_emulated_copy_groups();
  size_t done = 0;
  for (; groups.size() - done > (size_t)PENDING + 1; done++) {
    for (const nn_emulated_copy &copy : groups[done]) {
      memset(copy.to, 0, (size_t)copy.bytes);
      memcpy(copy.to, copy.from, (size_t)copy.source_bytes);
      nn_emulated_writes_of_block().note(nn_shared_address(copy.to), (uint32_t)copy.bytes, "cp.async");
    }
  }
  groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)done);
#endif
}

inline uint4 nn_load_streaming(const void *global) { return *(const uint4 *)global; }

#endif

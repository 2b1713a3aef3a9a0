/*
 * Twin of cuda/kernels/instructions_barrier.cuh. The state of mbarriers is kept beside shared memory, where only a mark
 * stands, so that use before initialisation, or of memory that was overwritten, is found.
 */
#ifndef NN_INSTRUCTIONS_BARRIER_CUH
#define NN_INSTRUCTIONS_BARRIER_CUH

#include "emulator/warp.h"
#include "kernels/instructions_copy.cuh"
#include <cuda_runtime.h>
#include <functional>
#include <map>
#include <stdint.h>
#include <string.h>
#include <vector>

/* PTX 9.7.13.15.2 to 9.7.13.15.7: a phase is over when no arrival is pending and the bytes are balanced. */
struct nn_emulated_mbarrier {
  uint32_t count, pending;
  int64_t bytes; /* expected, less copied */
  uint64_t phase;
  /* Copies on their way: their size, and what carries them out. That happens when somebody waits. */
  std::vector<std::pair<int64_t, std::function<void()>>> copies;

  void finish_phase() {
    if (pending == 0 && bytes == 0) {
      phase++;
      pending = count;
    }
  }
};

/* Of a block of the cluster. */
inline std::map<uint32_t, nn_emulated_mbarrier> &nn_emulated_mbarriers(unsigned rank) {
  static uint64_t cluster = ~(uint64_t)0;
  static std::map<unsigned, std::map<uint32_t, nn_emulated_mbarrier>> blocks;
  if (cluster != nn_emulated_cluster_serial()) {
    for (const auto &block : blocks) {
      for (const auto &barrier : block.second) {
        if (!barrier.second.copies.empty()) {
          nn_emulated_fail("a block before this one ended without waiting for the copies on mbarrier %#x",
                           barrier.first);
        }
      }
    }
    blocks.clear();
    cluster = nn_emulated_cluster_serial();
  }
  return blocks[rank];
}

static constexpr uint64_t nn_emulated_mbarrier_mark = 0x6d62617272696572;

inline nn_emulated_mbarrier &nn_emulated_mbarrier_of(unsigned rank, uint32_t address, const char *instruction) {
  uint64_t mark;
  memcpy(&mark, nn_emulated_shared_bytes(address, 8, 8, instruction, rank), 8);
  auto &barriers = nn_emulated_mbarriers(rank);
  const auto barrier = barriers.find(address);
  if (barrier == barriers.end() || mark != nn_emulated_mbarrier_mark) {
    nn_emulated_fail("%s: %s mbarrier at %#x%s", instruction,
                     barrier == barriers.end() ? "no" : "something was written over the", address,
                     rank == nn_emulated_cluster_rank() ? "" : " of another block of the cluster");
  }
  return barrier->second;
}
inline nn_emulated_mbarrier &nn_emulated_mbarrier_at(uint32_t address, const char *instruction) {
  return nn_emulated_mbarrier_of(nn_emulated_cluster_rank(), address, instruction);
}

inline void nn_mbarrier_init(uint32_t barrier, uint32_t count) {
  nn_emulated_requires(900, "mbarrier.init of this kind");
  if (count < 1 || count >= 1u << 20) {
    nn_emulated_fail("mbarrier.init: a count of %u", count);
  }
  unsigned char *memory = nn_emulated_shared_bytes(barrier, 8, 8, "mbarrier.init");
  auto &barriers = nn_emulated_mbarriers(nn_emulated_cluster_rank());
  if (barriers.count(barrier)) {
    nn_emulated_fail("mbarrier.init: there is an mbarrier at %#x already", barrier);
  }
  memcpy(memory, &nn_emulated_mbarrier_mark, 8);
  barriers[barrier] = {count, count, 0, 0, {}};
}

inline void nn_fence_mbarrier_init() { nn_emulated_requires(900, "fence.mbarrier_init"); }

inline void nn_emulated_mbarrier_arrive(nn_emulated_mbarrier &b, uint32_t barrier) {
  if (b.pending == 0) {
    nn_emulated_fail("mbarrier.arrive: more than %u arrivals in a phase of %#x", b.count, barrier);
  }
  b.pending--;
  b.finish_phase();
}

inline void nn_mbarrier_arrive(uint32_t barrier) {
  nn_emulated_mbarrier_arrive(nn_emulated_mbarrier_at(barrier, "mbarrier.arrive"), barrier);
}

inline void nn_mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  nn_emulated_mbarrier &b = nn_emulated_mbarrier_at(barrier, "mbarrier.arrive.expect_tx");
  b.bytes += bytes;
  if (b.bytes >= 1 << 20) { /* PTX 9.7.13.15.2: the range of the tx-count */
    nn_emulated_fail("mbarrier.arrive.expect_tx: %lld bytes on %#x", (long long)b.bytes, barrier);
  }
  nn_mbarrier_arrive(barrier);
}

/* Whether the phase is over, after the copies that were on their way. */
inline bool nn_emulated_mbarrier_test(uint32_t barrier, uint32_t parity) {
  nn_emulated_mbarrier &b = nn_emulated_mbarrier_at(barrier, "mbarrier.try_wait");
  auto copies = std::move(b.copies);
  b.copies.clear();
  for (auto &copy : copies) {
    copy.second();
    b.bytes -= copy.first;
    b.finish_phase();
  }
  if (parity > 1) {
    nn_emulated_fail("mbarrier.try_wait.parity: a parity of %u", parity);
  }
  return (b.phase & 1) != parity;
}

inline bool nn_mbarrier_try_wait(uint32_t barrier, uint32_t parity, nn_site site = nn_site::here()) {
  if (nn_emulated_mbarrier_test(barrier, parity)) {
    return true;
  }
  nn_emulated_yield(site.in("mbarrier.try_wait"));
  return nn_emulated_mbarrier_test(barrier, parity);
}

inline void nn_mbarrier_wait(uint32_t barrier, uint32_t parity, nn_site site = nn_site::here()) {
  while (!nn_mbarrier_try_wait(barrier, parity, site)) {
  }
}

inline void nn_fence_async_shared() {
  nn_emulated_requires(900, "fence.proxy.async");
  nn_emulated_writes_of_block().fences[nn_emulated_thread()]++;
}

inline void nn_emulated_named_barrier(uint32_t barrier, uint32_t threads, bool waits, const nn_site &site) {
  if (barrier < 1 || barrier > 15 || threads < 32 || threads % 32 != 0) {
    nn_emulated_fail("%s %u, %u: barriers 1 to 15, of whole warps", site.what, barrier, threads);
  }
  nn_emulated_barrier(barrier, threads, site, waits);
}
inline void nn_barrier_sync(uint32_t barrier, uint32_t threads, nn_site site = nn_site::here()) {
  nn_emulated_named_barrier(barrier, threads, true, site.in("bar.sync"));
}
inline void nn_barrier_arrive(uint32_t barrier, uint32_t threads, nn_site site = nn_site::here()) {
  nn_emulated_named_barrier(barrier, threads, false, site.in("bar.arrive"));
}

/* Not lane 0, so that no code relies on that. */
inline bool nn_elect(nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "elect.sync");
  nn_emulated_gather(0xffffffffu, 0u, site.in("elect.sync"));
  return nn_emulated_lane() == 31;
}

template <int REGISTERS> inline void nn_registers_raise(nn_site site = nn_site::here()) {
  static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
  nn_emulated_requires(900, "setmaxnreg");
  nn_emulated_gather(0xffffffffu, 0u, site.in("setmaxnreg.inc"));
}

template <int REGISTERS> inline void nn_registers_lower(nn_site site = nn_site::here()) {
  static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
  nn_emulated_requires(900, "setmaxnreg");
  nn_emulated_gather(0xffffffffu, 0u, site.in("setmaxnreg.dec"));
}

#endif

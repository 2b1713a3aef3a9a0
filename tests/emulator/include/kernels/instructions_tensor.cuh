/*
 * Twin of cuda/kernels/instructions_tensor.cuh. A load fills its destination with NaN bits at once and happens when
 * somebody waits on the barrier; a store happens when its thread waits for it. So early reads, buffers that are written
 * again too soon and forgotten waits show in the results whatever the order of threads.
 */
#ifndef NN_INSTRUCTIONS_TENSOR_CUH
#define NN_INSTRUCTIONS_TENSOR_CUH

#include "emulator/tensor_map.h"
#include "emulator/warp.h"
#include "kernels/instructions_barrier.cuh"
#include "kernels/instructions_copy.cuh"
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <stdint.h>
#include <string.h>
#include <vector>

inline uint64_t nn_l2_evict_normal() {
  nn_emulated_requires(800, "createpolicy");
  return 3;
}

/* A box of a tensor, and where it lies in shared memory. */
struct nn_emulated_box {
  nn_emulated_tensor_map map;
  uint32_t shared;
  unsigned char *memory; /* at `shared` */
  int64_t start[5];

  /* `rank`: whose shared memory it is. */
  nn_emulated_box(const CUtensorMap *from, uint32_t address, std::initializer_list<int32_t> coordinates,
                  const char *instruction, unsigned rank = nn_emulated_cluster_rank())
      : shared(address), start() {
    nn_emulated_requires(900, instruction);
    memcpy(&map, from, sizeof map);
    if (map.mark != nn_emulated_tensor_map::made || map.rank != coordinates.size()) {
      nn_emulated_fail("%s: not a tensor map of %zu dimensions", instruction, coordinates.size());
    }
    int i = 0;
    for (const int32_t c : coordinates) {
      start[i++] = c;
    }
    if (start[0] * map.element_bytes % 16 != 0) { /* an illegal instruction to an H200, though PTX does not say so */
      nn_emulated_fail("%s: the first coordinate, %lld, is not at a multiple of 16 bytes", instruction,
                       (long long)start[0]);
    }
    memory =
        nn_emulated_shared_bytes(shared, bytes(), map.swizzle_bytes ? 8 * map.swizzle_bytes : 128, instruction, rank);
  }

  uint32_t size(int i) const { return map.box_less_one[i] + 1u; }
  uint32_t bytes() const {
    uint32_t n = map.element_bytes;
    for (int i = 0; i < map.rank; i++) {
      n *= size(i);
    }
    return n;
  }

  /* f(element in shared memory, the same in global memory or null where the box leaves the tensor). Elements lie as in
   * a dense array; PTX 5.5.7's tables of 16-byte cells in rows of 128 bytes then say where: cell c of row r is cell
   * c ^ (r % 8) for the 128-byte swizzle, c ^ (r % 4) for 64, c ^ (r % 2) for 32. */
  template <class F> void each(F f) const {
    const uint32_t count = bytes() / map.element_bytes;
    for (uint32_t n = 0; n < count; n++) {
      uint32_t rest = n;
      bool inside = true;
      unsigned char *global = map.base;
      for (int i = 0; i < map.rank; i++) {
        const int64_t c = start[i] + rest % size(i);
        rest /= size(i);
        inside = inside && c >= 0 && (uint64_t)c < map.dims[i];
        global += c * (i == 0 ? map.element_bytes : (int64_t)map.strides[i - 1]);
      }
      const uint32_t at = shared + n * map.element_bytes, row = at / 128, cell = at / 16 % 8;
      const uint32_t rows = map.swizzle_bytes ? map.swizzle_bytes / 16u : 1;
      const uint32_t moved = row * 128 + (cell ^ row % rows) * 16 + at % 16;
      f(memory + (moved - shared), inside ? global : nullptr);
    }
  }
};

inline void nn_emulated_tensor_load(const nn_emulated_box &box, uint32_t barrier,
                                    unsigned rank = nn_emulated_cluster_rank()) {
  nn_emulated_mbarrier &b = nn_emulated_mbarrier_of(rank, barrier, "cp.async.bulk.tensor");
  memset(box.memory, 0xff, box.bytes());
  nn_emulated_writes_of_block(rank).note(box.shared, box.bytes(), nullptr);
  b.copies.emplace_back(box.bytes(), [box] {
    const size_t bytes = box.map.element_bytes;
    box.each([bytes](unsigned char *to, const unsigned char *from) {
      if (from) {
        memcpy(to, from, bytes);
      } else {
        memset(to, 0, bytes);
      }
    });
  });
}

inline void nn_tensor_prefetch(const CUtensorMap *map) {
  nn_emulated_requires(900, "prefetch.tensormap");
  nn_emulated_tensor_map made;
  memcpy(&made, map, sizeof made);
  if (made.mark != nn_emulated_tensor_map::made) {
    nn_emulated_fail("prefetch.tensormap: not a tensor map");
  }
}

inline void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint64_t policy, int32_t c0,
                           int32_t c1) {
  (void)policy;
  nn_emulated_tensor_load(nn_emulated_box(map, shared, {c0, c1}, "cp.async.bulk.tensor.2d"), barrier);
}
inline void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint64_t policy, int32_t c0,
                           int32_t c1, int32_t c2) {
  (void)policy;
  nn_emulated_tensor_load(nn_emulated_box(map, shared, {c0, c1, c2}, "cp.async.bulk.tensor.3d"), barrier);
}
inline void nn_tensor_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint64_t policy, int32_t c0,
                           int32_t c1, int32_t c2, int32_t c3) {
  (void)policy;
  nn_emulated_tensor_load(nn_emulated_box(map, shared, {c0, c1, c2, c3}, "cp.async.bulk.tensor.4d"), barrier);
}

/* Copies on their way to global memory, by thread. Each is read from shared memory only when its thread waits for that:
 * a place that is written again too early shows in the results, and so does a copy that nobody waits for. */
struct nn_emulated_stores {
  std::vector<std::vector<std::function<void()>>> groups;
  std::vector<std::function<void()>> open;

  void finish(size_t pending) {
    while (groups.size() > pending) {
      for (const std::function<void()> &copy : groups.front()) {
        copy();
      }
      groups.erase(groups.begin());
    }
  }
};

inline nn_emulated_stores &nn_emulated_stores_of_thread() {
  static uint64_t block = ~(uint64_t)0;
  static nn_emulated_stores threads[1024];
  if (block != nn_emulated_cluster_serial()) {
    for (nn_emulated_stores &stores : threads) {
      if (!stores.groups.empty() || !stores.open.empty()) {
        nn_emulated_fail("a block before this one ended without waiting for what it stores");
      }
    }
    block = nn_emulated_cluster_serial();
  }
  return threads[nn_emulated_thread()];
}

inline void nn_tensor_store(const CUtensorMap *map, uint32_t shared, int32_t c0, int32_t c1, int32_t c2) {
  const nn_emulated_box box(map, shared, {c0, c1, c2}, "cp.async.bulk.tensor.3d");
  nn_emulated_writes_of_block().read(shared, box.bytes(), "cp.async.bulk.tensor.3d");
  nn_emulated_stores_of_thread().open.emplace_back([box] {
    box.each([&box](const unsigned char *from, unsigned char *to) {
      if (to) {
        memcpy(to, from, box.map.element_bytes);
      }
    });
  });
}

inline void nn_tensor_store_commit() {
  nn_emulated_requires(900, "cp.async.bulk.commit_group");
  nn_emulated_stores &stores = nn_emulated_stores_of_thread();
  stores.groups.push_back(std::move(stores.open));
  stores.open.clear();
}

template <int PENDING> inline void nn_tensor_store_wait() {
  nn_emulated_requires(900, "cp.async.bulk.wait_group");
  nn_emulated_stores_of_thread().finish(PENDING);
}

#endif

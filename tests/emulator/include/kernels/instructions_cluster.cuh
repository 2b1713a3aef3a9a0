/*
 * Twin of cuda/kernels/instructions_cluster.cuh. The blocks of a cluster take turns as the warps of one do, so that one
 * may be ahead of the other: what is sent to a block that has no barrier yet, or has ended, is found, and what comes
 * too early shows as any copy's does. An address in the cluster bears a mark that instructions on a block's own shared
 * memory refuse.
 */
#ifndef NN_INSTRUCTIONS_CLUSTER_CUH
#define NN_INSTRUCTIONS_CLUSTER_CUH

#include "emulator/warp.h"
#include "kernels/instructions_barrier.cuh"
#include "kernels/instructions_tensor.cuh"
#include <stdint.h>

static constexpr uint32_t nn_emulated_in_cluster = 1u << 24; /* times the rank, and one */

inline uint32_t nn_cluster_rank() {
  nn_emulated_requires(900, "%cluster_ctarank");
  return nn_emulated_cluster_rank();
}

inline void nn_cluster_sync(nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "barrier.cluster");
  nn_emulated_cluster_barrier(site.in("barrier.cluster"));
}

inline void nn_emulated_check_rank(uint32_t rank, const char *instruction) {
  if (rank >= nn_emulated_cluster_size()) {
    nn_emulated_fail("%s: block %u of a cluster of %u", instruction, rank, nn_emulated_cluster_size());
  }
  if (!nn_emulated_block_lives(rank)) {
    nn_emulated_fail("%s: block %u of the cluster has ended", instruction, rank);
  }
}

inline uint32_t nn_cluster_address(uint32_t shared, uint32_t rank) {
  nn_emulated_requires(900, "mapa");
  if (rank >= nn_emulated_cluster_size() || shared >= nn_emulated_in_cluster) {
    nn_emulated_fail("mapa: address %#x of block %u in a cluster of %u", shared, rank, nn_emulated_cluster_size());
  }
  return (rank + 1) * nn_emulated_in_cluster + shared;
}

inline void nn_mbarrier_arrive_in_cluster(uint32_t barrier) {
  const char *const instruction = "mbarrier.arrive.shared::cluster";
  const uint32_t mark = barrier / nn_emulated_in_cluster, address = barrier % nn_emulated_in_cluster;
  const uint32_t rank = mark == 0 ? nn_emulated_cluster_rank() : mark - 1;
  nn_emulated_check_rank(rank, instruction);
  nn_emulated_mbarrier_arrive(nn_emulated_mbarrier_of(rank, address, instruction), address);
}

inline void nn_tensor_load_all(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint16_t blocks,
                               uint64_t policy, int32_t c0, int32_t c1, int32_t c2) {
  (void)policy;
  const char *const instruction = "cp.async.bulk.tensor.3d.multicast";
  if (blocks == 0) {
    nn_emulated_fail("%s: to no block", instruction);
  }
  for (uint32_t rank = 0; rank < 16; rank++) {
    if (blocks >> rank & 1) {
      nn_emulated_check_rank(rank, instruction);
      nn_emulated_tensor_load(nn_emulated_box(map, shared, {c0, c1, c2}, instruction, rank), barrier, rank);
    }
  }
}

#endif

/*
 * What the blocks of a cluster share (sm_90+): they run at the same time, close to each other, can tell barriers in
 * each other's shared memory, and one copy can go to several of them. A launch says how many blocks a cluster has
 * (nn_launch_clusters); without, each is a cluster of its own.
 *
 * nn_cluster_sync comes between the initialisation of barriers and what other blocks do to them, and before a block
 * ends to which others may still send something.
 */
#ifndef NN_INSTRUCTIONS_CLUSTER_CUH
#define NN_INSTRUCTIONS_CLUSTER_CUH

#include "kernels/instructions_absent.cuh"
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* The block's number in its cluster. %cluster_ctarank, PTX 10.16. */
__device__ __forceinline__ uint32_t nn_cluster_rank() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  nn_absent();
  return 0;
#endif
}

/* Waits for all threads of the cluster that have not ended, and makes what they did before seen. barrier.cluster,
 * PTX 9.7.13.3. */
__device__ __forceinline__ void nn_cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n"
               "barrier.cluster.wait.acquire;" ::
                   : "memory");
#else
  nn_absent();
#endif
}

/* The address in the cluster of what lies at `shared` in block `rank`; only instructions that say so take it. mapa,
 * PTX 9.7.9.23. */
__device__ __forceinline__ uint32_t nn_cluster_address(uint32_t shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
#else
  nn_absent(shared, rank);
  return 0;
#endif
}

/* nn_mbarrier_arrive on a barrier of any block of the cluster: an address in the cluster, or one of the block's own
 * shared memory. It says that what this thread read may be overwritten; what it wrote is seen in its own block alone,
 * since the order of the whole cluster costs a fence of the whole GPU. mbarrier.arrive, PTX 9.7.13.15.13. */
__device__ __forceinline__ void nn_mbarrier_arrive_in_cluster(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
#else
  nn_absent(barrier);
#endif
}

/* nn_tensor_load to several blocks of the cluster, those of the bits of `blocks`: the box comes to the same place in
 * the shared memory of each, and its bytes are counted on the barrier that is at the same place there.
 * cp.async.bulk.tensor with .multicast::cluster, PTX 9.7.9.25.5.2. */
__device__ __forceinline__ void nn_tensor_load_all(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                   uint16_t blocks, uint64_t policy, int32_t c0, int32_t c1,
                                                   int32_t c2) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
               ".L2::cache_hint [%0], [%1, {%5, %6, %7}], [%2], %3, %4;" ::"r"(shared),
               "l"(map), "r"(barrier), "h"(blocks), "l"(policy), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
#else
  nn_absent(shared, map, barrier, blocks, policy, c0, c1, c2);
#endif
}

#endif

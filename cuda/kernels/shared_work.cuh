/*
 * Work that blocks of a kernel share, in place of a kernel before it or after it.
 *
 * Before what each does alone (nn_share_work): the rows of activations that a product's blocks all read are normed and
 * rounded once, by some of them. A block takes pieces until none is left, then waits until all are made. It waits for
 * blocks that run already, whatever the grid, so that they end.
 *
 * After it (nn_is_last_block): what several blocks leave in scratch memory is put together by the one that ends last.
 */
#ifndef NN_KERNELS_SHARED_WORK_CUH
#define NN_KERNELS_SHARED_WORK_CUH

#include "kernels/instructions_turns.cuh"
#include "kernels/kernel.cuh"

/* Rows up to which a product makes what it needs of them itself. Beyond, the time of a launch is small beside that of
 * the product. By count. */
constexpr int64_t NN_SHARED_WORK_ROWS = 64;

struct nn_shared_work {
  uint32_t pieces;   /* 0: there is none */
  uint32_t *numbers; /* three of nn_gpu_arrivals: pieces taken, pieces made, blocks that have seen all of them */
};

inline nn_shared_work nn_shared_work_of(nncuda_ctx *ctx, int64_t pieces) {
  return {(uint32_t)pieces, nn_gpu_arrivals(ctx)};
}

/* By all threads of all blocks: make(i) for each piece i, by a whole block. What it wrote can be read then, but not by
 * loads as of constants. */
template <class MAKE> __device__ __forceinline__ void nn_share_work(const nn_shared_work &work, MAKE make) {
  if (work.pieces == 0) {
    return;
  }
  __shared__ uint32_t taken;
  const auto take = [&] {
    if (threadIdx.x == 0) {
      taken = nn_turn_ticket(work.numbers);
    }
    __syncthreads();
    return taken;
  };
  for (uint32_t piece = take(); piece < work.pieces; piece = take()) {
    make(piece);
    __syncthreads();
    if (threadIdx.x == 0) {
      nn_count_raise(work.numbers + 1);
    }
  }
  if (threadIdx.x == 0) {
    nn_count_wait(work.numbers + 1, work.pieces);
    if (nn_turn_ticket(work.numbers + 2) == gridDim.x * gridDim.y * gridDim.z - 1) {
      work.numbers[0] = work.numbers[1] = work.numbers[2] = 0; /* for the next kernel */
    }
  }
  __syncthreads();
}

/* Whether the block is the last one of `blocks` to come here, which share a counter of nn_gpu_arrivals. Then it sees
 * what the others wrote, by nn_from_others. `shared` has room for an int. */
__device__ __forceinline__ bool nn_is_last_block(unsigned *arrivals, unsigned blocks, int *shared) {
  if (blocks <= 1) {
    __syncthreads();
    return true;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool last = atomicAdd(arrivals, 1u) == blocks - 1;
    if (last) {
      *arrivals = 0; /* for the next launch */
    }
    *shared = last;
  }
  __syncthreads();
  const bool last = *shared != 0;
  __threadfence();
  __syncthreads();
  return last;
}

/* What other blocks wrote, past this multiprocessor's own cache, which may be older. clang 19, which checks the code
 * for sm_70, has no __ldcg. */
template <class T> __device__ __forceinline__ T nn_from_others(const T *p) {
#ifdef __clang__
  return *(const volatile T *)p;
#else
  return __ldcg(p);
#endif
}

#endif

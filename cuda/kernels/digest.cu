#include "abi/generated/digest.h"
#include "numbers/digest.h"

#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

/*
 * A thread takes 16 bytes at a time where x is aligned to them, else an element; a block adds its sums to the result by
 * two atomic additions of whole numbers, whose order does not matter.
 */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8; /* by count */

__device__ __forceinline__ void add_to(int64_t *sum, uint64_t part) {
  atomicAdd(reinterpret_cast<unsigned long long *>(sum), (unsigned long long)part);
}

template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS) digest_kernel(const T *x, int64_t *sums, int64_t n, uint64_t first) {
  constexpr int N = WIDE ? 16 / sizeof(T) : 1;
  __shared__ uint64_t shared[THREADS / NN_WARP];
  nn_digest_sums own = {0, 0};
  const int64_t vectors = n / N, step = (int64_t)gridDim.x * THREADS;
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  for (int64_t i = thread; i < vectors; i += step) {
    alignas(16) T part[N];
    if constexpr (WIDE) {
      const uint4 vector = reinterpret_cast<const uint4 *>(x)[i];
      memcpy(part, &vector, sizeof part);
    } else {
      part[0] = x[i];
    }
#pragma unroll
    for (int e = 0; e < N; e++) {
      nn_digest_add(&own, first + (uint64_t)(i * N + e), part[e]);
    }
  }
  for (int64_t i = vectors * N + thread; i < n; i += step) { /* the last, if they do not fill 16 bytes */
    nn_digest_add(&own, first + (uint64_t)i, x[i]);
  }
  const uint64_t a = nn_block_sum<THREADS>(own.first, shared);
  __syncthreads();
  const uint64_t b = nn_block_sum<THREADS>(own.second, shared);
  if (threadIdx.x == 0) {
    add_to(&sums[0], a);
    add_to(&sums[1], b);
  }
}

/* Elements of any alignment, a byte at a time. */
__global__ void __launch_bounds__(THREADS)
    digest_bytes_kernel(const unsigned char *x, int64_t *sums, int64_t n, uint64_t first, int32_t width) {
  nn_digest_sums own = {0, 0};
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    uint32_t bits = 0;
    for (int32_t b = 0; b < width; b++) {
      bits |= (uint32_t)x[i * width + b] << 8 * b;
    }
    nn_digest_add(&own, first + (uint64_t)i, bits);
  }
  add_to(&sums[0], own.first);
  add_to(&sums[1], own.second);
}

template <class T> static int32_t digest_launch(nncuda_ctx *ctx, const nn_digest_args *a) {
  const int64_t n = a->n;
  const bool wide = nn_aligned_16(a->x);
  const unsigned blocks = nn_blocks(ctx, wide ? nn_ceil_div(n, 16 / (int64_t)sizeof(T)) : n, THREADS, BLOCKS_PER_SM);
  if ((uintptr_t)a->x % sizeof(T) != 0) {
    return nn_launch(ctx, digest_bytes_kernel, dim3(blocks), dim3(THREADS), 0, static_cast<const unsigned char *>(a->x),
                     a->sums, n, (uint64_t)a->first, (int32_t)a->width);
  }
  return nn_launch(ctx, wide ? digest_kernel<T, true> : digest_kernel<T, false>, dim3(blocks), dim3(THREADS), 0,
                   static_cast<const T *>(a->x), a->sums, n, (uint64_t)a->first);
}

NN_KERNEL(digest) {
  return a->width == 4   ? digest_launch<uint32_t>(ctx, a)
         : a->width == 2 ? digest_launch<uint16_t>(ctx, a)
                         : digest_launch<uint8_t>(ctx, a);
}

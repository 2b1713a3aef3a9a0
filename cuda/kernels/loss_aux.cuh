/* How the load-balancing loss is summed, for loss.cu and moe_route.cu: in f64, chunk by chunk, then the chunks. */
#ifndef NN_KERNELS_LOSS_AUX_CUH
#define NN_KERNELS_LOSS_AUX_CUH

#include "kernels/loss_workspace.h"

#include "kernels/row_threads.cuh"

/* Threads that add up a chunk, and the chunks: sums hang on them. */
constexpr int AUX_THREADS = 256, AUX_SUM_THREADS = 1024;
constexpr int64_t AUX_CHUNK = NN_AUX_CHUNK;
static_assert(AUX_CHUNK % (AUX_THREADS * 4) == 0);

/* The sum over a chunk of the n probabilities, each weighted by its expert's count, in every thread of a block of
 * AUX_THREADS. `shared` has room for a warp's number of them. */
template <bool WIDE>
__device__ __forceinline__ double aux_loss_chunk(const float *probs, const int32_t *counts, int64_t n, int64_t experts,
                                                 int64_t chunk, double *shared) {
  double sum = 0.0;
  const int64_t begin = chunk * AUX_CHUNK;
  for (int64_t i = begin + threadIdx.x * 4; i < begin + AUX_CHUNK; i += AUX_THREADS * 4) {
    float p[4];
    nn_load_at<WIDE>(p, probs, i, n);
    int64_t expert = i % experts;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (i + e < n) {
        sum = fma((double)counts[expert], (double)p[e], sum);
      }
      expert = expert + 1 == experts ? 0 : expert + 1;
    }
  }
  return nn_block_sum<AUX_THREADS>(sum, shared);
}

/* Adds the loss of all chunks' sum. */
__device__ __forceinline__ void aux_loss_add(float *loss, double sum, double tokens, double alpha) {
  loss[0] = (float)((double)loss[0] + alpha * sum / (tokens * tokens));
}

#endif

/* Where the documents of packed sequences begin, and the check of what calls say of it. */
#include "kernels/attention_starts.cuh"

constexpr int THREADS = 256;

/* A block for each sequence, which it walks over THREADS tokens at a time: a document begins at the largest place so
 * far that lies behind a separator. */
static __global__ void __launch_bounds__(THREADS) document_starts_kernel(nn_document_starts_args a) {
  __shared__ int32_t of_warps[THREADS / NN_WARP];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t at = (int64_t)blockIdx.x * a.length;
  int32_t before = 0;
  for (int64_t first = 0; first < a.length; first += THREADS) {
    const int64_t t = first + threadIdx.x;
    int32_t start = t > 0 && t < a.length && a.ids[at + t - 1] == a.separator ? (int32_t)t : 0;
#pragma unroll
    for (int step = 1; step < NN_WARP; step *= 2) {
      const int32_t other = __shfl_up_sync(NN_ALL_LANES, start, step);
      start = lane >= step && other > start ? other : start;
    }
    __syncthreads(); /* the last turn's are read */
    if (lane == NN_WARP - 1) {
      of_warps[warp] = start;
    }
    __syncthreads();
    int32_t last = before;
#pragma unroll
    for (int w = 0; w < THREADS / NN_WARP; w++) {
      if (w == warp && last > start) {
        start = last;
      }
      last = of_warps[w] > last ? of_warps[w] : last;
    }
    before = last;
    if (t < a.length) {
      a.starts[at + t] = start;
      a.positions[at + t] = (int32_t)t - start;
    }
  }
}

NN_KERNEL(document_starts) {
  return nn_launch(ctx, document_starts_kernel, dim3((unsigned)a->batch), dim3(THREADS), 0, *a);
}

static __global__ void __launch_bounds__(THREADS)
    check_starts_kernel(const int32_t *starts, int64_t count, int64_t length, nn_range range) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < count) {
    range.high = i % length;
    range.low = range.high == 0 ? 0 : starts[i - 1];
    range.holds(i, starts[i]);
  }
}

int32_t nn_check_starts(nncuda_ctx *ctx, const int32_t *starts, const nn_attention_shape &s) {
  if (starts == nullptr) {
    return NNCUDA_SUCCESS;
  }
  const int64_t count = s.batch * s.q_len;
  const nn_range range = nn_range_of(ctx, "starts", 0, 0).noted("never falling, and at most the query's place");
  return nn_launch(ctx, check_starts_kernel, dim3((unsigned)nn_ceil_div(count, THREADS)), dim3(THREADS), 0, starts,
                   count, s.q_len, range);
}

#include "abi/elementwise.h"
#include "kernels/optimizer_adamw.cuh"
#include "kernels/parts.cuh"
#include "kernels/reduce.cuh"

/* ---- adamw_step ---- */

NN_KERNEL(adamw_step) { return adamw<float>(ctx, a); }

/* ---- gradients ---- */

NN_KERNEL(zero_grad) {
  const nn_fill_args fill = {a->grad, a->n, 0.0f, a->dtype};
  return nn_cuda_fill(ctx, &fill);
}

constexpr int64_t CHUNK = NN_GRAD_CHUNK_GPU;
constexpr int UNROLL = 4;

template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS)
    squares_kernel(const T *grad, double *squares, int64_t n, int64_t first, int64_t last) {
  constexpr int N = nn_per_16<T>;
  __shared__ double shared[2][NN_WARP];
  int turn = 0;
  for (int64_t chunk = first + blockIdx.x; chunk < last; chunk += gridDim.x) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x * N; i < CHUNK; i += UNROLL * THREADS * N) {
      float x[UNROLL][N];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        nn_load_at<WIDE>(x[u], grad, chunk * CHUNK + i + u * THREADS * N, n);
      }
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          sum = fma((double)x[u][e], (double)x[u][e], sum);
        }
      }
    }
    sum = nn_block_sum<THREADS>(sum, shared[turn]);
    if (threadIdx.x == 0) {
      squares[chunk] = sum;
    }
    turn ^= 1;
  }
}

constexpr int LAST_THREADS = 1024;

__global__ void __launch_bounds__(LAST_THREADS) norm_kernel(const double *partial, float *norm, int64_t chunks) {
  __shared__ double shared[NN_WARP];
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < chunks; i += LAST_THREADS) {
    sum += partial[i];
  }
  sum = nn_block_sum<LAST_THREADS>(sum, shared);
  if (threadIdx.x == 0) {
    norm[0] = (float)sqrt(sum);
  }
}

template <class T>
static int32_t squares_launch(nncuda_ctx *ctx, const nn_grad_norm_args *a, double *squares, int64_t last) {
  return nn_launch(ctx, nn_aligned_16(a->grad) ? squares_kernel<T, true> : squares_kernel<T, false>,
                   dim3((unsigned)nn_min(last - a->first, INT32_MAX)), dim3(THREADS), 0,
                   static_cast<const T *>(a->grad), squares, a->n, a->first, last);
}

NN_KERNEL(grad_norm) {
  const int64_t chunks = nn_grad_chunks(a), last = nn_min(a->last, chunks);
  double *squares = nn_grad_norm_lay_out(a, nn_workspace_of(ctx));
  int32_t status = NNCUDA_SUCCESS;
  if (a->first < last) {
    NN_SWITCH_FLOATS(a->dtype, status = squares_launch<T>(ctx, a, squares, last));
  }
  if (status != NNCUDA_SUCCESS || a->norm == nullptr) {
    return status;
  }
  return nn_launch(ctx, norm_kernel, dim3(1), dim3(LAST_THREADS), 0, static_cast<const double *>(squares), a->norm,
                   chunks);
}

/* ---- grad_clip ---- */

/* A norm of NaN gives a factor of NaN; without a limit nothing is clipped, whatever the norm. */
__device__ __forceinline__ float clip_factor(const float *norm, const float *loss_scale, float max_norm) {
  const double s = loss_scale == nullptr ? 1.0 : (double)loss_scale[0];
  const double share = (double)max_norm / ((double)norm[0] / s + 1e-6);
  return (float)((share >= 1.0 || isinf(max_norm) ? 1.0 : share) / s);
}

template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS)
    grad_clip_kernel(const float *norm, const float *loss_scale, float *scale, T *grad, int64_t n, float max_norm) {
  constexpr int N = nn_per_16<T>;
  __shared__ float shared;
  if (threadIdx.x == 0) {
    shared = clip_factor(norm, loss_scale, max_norm);
    if (blockIdx.x == 0) {
      scale[0] = shared;
    }
  }
  __syncthreads();
  const float factor = shared;
  if (factor == 1.0f) { /* the gradients stay as they are */
    return;
  }
  const int64_t vectors = nn_ceil_div(n, N);
  for (int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x; j < vectors; j += (int64_t)gridDim.x * THREADS) {
    float x[N];
    nn_load_at<WIDE>(x, grad, j * N, n);
#pragma unroll
    for (int e = 0; e < N; e++) {
      x[e] *= factor;
    }
    nn_store_at<WIDE>(grad, x, j * N, n);
  }
}

template <class T> static int32_t grad_clip_launch(nncuda_ctx *ctx, const nn_grad_clip_args *a) {
  const int64_t n = a->grad == nullptr ? 0 : a->n;
  const unsigned blocks = n == 0 ? 1 : nn_blocks(ctx, nn_ceil_div(n, nn_per_16<T>), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, nn_aligned_16(a->grad) ? grad_clip_kernel<T, true> : grad_clip_kernel<T, false>, dim3(blocks),
                   dim3(THREADS), 0, a->norm, a->loss_scale, a->scale, static_cast<T *>(a->grad), n, a->max_norm);
}

NN_KERNEL(grad_clip) { NN_SWITCH_FLOATS(a->dtype, return grad_clip_launch<T>(ctx, a)); }

/* ---- schedule and loss scale: one number each, one thread ---- */

__global__ void lr_schedule_kernel(nn_lr_schedule_args a, nn_range steps) {
  if ((a.skip != nullptr && a.skip[0] != 0) || !steps.holds(0, a.step[0])) {
    return;
  }
  const int32_t t = a.step[0] + 1;
  const double high = (double)a.max_lr, low = (double)a.min_lr;
  double lr = low;
  if (t <= a.warmup) {
    lr = high * (double)t / (double)a.warmup;
  } else if (t < a.total) {
    const double part = (double)(t - a.warmup) / (double)(a.total - a.warmup);
    lr = low + (high - low) * (1.0 + cospi(part)) / 2.0;
  }
  a.step[0] = t;
  a.lr[0] = (float)lr;
}

NN_KERNEL(lr_schedule) {
  return nn_launch(ctx, lr_schedule_kernel, dim3(1), dim3(1), 0, *a, nn_range_of(ctx, "step", 0, INT32_MAX - 1));
}

/* Counts on, and stays at the largest count there is. */
__device__ __forceinline__ int32_t counted(int32_t count) { return count < INT32_MAX ? count + 1 : count; }

__global__ void loss_scale_kernel(nn_loss_scale_update_args a) {
  float scale = a.loss_scale[0];
  if (!isfinite(a.norm[0])) {
    a.skip[0] = 1;
    a.skipped[0] = counted(a.skipped[0]);
    a.good_steps[0] = 0;
    scale *= a.backoff;
  } else {
    a.skip[0] = 0;
    a.good_steps[0] = counted(a.good_steps[0]);
    if (a.good_steps[0] >= a.interval) {
      a.good_steps[0] = 0;
      scale *= a.growth;
    }
  }
  a.loss_scale[0] = scale < 0x1p-24f ? 0x1p-24f : scale > 0x1p24f ? 0x1p24f : scale;
}

NN_KERNEL(loss_scale_update) { return nn_launch(ctx, loss_scale_kernel, dim3(1), dim3(1), 0, *a); }

#include "kernels/loss_aux.cuh"

/*
 * Rows of logits are long and read from memory once: a thread keeps the largest element and the sum of exponentials
 * that it has seen, and rescales the sum when a larger one comes. (Milakov and Gimelshein 2018, algorithm 3) Nothing of
 * a row's length is kept but the logits themselves.
 */

/* ---- cross_entropy_forward ---- */

/* A row is a warp's up to WARP_COLUMNS logits, else a block's. Each thread has VECTORS loads of 16 bytes under way: 32
 * KiB a block of 512, and two of them fit a multiprocessor. By count. */
constexpr int VECTORS = 4, WARP_COLUMNS = 4096, BLOCK_LANES = 512, WARP_THREADS = 128;

struct entropy {
  const void *logits;
  const int32_t *targets;
  float *losses, *lse;
  double *row_losses; /* [rows], for their sum */
  int64_t rows, vocab;
  int32_t ignore;
};

template <class T, int LANES, bool WIDE>
__global__ void __launch_bounds__(LANES > WARP_THREADS ? LANES : WARP_THREADS)
    entropy_kernel(entropy a, nn_range targets) {
  constexpr int N = nn_per_16<T>, ROWS = LANES > WARP_THREADS ? 1 : WARP_THREADS / LANES;
  __shared__ float largest_of[NN_WARP], sum_of[NN_WARP];
  const int lane = threadIdx.x % LANES;
  for (int64_t first = (int64_t)blockIdx.x * ROWS; first < a.rows; first += (int64_t)gridDim.x * ROWS) {
    const int64_t row = first + threadIdx.x / LANES, end = row < a.rows ? a.vocab : 0;
    const T *x = static_cast<const T *>(a.logits) + row * a.vocab;
    float shift = -INFINITY, sum = 0.0f; /* NaN does not become the shift, but the sum */
    for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
      float values[VECTORS][N], largest = shift;
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], x, at + (v * LANES + lane) * N, end, -INFINITY);
      }
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          largest = fmaxf(largest, values[v][e]);
        }
      }
      if (largest > shift) {
        sum *= nn_exp_for<T>(shift - largest);
        shift = largest;
      }
      const float from = shift == -INFINITY ? 0.0f : shift;
      float more = 0.0f;
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          more += nn_exp_for<T>(values[v][e] - from);
        }
      }
      sum += more;
    }
    const float largest = nn_row_max<LANES>(shift, largest_of);
    sum = nn_row_sum<LANES>(shift == largest ? sum : sum * nn_exp_for<T>(shift - largest), sum_of);
    if (lane == 0 && end > 0) {
      const int32_t target = a.targets[row];
      if (targets.holds(row, target)) {
        const double lse = log((double)sum) + (largest == -INFINITY ? 0.0 : (double)largest);
        const double loss = target == a.ignore ? 0.0 : lse - (double)nn_to_float(x[target]);
        a.lse[row] = (float)lse;
        a.row_losses[row] = loss;
        if (a.losses != nullptr) {
          a.losses[row] = (float)loss;
        }
      } else {
        a.row_losses[row] = 0.0;
      }
    }
  }
}

constexpr int SUM_THREADS = 1024;

/* One block: the sum in f64, each thread's share in the order of the rows. */
__global__ void __launch_bounds__(SUM_THREADS)
    entropy_sum_kernel(const double *row_losses, const int32_t *targets, float *loss_sum, int32_t *count, int64_t rows,
                       int32_t ignore) {
  __shared__ double sums[NN_WARP];
  __shared__ int32_t counts[NN_WARP];
  double sum = 0.0;
  int32_t counted = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += SUM_THREADS) {
    sum += row_losses[row];
    counted += targets[row] != ignore;
  }
  sum = nn_block_sum<SUM_THREADS>(sum, sums);
  counted = nn_block_sum<SUM_THREADS>(counted, counts);
  if (threadIdx.x == 0) {
    loss_sum[0] = (float)sum;
    count[0] = counted;
  }
}

static nn_range target_range(nncuda_ctx *ctx, int64_t vocab, int32_t ignore) {
  return nn_range_of(ctx, "targets", 0, vocab - 1).unless("ignore_index", ignore);
}

template <class T> static int32_t entropy_launch(nncuda_ctx *ctx, const entropy &a, int32_t dtype) {
  const bool wide = nn_aligned_16(a.logits) && nn_rows_16(a.vocab, a.vocab, dtype);
  const nn_range targets = target_range(ctx, a.vocab, a.ignore);
  if (a.vocab <= WARP_COLUMNS) {
    return nn_launch(ctx, wide ? entropy_kernel<T, NN_WARP, true> : entropy_kernel<T, NN_WARP, false>,
                     dim3(nn_row_blocks(a.rows, WARP_THREADS / NN_WARP)), dim3(WARP_THREADS), 0, a, targets);
  }
  return nn_launch(ctx, wide ? entropy_kernel<T, BLOCK_LANES, true> : entropy_kernel<T, BLOCK_LANES, false>,
                   dim3(nn_row_blocks(a.rows, 1)), dim3(BLOCK_LANES), 0, a, targets);
}

NN_KERNEL(cross_entropy_forward) {
  double *row_losses = nn_entropy_lay_out(a, nn_workspace_of(ctx));
  const entropy e = {a->logits, a->targets, a->losses, a->lse, row_losses, a->rows, a->vocab, a->ignore_index};
  int32_t status = NNCUDA_SUCCESS;
  NN_SWITCH_FLOATS(a->dtype, status = entropy_launch<T>(ctx, e, a->dtype));
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return nn_launch(ctx, entropy_sum_kernel, dim3(1), dim3(SUM_THREADS), 0, static_cast<const double *>(row_losses),
                   a->targets, a->loss_sum, a->count, a->rows, a->ignore_index);
}

/* ---- cross_entropy_backward ---- */

constexpr int THREADS = 256, UNROLL = 4; /* vectors under way a thread; by count */

struct entropy_backward {
  const void *logits;
  const int32_t *targets;
  const float *lse, *scale;
  void *dlogits;               /* may be the logits */
  int64_t rows, vocab, pieces; /* a row is cut into pieces of THREADS * UNROLL vectors */
  int32_t ignore;
};

template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS) entropy_backward_kernel(entropy_backward a, nn_range targets) {
  constexpr int N = nn_per_16<T>;
  const float scale = a.scale[0];
  for (int64_t i = blockIdx.x; i < a.rows * a.pieces; i += gridDim.x) {
    const int64_t row = i / a.pieces, begin = i % a.pieces * (THREADS * UNROLL * N);
    const int32_t target = a.targets[row];
    if (!targets.holds(row, target)) {
      continue;
    }
    const T *x = static_cast<const T *>(a.logits) + row * a.vocab;
    T *dx = static_cast<T *>(a.dlogits) + row * a.vocab;
    const float lse = a.lse[row];
    const bool ignored = target == a.ignore;
    float values[UNROLL][N];
#pragma unroll
    for (int v = 0; v < UNROLL; v++) {
      nn_row_load<WIDE>(values[v], x, begin + (v * THREADS + (int)threadIdx.x) * N, ignored ? 0 : a.vocab, 0.0f);
    }
#pragma unroll
    for (int v = 0; v < UNROLL; v++) {
      const int64_t column = begin + (v * THREADS + (int)threadIdx.x) * N;
#pragma unroll
      for (int e = 0; e < N; e++) {
        const float p = nn_exp_for<T>(values[v][e] - lse);
        values[v][e] = ignored ? 0.0f : (column + e == target ? p - 1.0f : p) * scale;
      }
      nn_row_store<WIDE>(dx, column, a.vocab, values[v]);
    }
  }
}

template <class T> static int32_t entropy_backward_launch(nncuda_ctx *ctx, entropy_backward a, int32_t dtype) {
  const bool wide = nn_aligned_16(a.logits, a.dlogits) && nn_rows_16(a.vocab, a.vocab, dtype);
  a.pieces = nn_ceil_div(a.vocab, THREADS * UNROLL * nn_per_16<T>);
  return nn_launch(ctx, wide ? entropy_backward_kernel<T, true> : entropy_backward_kernel<T, false>,
                   dim3(nn_row_blocks(a.rows * a.pieces, 1)), dim3(THREADS), 0, a,
                   target_range(ctx, a.vocab, a.ignore));
}

NN_KERNEL(cross_entropy_backward) {
  const entropy_backward e = {a->logits, a->targets, a->lse, a->grad_scale,  a->dlogits,
                              a->rows,   a->vocab,   0,      a->ignore_index};
  NN_SWITCH_FLOATS(a->dtype, return entropy_backward_launch<T>(ctx, e, a->dtype));
}

/* ---- aux_loss ---- */

template <bool WIDE>
__global__ void __launch_bounds__(AUX_THREADS)
    aux_loss_kernel(const float *probs, const int32_t *counts, double *partial, int64_t n, int64_t experts) {
  __shared__ double shared[NN_WARP];
  const double sum = aux_loss_chunk<WIDE>(probs, counts, n, experts, blockIdx.x, shared);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(AUX_SUM_THREADS)
    aux_loss_sum_kernel(const double *partial, float *loss, int64_t chunks, double tokens, double alpha) {
  __shared__ double shared[NN_WARP];
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < chunks; i += AUX_SUM_THREADS) {
    sum += partial[i];
  }
  sum = nn_block_sum<AUX_SUM_THREADS>(sum, shared);
  if (threadIdx.x == 0) {
    aux_loss_add(loss, sum, tokens, alpha);
  }
}

NN_KERNEL(aux_loss_forward) {
  const int64_t n = a->tokens * a->experts, chunks = nn_aux_chunks(n);
  double *partial = nn_aux_lay_out(n, nn_workspace_of(ctx));
  const int32_t status =
      nn_launch(ctx, nn_aligned_16(a->probs) ? aux_loss_kernel<true> : aux_loss_kernel<false>, dim3((unsigned)chunks),
                dim3(AUX_THREADS), 0, a->probs, a->counts, partial, n, a->experts);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return nn_launch(ctx, aux_loss_sum_kernel, dim3(1), dim3(AUX_SUM_THREADS), 0, static_cast<const double *>(partial),
                   a->loss, chunks, (double)a->tokens, (double)a->alpha);
}

template <bool WIDE>
__global__ void __launch_bounds__(THREADS)
    aux_loss_backward_kernel(const int32_t *counts, const float *grad_scale, float *dprobs, int64_t n, int64_t experts,
                             double tokens, double alpha) {
  const double factor = (double)grad_scale[0] * alpha / (tokens * tokens);
  for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; i < n; i += (int64_t)gridDim.x * THREADS * 4) {
    float g[4];
    int64_t expert = i % experts;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      g[e] = (float)(factor * (double)counts[expert]);
      expert = expert + 1 == experts ? 0 : expert + 1;
    }
    nn_store_at<WIDE>(dprobs, g, i, n);
  }
}

NN_KERNEL(aux_loss_backward) {
  const int64_t n = a->tokens * a->experts;
  return nn_launch(ctx, nn_aligned_16(a->dprobs) ? aux_loss_backward_kernel<true> : aux_loss_backward_kernel<false>,
                   dim3(nn_blocks(ctx, nn_ceil_div(n, 4), THREADS, 8)), dim3(THREADS), 0, a->counts, a->grad_scale,
                   a->dprobs, n, a->experts, (double)a->tokens, (double)a->alpha);
}

/* ---- weighted_mean ---- */

__global__ void __launch_bounds__(SUM_THREADS)
    weighted_mean_kernel(const float *x, const int32_t *weights, float *y, int64_t n, double divisor) {
  __shared__ double shared[NN_WARP];
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) {
    sum += (double)x[i] * (weights == nullptr ? 1.0 : (double)weights[i]);
  }
  sum = nn_block_sum<SUM_THREADS>(sum, shared);
  if (threadIdx.x == 0) {
    y[0] = (float)(sum / divisor);
  }
}

NN_KERNEL(weighted_mean) {
  return nn_launch(ctx, weighted_mean_kernel, dim3(1), dim3(SUM_THREADS), 0, a->x, a->weights, a->y, a->n,
                   (double)a->divisor);
}

/*
 * Products of one row of x with weights that are of a dtype, as quant_gemm_stream.cu has those in blocks: a stage is
 * 256 columns of up to four rows, of which a lane has 8 of each row. What kernels before it write may be weights of a
 * dtype: until they have ended, what comes first is brought to the second cache alone.
 */
#include "kernels/norm_row.cuh"
#include "kernels/quant_stream.cuh"

constexpr int RUN = 8, COLUMNS = RUN * NN_WARP; /* of a lane, and of a stage */

template <class F> struct dtype_layout {
  static constexpr int LANE = RUN * sizeof(F), BYTES = NN_WARP * LANE;
  using R = stream_ring<BYTES>;
  static constexpr int x = R::all;
};

/* x, rounded to F, in shared memory, by a whole block. */
template <class F> __device__ __forceinline__ void dtype_fetch_row(const quant_product &p, int32_t format, F *to) {
  if (p.raw == nullptr) {
    const F *const x = static_cast<const F *>(p.x[format]);
    for (int i = threadIdx.x; i < p.k; i += STREAM_THREADS) {
      to[i] = x[i];
    }
    return;
  }
  __shared__ float sums[NN_WARP];
  const int64_t quads = p.k / 4;
  const float rstd = p.norm == nullptr ? 0.0f : nn_rms_of_row<STREAM_THREADS>(p.raw, p.k, p.eps, sums);
  nn_each_quad<STREAM_THREADS>(p.raw, p.norm, rstd, quads, p.k, [&](int64_t quad, const float(&some)[4]) {
    if (quad < quads) {
      nn_vector<F, 4> four;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        four.x[e] = nn_from_float<F>(some[e]);
      }
      *reinterpret_cast<nn_vector<F, 4> *>(to + quad * 4) = four;
    }
  });
}

/* Brings the first lines of a warp's first rows to the second cache. */
template <class F> __device__ __forceinline__ void dtype_prefetch(const quant_product &p, const stream_plan &plan) {
  using C = stream_copies<dtype_layout<F>::BYTES>;
  constexpr int LINE = 128, MOST = C::R::STAGES * dtype_layout<F>::BYTES;
  const uint8_t *const row = stream_row(p, plan, stream_place::first().group, C::row_of_lane());
  if (row != nullptr) {
#pragma unroll 1
    for (int at = threadIdx.x % C::LANES * LINE; at < MOST && at < p.k * (int)sizeof(F); at += C::LANES * LINE) {
      nn_prefetch(row + at);
    }
  }
}

// sass: dtype_stream_kernel<nn_f16> on sm_90: at least 4 LDGSTS, at most 80 registers
template <class F>
__global__ void __launch_bounds__(STREAM_THREADS, 3) dtype_stream_kernel(quant_product p, stream_plan plan) {
  using L = dtype_layout<F>;
  using R = typename L::R;
  constexpr int EACH = 16 / sizeof(F);
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int32_t steps = (int32_t)((p.k + COLUMNS - 1) / COLUMNS);
  unsigned char *const ring = shared + warp * (R::STAGES * R::STAGE);
  F *const x = reinterpret_cast<F *>(shared + L::x);
  nn_let_next_start();
  dtype_prefetch<F>(p, plan);
  stream_prefetch_gains(p);
  nn_wait_for_kernels();
  stream_copies<L::BYTES> copies(p, plan, (int32_t)p.k * (int32_t)sizeof(F), steps);
  stream_place place = stream_place::first();
  float sums[STREAM_ROWS] = {};
#pragma unroll 1
  for (int turn = -R::STAGES, stage = 0;; turn++) { /* first the ring is filled */
    if (turn == 0) {
      dtype_fetch_row<F>(p, p.matrix[0].format, x);
      __syncthreads();
    }
    if (turn >= 0 && place.group >= plan.groups) {
      break;
    }
    unsigned char *const here = ring + stage * R::STAGE;
    if (turn >= 0) {
      const int column = (place.step * NN_WARP + lane) * RUN;
      nn_copy_async_wait<R::STAGES - 1>();
      __syncwarp();
      if (column < p.k) {
#pragma unroll
        for (int run = 0; run < RUN; run += EACH) {
          float a[EACH];
          nn_load(a, x + column + run);
#pragma unroll
          for (int r = 0; r < STREAM_ROWS; r++) { /* those that are not there have sums that nobody uses */
            float b[EACH];
            nn_load(b, reinterpret_cast<const F *>(here + r * R::ROW) + lane * RUN + run);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
              sums[r] = fmaf(a[e], b[e], sums[r]);
            }
          }
        }
      }
      __syncwarp(); /* the stage is free */
    }
    copies.next(here);
    stage = stage + 1 == R::STAGES ? 0 : stage + 1;
    if (turn < 0) {
      continue;
    }
    if (place.step + 1 == steps) {
      float mine = 0.0f;
#pragma unroll
      for (int r = 0; r < STREAM_ROWS; r++) {
        const float whole = nn_warp_sum(sums[r]);
        mine = lane == r ? whole : mine;
        sums[r] = 0.0f;
      }
      stream_finish(p, plan, stream_group(p, plan, place.group), mine);
    }
    place.next(steps);
  }
  nn_copy_async_wait<0>();
}

int32_t quant_run_stream_dtype(nncuda_ctx *ctx, quant_product &p) {
  NN_SWITCH_FLOATS(p.matrix[0].format,
                   return (stream_start(ctx, dtype_stream_kernel<T>, p, dtype_layout<T>::x + p.k * sizeof(T))));
  return NNCUDA_ERROR_INTERNAL;
}

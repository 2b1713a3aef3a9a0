/*
 * Products of one row of x with weights that are of a dtype, as quant_gemm_stream.cu has those in blocks: a stage is
 * 256 columns of up to four rows. A lane multiplies what it copied itself, 8 columns of each row, and so warps meet at
 * no barrier. What kernels before it write may be weights of a dtype: until they have ended, the first stages come to
 * the second cache alone.
 */
#include "kernels/instructions_copy.cuh"
#include "kernels/norm_row.cuh"
#include "kernels/quant_stream.cuh"

constexpr int RUN = 8, COLUMNS = RUN * NN_WARP; /* of a lane, and of a stage */

template <class F> struct dtype_layout {
  static constexpr int LANE = RUN * sizeof(F), ROW = NN_WARP * LANE, STAGE = STREAM_ROWS * ROW;
  static constexpr int STAGES = stream_stages(STAGE), x = STREAM_WARPS * STAGES * STAGE;
  static_assert(LANE % 16 == 0);
};

template <class F> struct dtype_copies {
  using L = dtype_layout<F>;
  const quant_product &p;
  const stream_plan &plan;
  const int32_t steps;
  stream_place place;
  const uint8_t *row[STREAM_ROWS]; /* what the lane has of them; null where there is none */

  __device__ __forceinline__ dtype_copies(const quant_product &product, const stream_plan &cut, int32_t all)
      : p(product), plan(cut), steps(all), place(stream_place::first()) {
    find();
  }
  __device__ __forceinline__ void find() {
#pragma unroll
    for (int r = 0; r < STREAM_ROWS; r++) {
      row[r] = stream_row(p, plan, place.group, r);
    }
  }
  /* put(r, run, from) for each 16 bytes that the lane has of the next stage. */
  template <class PUT> __device__ __forceinline__ void next(PUT put) {
    const int column = (place.step * NN_WARP + (int)(threadIdx.x % NN_WARP)) * RUN;
    if (column < p.k) {
#pragma unroll
      for (int r = 0; r < STREAM_ROWS; r++) {
        if (row[r] != nullptr) {
#pragma unroll
          for (int run = 0; run < L::LANE; run += 16) {
            put(r, run, row[r] + column * (int)sizeof(F) + run);
          }
        }
      }
    }
    if (place.next(steps)) {
      find();
    }
  }
  __device__ __forceinline__ void copy(unsigned char *stage) {
    const uint32_t to = nn_shared_address(stage) + threadIdx.x % NN_WARP * 16;
    /* A lane's runs lie 512 bytes apart, so that lanes side by side meet no bank twice. */
    next([&](int r, int run, const uint8_t *from) { nn_copy_async<16>(to + r * L::ROW + run * NN_WARP, from); });
    nn_copy_async_commit();
  }
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
      nn_store(to + quad * 4, some);
    }
  });
}

// sass: dtype_stream_kernel<nn_f16> on sm_90: at least 4 LDGSTS, at most 80 registers
template <class F>
__global__ void __launch_bounds__(STREAM_THREADS, 3) dtype_stream_kernel(quant_product p, stream_plan plan) {
  using L = dtype_layout<F>;
  constexpr int EACH = 16 / sizeof(F), RUNS = RUN / EACH;
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int32_t steps = (int32_t)((p.k + COLUMNS - 1) / COLUMNS);
  unsigned char *const ring = shared + warp * (L::STAGES * L::STAGE);
  F *const x = reinterpret_cast<F *>(shared + L::x);
  nn_let_next_start();
  {
    dtype_copies<F> ahead(p, plan, steps);
#pragma unroll 1
    for (int i = 0; i < L::STAGES; i++) {
      ahead.next([&](int, int, const uint8_t *from) {
        if (lane % 8 == 0) { /* a line, or half of one */
          nn_prefetch(from);
        }
      });
    }
  }
  stream_prefetch_gains(p);
  nn_wait_for_kernels();
  dtype_copies<F> copies(p, plan, steps);
#pragma unroll 1
  for (int i = 0; i < L::STAGES; i++) {
    copies.copy(ring + i * L::STAGE);
  }
  dtype_fetch_row<F>(p, p.matrix[0].format, x);
  __syncthreads();
  int stage = 0;
  float sums[STREAM_ROWS] = {};
  for (stream_place place = stream_place::first(); place.group < plan.groups; place.next(steps)) {
    const int column = (place.step * NN_WARP + lane) * RUN;
    unsigned char *const here = ring + stage * L::STAGE;
    nn_copy_async_wait<L::STAGES - 1>();
    if (column < p.k) {
#pragma unroll
      for (int run = 0; run < RUNS; run++) {
        float a[EACH];
        nn_load(a, x + column + run * EACH);
#pragma unroll
        for (int r = 0; r < STREAM_ROWS; r++) { /* those that are not there have sums that nobody uses */
          float b[EACH];
          nn_load(b, reinterpret_cast<const F *>(here + r * L::ROW + run * (NN_WARP * 16) + lane * 16));
#pragma unroll
          for (int e = 0; e < EACH; e++) {
            sums[r] = fmaf(a[e], b[e], sums[r]);
          }
        }
      }
    }
    copies.copy(here);
    stage = stage + 1 == L::STAGES ? 0 : stage + 1;
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
  }
  nn_copy_async_wait<0>();
}

int32_t quant_run_stream_dtype(nncuda_ctx *ctx, quant_product &p) {
  NN_SWITCH_FLOATS(p.matrix[0].format,
                   return (stream_start(ctx, dtype_stream_kernel<T>, p, dtype_layout<T>::x + p.k * sizeof(T))));
  return NNCUDA_ERROR_INTERNAL;
}

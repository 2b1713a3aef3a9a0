/*
 * Gradients of attention in f32 arithmetic on the ordinary cores: for f32, and for 16-bit types where the tensor cores
 * do not take them. 256 threads; for S and dP each warp has some rows and its lanes the keys, for the products with S
 * and dP each thread has four columns of some rows or keys.
 */
#ifndef NN_KERNELS_ATTENTION_BACKWARD_SIMT_CUH
#define NN_KERNELS_ATTENTION_BACKWARD_SIMT_CUH

#include "kernels/attention_backward.cuh"

/* Rows and keys of a tile by padded head_dim: by count, so that four tiles of D columns fit in 64 KiB of shared memory,
 * which every architecture has. */
template <int D> struct nn_backward_simt_tile;
template <> struct nn_backward_simt_tile<64> {
  static constexpr int M = 32, N = 32;
};
template <> struct nn_backward_simt_tile<128> {
  static constexpr int M = 16, N = 32;
};
template <> struct nn_backward_simt_tile<256> {
  static constexpr int M = 8, N = 16;
};

template <int D> struct nn_backward_simt_layout : nn_backward_simt_tile<D> {
  using nn_backward_simt_tile<D>::M;
  using nn_backward_simt_tile<D>::N;
  static constexpr int THREADS = 256, LD = D + 4, LD_P = N + 4;
  static constexpr int ROWS = M * N / THREADS > 0 ? M *N / THREADS : 1; /* rows of a thread in S and dP, of one key */
  static constexpr int LINES = THREADS / (D / 4);                       /* rows or keys at once in the other products */
  static constexpr size_t bytes = sizeof(float) * ((size_t)2 * (M + N) * LD + (size_t)2 * M * LD_P + (size_t)4 * M);
};

template <int D> struct nn_backward_simt_tiles {
  using L = nn_backward_simt_layout<D>;
  float *q, *dout, *k, *v, *p, *ds;
  float4 *row_sums;

  __device__ __forceinline__ explicit nn_backward_simt_tiles(unsigned char *shared) {
    row_sums = reinterpret_cast<float4 *>(shared);
    q = reinterpret_cast<float *>(row_sums + L::M);
    dout = q + L::M * L::LD;
    k = dout + L::M * L::LD;
    v = k + L::N * L::LD;
    p = v + L::N * L::LD;
    ds = p + L::M * L::LD_P;
  }

  template <class T>
  __device__ __forceinline__ void load_rows(const nn_flash_backward &a, const nn_query_rows &rows, int64_t sums_at) {
    const nn_attention_sizes &s = a.sizes;
    nn_load_tile<D, L::LD, L::THREADS>(q, L::M, rows.count, static_cast<const T *>(a.q), s.dim, a.wide,
                                       [&](int r) { return rows.at(r, s.ld_q, s.dim); });
    nn_load_tile<D, L::LD, L::THREADS>(dout, L::M, rows.count, static_cast<const T *>(a.dout), s.dim, a.wide_out,
                                       [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
    for (int r = threadIdx.x; r < L::M; r += L::THREADS) {
      row_sums[r] = r < rows.count ? a.row_sums[sums_at + r] : make_float4(-nn_lowest(), 0.0f, 0.0f, 0.0f);
    }
  }

  template <class T> __device__ __forceinline__ void load_keys(const nn_flash_backward &a, int64_t at, int count) {
    const nn_attention_sizes &s = a.sizes;
    nn_load_tile<D, L::LD, L::THREADS>(k, L::N, count, static_cast<const T *>(a.k) + at, s.dim, a.wide,
                                       [&](int r) { return r * s.ld_kv; });
    nn_load_tile<D, L::LD, L::THREADS>(v, L::N, count, static_cast<const T *>(a.v) + at, s.dim, a.wide,
                                       [&](int r) { return r * s.ld_kv; });
  }

  /* P and dS of the tile. */
  __device__ __forceinline__ void soften(const nn_flash_backward &a, const nn_query_rows &rows, int64_t key) {
    const nn_attention_sizes &s = a.sizes;
    const int n = threadIdx.x % L::N, first = threadIdx.x / L::N * L::ROWS;
    if (first >= L::M) {
      return;
    }
    float score[L::ROWS] = {}, dp[L::ROWS] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      float x[4], y[4];
      nn_load_4(x, k + n * L::LD + d);
      nn_load_4(y, v + n * L::LD + d);
#pragma unroll
      for (int i = 0; i < L::ROWS; i++) {
        float b[4], c[4];
        nn_load_4(b, q + (first + i) * L::LD + d);
        nn_load_4(c, dout + (first + i) * L::LD + d);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          score[i] = fmaf(b[e], x[e], score[i]);
          dp[i] = fmaf(c[e], y[e], dp[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < L::ROWS; i++) {
      const int r = first + i;
      const float4 sums = row_sums[r];
      const int32_t on = rows.further(r);
      const bool seen = r < rows.count && key + n < nn_keys_seen(s, rows.query + on) &&
                        key + n >= nn_first_key(a.starts, rows.sequence_query + on);
      const float x = seen ? nn_exp2_approx(nn_times(score[i], a.factor) - sums.x - sums.y) : 0.0f;
      p[r * L::LD_P + n] = x;
      ds[r * L::LD_P + n] = seen ? x * (dp[i] - sums.z) : 0.0f;
    }
  }
};

/* dK and dV of N keys, from the rows of a piece. */
template <class T, int D> __global__ void __launch_bounds__(256, 1) nn_backward_simt_keys_kernel(nn_flash_backward a) {
  using L = nn_backward_simt_layout<D>;
  NN_SHARED_BYTES(shared);
  nn_backward_simt_tiles<D> t(shared);
  const nn_attention_sizes &s = a.sizes;
  const int64_t piece = blockIdx.x % a.pieces, tile = blockIdx.x / a.pieces % a.tiles;
  const int64_t pair = blockIdx.x / a.pieces / a.tiles, sequence = pair / s.kv_heads, key = tile * L::N;
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const int count = (int)(s.kv_len - key < L::N ? s.kv_len - key : L::N);
  const int64_t at = (sequence * s.kv_len + key) * s.ld_kv + (int64_t)kv_head * s.dim;
  t.template load_keys<T>(a, at, count);
  constexpr int KEYS = L::N / L::LINES > 0 ? L::N / L::LINES : 1;
  const int line = threadIdx.x / (D / 4), d = threadIdx.x % (D / 4) * 4;
  float dk[KEYS][4] = {}, dv[KEYS][4] = {};
  const nn_backward_span span(a, sequence, key, L::N, piece, L::M);
  for (int i = span.first; i < span.end; i++) {
    const nn_query_rows rows(s, sequence, kv_head, (int64_t)i * L::M, L::M);
    __syncthreads();
    t.template load_rows<T>(a, rows, pair * s.rows() + (int64_t)i * L::M);
    __syncthreads();
    t.soften(a, rows, key);
    __syncthreads();
#pragma unroll 2
    for (int m = 0; m < L::M; m++) {
      float x[4], y[4];
      nn_load_4(x, t.dout + m * L::LD + d);
      nn_load_4(y, t.q + m * L::LD + d);
#pragma unroll
      for (int n = 0; n < KEYS; n++) {
        const float p = t.p[m * L::LD_P + line + n * L::LINES], ds = t.ds[m * L::LD_P + line + n * L::LINES];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          dv[n][e] = fmaf(p, x[e], dv[n][e]);
          dk[n][e] = fmaf(ds, y[e], dk[n][e]);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < KEYS; n++) {
    const int r = line + n * L::LINES;
    if (r < count && d < s.dim) {
      if (a.partial != nullptr) {
        nn_store_row(a.partial + nn_partial_at(a, piece, 0, pair, key + r) + d, dk[n], true);
        nn_store_row(a.partial + nn_partial_at(a, piece, 1, pair, key + r) + d, dv[n], true);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          dk[n][e] *= a.scale;
        }
        nn_store_row(static_cast<T *>(a.dk) + at + r * s.ld_kv + d, dk[n], a.wide);
        nn_store_row(static_cast<T *>(a.dv) + at + r * s.ld_kv + d, dv[n], a.wide);
      }
    }
  }
}

/* dQ of M rows. */
template <class T, int D> __global__ void __launch_bounds__(256, 1) nn_backward_simt_rows_kernel(nn_flash_backward a) {
  using L = nn_backward_simt_layout<D>;
  NN_SHARED_BYTES(shared);
  nn_backward_simt_tiles<D> t(shared);
  const nn_attention_sizes &s = a.sizes;
  const int64_t tile = a.tiles - 1 - blockIdx.x % a.tiles, pair = blockIdx.x / a.tiles, sequence = pair / s.kv_heads;
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const nn_query_rows rows(s, sequence, kv_head, tile * L::M, L::M);
  const int64_t at = sequence * s.kv_len * s.ld_kv + (int64_t)kv_head * s.dim;
  t.template load_rows<T>(a, rows, pair * s.rows() + tile * L::M);
  constexpr int ROWS = L::M / L::LINES > 0 ? L::M / L::LINES : 1;
  const int line = threadIdx.x / (D / 4), d = threadIdx.x % (D / 4) * 4;
  float dq[ROWS][4] = {};
  const int64_t limit = nn_keys_seen(s, rows.query + rows.further(rows.count - 1));
  for (int64_t key = nn_first_tile<L::N>(a.starts, rows); key < limit; key += L::N) {
    __syncthreads();
    t.template load_keys<T>(a, at + key * s.ld_kv, (int)(limit - key < L::N ? limit - key : L::N));
    __syncthreads();
    t.soften(a, rows, key);
    __syncthreads();
#pragma unroll 4
    for (int n = 0; n < L::N; n++) {
      float x[4];
      nn_load_4(x, t.k + n * L::LD + d);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        const float ds = line + m * L::LINES < L::M ? t.ds[(line + m * L::LINES) * L::LD_P + n] : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++) {
          dq[m][e] = fmaf(ds, x[e], dq[m][e]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    const int r = line + m * L::LINES;
    if (r < rows.count && d < s.dim) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        dq[m][e] *= a.scale;
      }
      nn_store_row(static_cast<T *>(a.dq) + rows.at(r, s.ld_q, s.dim) + d, dq[m], a.wide);
    }
  }
}

template <class T, int D> struct nn_backward_simt {
  using L = nn_backward_simt_layout<D>;
  static constexpr int N = L::N, M = L::M;
  static constexpr bool FIRST_KEYS = false; /* in row_sums */
  static_assert(N == nn_backward_keys(0, D));

  static int32_t keys(nncuda_ctx *ctx, const nn_flash_backward &a) {
    return nn_launch(ctx, nn_backward_simt_keys_kernel<T, D>, dim3((unsigned)(a.pieces * a.tiles * a.pairs)),
                     dim3(L::THREADS), L::bytes, a);
  }
  static int32_t rows(nncuda_ctx *ctx, nn_flash_backward a) {
    a.tiles = nn_ceil_div(a.sizes.rows(), M);
    return nn_launch(ctx, nn_backward_simt_rows_kernel<T, D>, dim3((unsigned)(a.tiles * a.pairs)), dim3(L::THREADS),
                     L::bytes, a);
  }
};

#endif

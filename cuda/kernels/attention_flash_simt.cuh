/*
 * Attention in f32 arithmetic on the ordinary cores (Dao 2023, algorithm 1): for f32, and for 16-bit types where the
 * tensor cores do not take them.
 *
 * A block has M rows and walks over the keys N at a time. 16 x 16 threads: thread (y, x) has rows y * M/16 and on, of
 * the scores the keys x, x + 16, ..., and of the output elements 4x to 4x + 3, 64 further, ... So what a row's softmax
 * needs lies in half a warp. The tile of K makes room for that of V in turn.
 */
#ifndef NN_KERNELS_ATTENTION_FLASH_SIMT_CUH
#define NN_KERNELS_ATTENTION_FLASH_SIMT_CUH

#include "kernels/attention_flash.cuh"

/*
 * Rows and keys of a tile by padded head_dim: by count, so that Q, one of K and V, and P fit in 64 KiB of shared
 * memory, which every architecture has.
 */
template <int D> struct nn_flash_simt_tile;
template <> struct nn_flash_simt_tile<64> {
  static constexpr int M = 64, N = 64;
};
template <> struct nn_flash_simt_tile<128> {
  static constexpr int M = 64, N = 32;
};
template <> struct nn_flash_simt_tile<256> {
  static constexpr int M = 32, N = 16;
};

template <int D> struct nn_flash_simt_layout : nn_flash_simt_tile<D> {
  using nn_flash_simt_tile<D>::M;
  using nn_flash_simt_tile<D>::N;
  static constexpr int THREADS = 256;
  static constexpr int LD = D + 4, LD_P = N + 4; /* rows of four more, so that columns of 16 bytes meet all banks */
  static constexpr int ROWS = M / 16, KEYS = N / 16, PARTS = D / 64; /* of each thread */
  static constexpr size_t bytes = sizeof(float) * ((size_t)M * LD + (size_t)N * LD + (size_t)M * LD_P);
};

template <class T, int D> __global__ void __launch_bounds__(256, 1) nn_flash_simt_kernel(nn_flash p) {
  using L = nn_flash_simt_layout<D>;
  NN_SHARED_BYTES(shared);
  float *const q = reinterpret_cast<float *>(shared), *const kv = q + L::M * L::LD, *const probs = kv + L::N * L::LD;
  const nn_attention_sizes &s = p.sizes;
  /* The last tile sees the most keys: it goes first. */
  const int64_t tile = p.tiles - 1 - blockIdx.x % p.tiles, pair = blockIdx.x / p.tiles;
  const int64_t sequence = pair / s.kv_heads;
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const nn_query_rows rows(s, sequence, kv_head, tile * L::M, L::M);
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t kv_at = sequence * s.kv_len * s.ld_kv + (int64_t)kv_head * s.dim;
  const T *const k = static_cast<const T *>(p.k) + kv_at, *const v = static_cast<const T *>(p.v) + kv_at;

  nn_load_tile<D, L::LD, L::THREADS>(q, L::M, rows.count, static_cast<const T *>(p.q), s.dim, p.wide,
                                     [&](int r) { return rows.at(r, s.ld_q, s.dim); });
  float out[L::ROWS][L::PARTS][4] = {}, peak[L::ROWS], sum[L::ROWS];
  int64_t seen[L::ROWS];
  int32_t start[L::ROWS];
#pragma unroll
  for (int i = 0; i < L::ROWS; i++) {
    const int r = y * L::ROWS + i;
    peak[i] = nn_lowest();
    sum[i] = 0.0f;
    seen[i] = r < rows.count ? nn_keys_seen(s, rows.query + rows.further(r)) : 0;
    start[i] = r < rows.count ? nn_first_key(p.starts, rows.sequence_query + rows.further(r)) : 0;
  }
  const int64_t limit = nn_keys_seen(s, rows.query + rows.further(rows.count - 1));
  for (int64_t key = nn_first_tile<L::N>(p.starts, rows); key < limit; key += L::N) {
    const int count = (int)(limit - key < L::N ? limit - key : L::N);
    __syncthreads();
    nn_load_tile<D, L::LD, L::THREADS>(kv, L::N, count, k + key * s.ld_kv, s.dim, p.wide,
                                       [&](int r) { return r * s.ld_kv; });
    __syncthreads();
    float score[L::ROWS][L::KEYS] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      float a[L::ROWS][4], b[L::KEYS][4];
#pragma unroll
      for (int i = 0; i < L::ROWS; i++) {
        nn_load_4(a[i], q + (y * L::ROWS + i) * L::LD + d);
      }
#pragma unroll
      for (int j = 0; j < L::KEYS; j++) {
        nn_load_4(b[j], kv + (x + 16 * j) * L::LD + d);
      }
#pragma unroll
      for (int i = 0; i < L::ROWS; i++) {
#pragma unroll
        for (int j = 0; j < L::KEYS; j++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            score[i][j] = fmaf(a[i][e], b[j][e], score[i][j]);
          }
        }
      }
    }
    __syncthreads();
    nn_load_tile<D, L::LD, L::THREADS>(kv, L::N, count, v + key * s.ld_kv, s.dim, p.wide,
                                       [&](int r) { return r * s.ld_kv; });
#pragma unroll
    for (int i = 0; i < L::ROWS; i++) {
      float top = peak[i];
#pragma unroll
      for (int j = 0; j < L::KEYS; j++) {
        const bool sees = key + x + 16 * j < seen[i] && key + x + 16 * j >= start[i];
        score[i][j] = sees ? nn_times(score[i][j], p.factor) : nn_lowest();
        top = fmaxf(top, score[i][j]);
      }
      top = nn_warp_max<16>(top);
      const float base = top == nn_lowest() ? 0.0f : top; /* no key seen yet: all powers are 0 */
      const float rescale = nn_exp2_approx(peak[i] - base);
      peak[i] = top;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < L::KEYS; j++) {
        const float power = nn_exp2_approx(score[i][j] - base);
        total += power;
        probs[(y * L::ROWS + i) * L::LD_P + x + 16 * j] = power;
      }
      sum[i] = fmaf(sum[i], rescale, total); /* of this thread's keys */
#pragma unroll
      for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          out[i][part][e] *= rescale;
        }
      }
    }
    __syncthreads();
#pragma unroll 2
    for (int n = 0; n < L::N; n += 4) {
      float a[L::ROWS][4];
#pragma unroll
      for (int i = 0; i < L::ROWS; i++) {
        nn_load_4(a[i], probs + (y * L::ROWS + i) * L::LD_P + n);
      }
#pragma unroll
      for (int m = 0; m < 4; m++) {
#pragma unroll
        for (int part = 0; part < L::PARTS; part++) {
          float b[4];
          nn_load_4(b, kv + (n + m) * L::LD + 4 * x + 64 * part);
#pragma unroll
          for (int i = 0; i < L::ROWS; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              out[i][part][e] = fmaf(a[i][m], b[e], out[i][part][e]);
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < L::ROWS; i++) {
    const int r = y * L::ROWS + i;
    const float total = nn_warp_sum<16>(sum[i]);
    if (r < rows.count) {
      const float share = seen[i] > 0 ? 1.0f / total : 0.0f;
      T *const to = static_cast<T *>(p.out) + rows.at(r, s.ld_out(), s.dim);
#pragma unroll
      for (int part = 0; part < L::PARTS; part++) {
        const int d = 4 * x + 64 * part;
        float result[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          result[e] = out[i][part][e] * share;
        }
        if (d < s.dim) {
          nn_store_row(to + d, result, p.wide_out);
        }
      }
      if (p.lse != nullptr && x == 0) {
        p.lse[rows.at_head(r, s, sequence)] = seen[i] > 0 ? nn_log_sum(peak[i], total) : nn_lowest();
      }
    }
  }
}

template <class T, int D> inline int32_t nn_flash_simt(nncuda_ctx *ctx, nn_flash p, int64_t pairs) {
  using L = nn_flash_simt_layout<D>;
  p.tiles = nn_ceil_div(p.sizes.rows(), L::M);
  return nn_launch(ctx, nn_flash_simt_kernel<T, D>, dim3((unsigned)(p.tiles * pairs)), dim3(L::THREADS), L::bytes, p);
}

#endif

/*
 * Attention on the tensor cores by mma.sync (Dao 2023, algorithm 1), for f16 from sm_75 and bf16 from sm_80.
 *
 * Each warp has 16 * PARTS rows and all their scores, so that a row's maximum and sum lie in four lanes, and P goes
 * from the registers of one product to those of the next, rounded to 16 bits. The values of a tile of keys arrive while
 * its scores are computed, the next tile's keys while its values are used: one buffer for each is enough.
 */
#ifndef NN_KERNELS_ATTENTION_FLASH_MMA_CUH
#define NN_KERNELS_ATTENTION_FLASH_MMA_CUH

#include "kernels/attention_flash.cuh"
#include "kernels/attention_mma.cuh"

/*
 * By padded head_dim: warps, 16-row parts of each, keys of a tile.
 *
 * A fragment of K or V feeds PARTS products: with one, shared memory delivers as slowly as the tensor cores consume;
 * with two, twice as fast. Sums take PARTS * (D + N) / 2 registers. All fit in sm_75's 64 KiB of shared memory, and two
 * blocks or more in a multiprocessor of sm_80 and up. By count.
 */
template <int D> struct nn_flash_mma_tile;
template <> struct nn_flash_mma_tile<64> {
  static constexpr int WARPS = 4, PARTS = 2, N = 64;
};
template <> struct nn_flash_mma_tile<128> {
  static constexpr int WARPS = 4, PARTS = 2, N = 32;
};
template <> struct nn_flash_mma_tile<256> {
  static constexpr int WARPS = 4, PARTS = 1, N = 32;
};

template <int D> struct nn_flash_mma_layout : nn_flash_mma_tile<D> {
  using nn_flash_mma_tile<D>::WARPS;
  using nn_flash_mma_tile<D>::PARTS;
  using nn_flash_mma_tile<D>::N;
  static constexpr int THREADS = 32 * WARPS, ROWS = 16 * PARTS, M = WARPS * ROWS;
  static constexpr int k_at = nn_mma_tile<D>::bytes(M), v_at = k_at + nn_mma_tile<D>::bytes(N);
  static constexpr size_t bytes = v_at + nn_mma_tile<D>::bytes(N);
};

// spills: nn_flash_mma_kernel on sm_75: a row of 256 columns of sums takes nearly all registers, and without
// asynchronous copies K and V pass through registers, too; 8 bytes a thread for the widest heads of the oldest tensor
// cores
template <class T, int D>
__global__ void __launch_bounds__(nn_flash_mma_layout<D>::THREADS, 2) nn_flash_mma_kernel(nn_flash p) {
  using L = nn_flash_mma_layout<D>;
  NN_SHARED_BYTES(shared);
  const nn_attention_sizes &s = p.sizes;
  /* The last tile sees the most keys: it goes first. */
  const int64_t tile = p.tiles - 1 - blockIdx.x % p.tiles, pair = blockIdx.x / p.tiles;
  const int64_t sequence = pair / s.kv_heads;
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const nn_query_rows rows(s, sequence, kv_head, tile * L::M, L::M);
  const int lane = threadIdx.x % NN_WARP, first_row = threadIdx.x / NN_WARP * L::ROWS;
  const int64_t kv_at = sequence * s.kv_len * s.ld_kv + (int64_t)kv_head * s.dim;
  const T *const k = static_cast<const T *>(p.k) + kv_at, *const v = static_cast<const T *>(p.v) + kv_at;
  const uint32_t q_tile = nn_shared_address(shared), k_tile = q_tile + L::k_at, v_tile = q_tile + L::v_at;
  const nn_mma_lane<D> place;
  const int first_seen = (int)nn_keys_seen(s, rows.query);
  const int limit = (int)nn_keys_seen(s, rows.query + rows.further(rows.count - 1));
  /* The first tile of keys, and the first key that all rows may see. */
  const int begin = nn_first_tile<L::N>(p.starts, rows);
  const int last_start = nn_first_key(p.starts, rows.sequence_query + rows.further(rows.count - 1));
  const auto load = [&](int to, const T *from, int key) {
    const int count = limit - key < L::N ? limit - key : L::N;
    nn_mma_load_rows<D, L::N, L::THREADS>(shared + to, from + (int64_t)key * s.ld_kv, s.ld_kv, count, s.dim, p.wide);
    nn_copy_async_commit();
  };

  nn_mma_load<D, L::M, L::THREADS>(shared, static_cast<const T *>(p.q), rows.count, s.dim, p.wide,
                                   [&](int r) { return rows.at(r, s.ld_q, s.dim); });
  load(L::k_at, k, begin);
  nn_copy_async_wait<0>();
  __syncthreads();
  float factor = p.factor.high;
  if (factor < 0.0f) { /* the largest score must be that of the largest product */
    factor = -factor;
    for (int i = threadIdx.x; i < L::k_at / 4; i += L::THREADS) {
      reinterpret_cast<uint32_t *>(shared)[i] ^= 0x80008000u;
    }
    __syncthreads();
  }
  float out[L::PARTS][D / 8][4] = {}, peak[L::PARTS][2], sum[L::PARTS][2] = {};
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
    peak[part][0] = peak[part][1] = nn_lowest();
  }
  for (int key = begin; key < limit; key += L::N) {
    if (key > begin) {
      nn_copy_async_wait<0>();
      __syncthreads(); /* K is there, and V no longer needed */
    }
    load(L::v_at, v, key);
    float score[L::PARTS][L::N / 8][4] = {};
    nn_mma_scores<T>(score, place, q_tile, first_row, k_tile);
    if (key + L::N > first_seen || key < last_start) { /* some row of the tile does not see all of these keys */
      nn_hide_from_rows(score, s, p.starts, rows, first_row, key, nn_lowest());
    }
    nn_copy_async_wait<0>();
    __syncthreads(); /* V is there, and K no longer needed */
    if (key + L::N < limit) {
      load(L::k_at, k, key + L::N);
    }
#pragma unroll
    for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = peak[part][half];
#pragma unroll
        for (int n = 0; n < L::N / 8; n++) {
          top = fmaxf(top, fmaxf(score[part][n][2 * half], score[part][n][2 * half + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(NN_ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(NN_ALL_LANES, top, 2));
        const float base = top == nn_lowest() ? 0.0f : top * factor; /* no key seen yet: all powers are 0 */
        const float rescale = nn_exp2_approx(fmaf(peak[part][half], factor, -base));
        peak[part][half] = top;
        float total = 0.0f;
#pragma unroll
        for (int n = 0; n < L::N / 8; n++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const float power = nn_exp2_approx(fmaf(score[part][n][2 * half + e], factor, -base));
            score[part][n][2 * half + e] = power;
            total += power;
          }
        }
        sum[part][half] = fmaf(sum[part][half], rescale, total); /* of this lane's keys */
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
          out[part][n][2 * half] *= rescale;
          out[part][n][2 * half + 1] *= rescale;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < L::N / 16; n++) {
      uint32_t a[L::PARTS][4];
#pragma unroll
      for (int part = 0; part < L::PARTS; part++) {
        nn_sums_to_a<T>(a[part], score[part][2 * n], score[part][2 * n + 1]);
      }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        uint32_t b[4];
        place.load_b_rows(b, v_tile, 16 * n, d);
#pragma unroll
        for (int part = 0; part < L::PARTS; part++) {
          nn_mma_m16n8k16<T>(out[part][2 * d], a[part], b[0], b[1]);
          nn_mma_m16n8k16<T>(out[part][2 * d + 1], a[part], b[2], b[3]);
        }
      }
    }
  }
  /* Through the place of Q, of which each warp has read its own rows alone. */
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float total = nn_warp_sum<4>(sum[part][half]);
      const int r = first_row + 16 * part + 8 * half + lane / 4;
      const bool sees = nn_keys_seen(s, rows.query + rows.further(r)) > 0;
      share[half] = sees ? 1.0f / total : 0.0f;
      if (p.lse != nullptr && lane % 4 == 0 && r < rows.count) {
        p.lse[rows.at_head(r, s, sequence)] = sees ? nn_log_sum(peak[part][half] * factor, total) : nn_lowest();
      }
    }
    nn_sums_to_tile<T, D>(shared, first_row + 16 * part, 0, out[part], share);
  }
  __syncwarp();
  nn_tile_to_rows<D, L::ROWS, D>(static_cast<T *>(p.out), shared, first_row, 0, rows.count, s.dim, p.wide_out,
                                 [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
}

template <class T, int D> inline int32_t nn_flash_mma(nncuda_ctx *ctx, nn_flash p, int64_t pairs) {
  using L = nn_flash_mma_layout<D>;
  p.tiles = nn_ceil_div(p.sizes.rows(), L::M);
  return nn_launch(ctx, nn_flash_mma_kernel<T, D>, dim3((unsigned)(p.tiles * pairs)), dim3(L::THREADS), L::bytes, p);
}

#endif

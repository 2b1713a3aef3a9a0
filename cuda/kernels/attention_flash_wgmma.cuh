/*
 * Attention on Hopper's tensor cores (wgmma, sm_90a; Shah et al. 2024, "FlashAttention-3", algorithm 2), for f16 and
 * bf16 up to head_dim 128 whose K and V have rows of whole 16 bytes.
 *
 * A warp of the first warpgroup has the copy engine bring tiles of K and V into two rings in shared memory. The other
 * warpgroups have 64 rows each: Q stays in registers, S comes from Q and K, P goes from registers to the product with
 * V. While the product with V of one tile runs, so does the softmax of the next one.
 */
#ifndef NN_KERNELS_ATTENTION_FLASH_WGMMA_CUH
#define NN_KERNELS_ATTENTION_FLASH_WGMMA_CUH

#include "kernels/attention_flash.cuh"
#include "kernels/attention_mma.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/*
 * Registers of a consumer: (D + N) / 2 sums, N / 4 of P and D / 4 of Q, at most 192 of the 232 that setmaxnreg leaves
 * (128 * 40 + 256 * 232 = 64512 in all). The rings take 64 KiB for D = 64 and 128 KiB for 128. By count.
 */
template <int D_> struct nn_flash_wgmma_layout {
  static constexpr int D = D_, CONSUMERS = 2, M = 64 * CONSUMERS, N = 128, STAGES = 2, THREADS = 128 * (1 + CONSUMERS);
  static constexpr int HALF = N * 128; /* bytes of 64 columns of a tile: a box */
  static constexpr int TILE = D / 64 * HALF;
  static constexpr int k_at = nn_mma_tile<D>::bytes(M), v_at = k_at + STAGES * TILE, barriers_at = v_at + STAGES * TILE;
  static constexpr size_t bytes = barriers_at + 4 * STAGES * 8;
};

/* Addresses of the barriers of one ring: `full` counts the bytes of a stage, `empty` the warpgroups that have read it.
 */
struct nn_flash_ring {
  uint32_t full, empty, tiles;
};

/* A stage is what a step's number is modulo STAGES; its turns alternate between parities. */
template <class L> __device__ __forceinline__ uint32_t nn_ring_stage(int step) { return (uint32_t)step % L::STAGES; }
template <class L> __device__ __forceinline__ uint32_t nn_ring_parity(int step) {
  return (uint32_t)step / L::STAGES & 1;
}

/* By one thread: the tile of keys `key` and on, as step `step`. */
template <class L>
__device__ __forceinline__ void nn_flash_produce(const nn_flash_ring &ring, const CUtensorMap *map, int step, int key,
                                                 uint64_t policy, int kv_head, int sequence) {
  const uint32_t stage = nn_ring_stage<L>(step), full = ring.full + 8 * stage;
  nn_mbarrier_wait(ring.empty + 8 * stage, nn_ring_parity<L>(step) ^ 1);
  nn_mbarrier_arrive_expect(full, L::TILE);
#pragma unroll
  for (int half = 0; half < L::D / 64; half++) {
    nn_tensor_load(ring.tiles + stage * L::TILE + half * L::HALF, map, full, policy, 64 * half, kv_head, key, sequence);
  }
}

template <class L> __device__ __forceinline__ void nn_flash_await(const nn_flash_ring &ring, int step) {
  nn_mbarrier_wait(ring.full + 8 * nn_ring_stage<L>(step), nn_ring_parity<L>(step));
}

template <class L> __device__ __forceinline__ void nn_flash_release(const nn_flash_ring &ring, int step) {
  if (threadIdx.x % 128 == 0) {
    nn_mbarrier_arrive(ring.empty + 8 * nn_ring_stage<L>(step));
  }
}

/* Starts S = Q K^T of a step. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_start_scores(float (&score)[L::N / 2], const uint32_t (&q)[L::D / 16][4],
                                                      const nn_flash_ring &ring, int step) {
  const uint32_t tile = ring.tiles + nn_ring_stage<L>(step) * L::TILE;
#pragma unroll
  for (int d = 0; d < L::D / 16; d++) {
    const uint64_t k = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(tile + d / 4 * L::HALF);
    nn_wgmma<T>(score, q[d], nn_wgmma_step(k, d % 4 * 32), d > 0);
  }
  nn_wgmma_commit();
}

/* Starts O += P V of a step. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_start_output(float (&out)[L::D / 2], const uint32_t (&prob)[L::N / 16][4],
                                                      const nn_flash_ring &ring, int step) {
  const uint64_t v =
      nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(ring.tiles + nn_ring_stage<L>(step) * L::TILE, L::HALF);
#pragma unroll
  for (int n = 0; n < L::N / 16; n++) {
    nn_wgmma<T, true>(out, prob[n], nn_wgmma_step(v, n * 16 * 128), true);
  }
  nn_wgmma_commit();
}

/* The two rows of a lane: running maxima of the products and sums of the powers of this lane's keys. */
struct nn_flash_rows {
  float peak[2], sum[2], rescale[2];
};

/* Products to powers of two below the rows' maxima; `rescale` is what older sums and outputs are to be multiplied by.
 */
template <int COUNT>
__device__ __forceinline__ void nn_flash_soften(float (&score)[COUNT], nn_flash_rows &rows, float factor) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float top = rows.peak[half];
#pragma unroll
    for (int n = 2 * half; n < COUNT; n += 4) {
      top = fmaxf(top, fmaxf(score[n], score[n + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(NN_ALL_LANES, top, 1));
    top = fmaxf(top, __shfl_xor_sync(NN_ALL_LANES, top, 2));
    const float base = top == nn_lowest() ? 0.0f : top * factor; /* no key seen yet: all powers are 0 */
    rows.rescale[half] = nn_exp2_approx(fmaf(rows.peak[half], factor, -base));
    rows.peak[half] = top;
    float total = 0.0f;
#pragma unroll
    for (int n = 2 * half; n < COUNT; n += 4) {
      score[n] = nn_exp2_approx(fmaf(score[n], factor, -base));
      score[n + 1] = nn_exp2_approx(fmaf(score[n + 1], factor, -base));
      total += score[n] + score[n + 1];
    }
    rows.sum[half] = fmaf(rows.sum[half], rows.rescale[half], total);
  }
}

template <class T, int COUNT>
__device__ __forceinline__ void nn_flash_pack(uint32_t (&prob)[COUNT / 8][4], const float (&score)[COUNT]) {
#pragma unroll
  for (int n = 0; n < COUNT / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      prob[n][i] = nn_pair<T>(score[8 * n + 2 * i], score[8 * n + 2 * i + 1]);
    }
  }
}

/* A warpgroup's 64 rows of the tile. Step 0 has the keys from `begin` on. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_consume(const nn_flash &p, const nn_query_rows &rows, int64_t sequence,
                                                 unsigned char *shared, const nn_flash_ring &keys,
                                                 const nn_flash_ring &values, int begin, int steps) {
  constexpr int D = L::D, N = L::N;
  const nn_attention_sizes &s = p.sizes;
  const int thread = threadIdx.x % 128, lane = thread % NN_WARP, consumer = threadIdx.x / 128 - 1;
  const int first_row = 64 * consumer, own_row = first_row + thread / NN_WARP * 16; /* the warpgroup's, the warp's */
  nn_mma_load<D, 64, 128>(
      shared + nn_mma_tile<D>::bytes(first_row), static_cast<const T *>(p.q), rows.count - first_row, s.dim, p.wide,
      [&](int r) { return rows.at(first_row + r, s.ld_q, s.dim); }, thread);
  nn_copy_async_commit();
  nn_copy_async_wait<0>();
  nn_barrier_sync(1 + consumer, 128);
  const nn_mma_lane<D> place;
  const uint32_t flip =
      p.factor.high < 0.0f ? 0x80008000u : 0; /* the largest score must be that of the largest product */
  const float factor = fabsf(p.factor.high);
  uint32_t q[D / 16][4];
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    place.load_a(q[d], nn_shared_address(shared), own_row, d);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      q[d][i] ^= flip;
    }
  }
  /* What the rows of the warpgroup see: all keys from `before` on and below `all`, none from `limit` on. */
  const int last = rows.count - 1 < first_row + 63 ? rows.count - 1 : first_row + 63;
  const int all = (int)nn_keys_seen(s, rows.query + rows.further(first_row));
  const int limit = last < first_row ? 0 : (int)nn_keys_seen(s, rows.query + rows.further(last));
  const int own_steps = limit > begin ? (limit - begin + N - 1) / N : 0;
  const int before = last < first_row ? 0 : nn_first_key(p.starts, rows.sequence_query + rows.further(last));
  const auto hide = [&](float(&score)[N / 2], int step) {
    const int key = begin + step * N;
    if (key + N > all || key < before) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int r = own_row + 8 * half + lane / 4;
        const int on = rows.further(r < rows.count ? r : 0), own_key = key + 2 * (lane % 4);
        const int seen = (int)nn_keys_seen(s, rows.query + rows.further(r)) - own_key;
        const int start = nn_first_key(p.starts, rows.sequence_query + on) - own_key;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            if (8 * n + e >= seen || 8 * n + e < start) {
              score[4 * n + 2 * half + e] = nn_lowest();
            }
          }
        }
      }
    }
  };
  float out[D / 2], score[N / 2];
  uint32_t prob[N / 16][4];
  nn_flash_rows own = {{nn_lowest(), nn_lowest()}, {0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int i = 0; i < D / 2; i++) {
    out[i] = 0.0f;
  }
  if (own_steps > 0) {
    nn_flash_await<L>(keys, 0);
    nn_wgmma_hold(score);
    nn_wgmma_fence();
    nn_flash_start_scores<L, T>(score, q, keys, 0);
    nn_wgmma_wait<0>();
    nn_wgmma_hold(score);
    nn_flash_release<L>(keys, 0);
    hide(score, 0);
    nn_flash_soften(score, own, factor);
    nn_flash_pack<T>(prob, score);
    for (int step = 0; step + 1 < own_steps; step++) {
      nn_flash_await<L>(keys, step + 1);
      nn_wgmma_hold(score);
      nn_wgmma_hold(out);
      nn_wgmma_fence();
      nn_flash_start_scores<L, T>(score, q, keys, step + 1);
      nn_flash_await<L>(values, step);
      nn_flash_start_output<L, T>(out, prob, values, step);
      nn_wgmma_wait<1>();
      nn_wgmma_hold(score);
      nn_flash_release<L>(keys, step + 1);
      hide(score, step + 1);
      nn_flash_soften(score, own, factor);
      nn_wgmma_wait_after(own.sum[0], own.sum[1]);
      nn_wgmma_wait<0>();
      nn_wgmma_hold(out);
      nn_flash_release<L>(values, step);
#pragma unroll
      for (int i = 0; i < D / 2; i++) {
        out[i] *= own.rescale[i / 2 % 2];
      }
      nn_flash_pack<T>(prob, score);
    }
    nn_flash_await<L>(values, own_steps - 1);
    nn_wgmma_hold(out);
    nn_wgmma_fence();
    nn_flash_start_output<L, T>(out, prob, values, own_steps - 1);
    nn_wgmma_wait<0>();
    nn_wgmma_hold(out);
    nn_flash_release<L>(values, own_steps - 1);
  }
  for (int step = own_steps; step < steps; step++) { /* what only the other warpgroup needs */
    nn_flash_await<L>(keys, step);
    nn_flash_release<L>(keys, step);
    nn_flash_await<L>(values, step);
    nn_flash_release<L>(values, step);
  }
  /* Through the place of Q, of which each warp has read its own rows alone. */
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = nn_warp_sum<4>(own.sum[half]);
    const int r = own_row + 8 * half + lane / 4;
    const bool sees = nn_keys_seen(s, rows.query + rows.further(r)) > 0;
    const float share = sees ? 1.0f / total : 0.0f;
    if (p.lse != nullptr && lane % 4 == 0 && r < rows.count) {
      p.lse[rows.at_head(r, s, sequence)] = sees ? nn_log_sum(own.peak[half] * factor, total) : nn_lowest();
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      *reinterpret_cast<uint32_t *>(shared + nn_mma_tile<D>::at(r, n) + 4 * (lane % 4)) =
          nn_pair<T>(out[4 * n + 2 * half] * share, out[4 * n + 2 * half + 1] * share);
    }
  }
  __syncwarp();
  nn_tile_to_rows<D, 16, D>(static_cast<T *>(p.out), shared, own_row, 0, rows.count, s.dim, p.wide_out,
                            [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
}

// sass: nn_flash_wgmma_kernel on sm_90a: at least 66 MUFU.EX2 between waits, at least 64 FADD between waits
// setmaxnreg moves registers among exactly these: with fewer, the consumers would wait for ever.
// sass: nn_flash_wgmma_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class T, int D>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? nn_flash_wgmma_layout<D>::THREADS : NN_WARP, 1)
    nn_flash_wgmma_kernel(nn_flash p, const __grid_constant__ CUtensorMap k_map,
                          const __grid_constant__ CUtensorMap v_map) {
  if constexpr (NN_HAS_WGMMA) {
    using L = nn_flash_wgmma_layout<D>;
    NN_SHARED_BYTES(shared);
    const nn_attention_sizes &s = p.sizes;
    /* The last tile sees the most keys: it goes first. */
    const int64_t tile = p.tiles - 1 - blockIdx.x % p.tiles, pair = blockIdx.x / p.tiles, sequence = pair / s.kv_heads;
    const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
    const nn_query_rows rows(s, sequence, kv_head, tile * L::M, L::M);
    const int begin = nn_first_tile<L::N>(p.starts, rows);
    const int steps = (int)nn_ceil_div(nn_keys_seen(s, rows.query + rows.further(rows.count - 1)) - begin, L::N);
    const uint32_t base = nn_shared_address(shared), barriers = base + L::barriers_at;
    const nn_flash_ring keys = {barriers, barriers + 8 * L::STAGES, base + L::k_at};
    const nn_flash_ring values = {barriers + 16 * L::STAGES, barriers + 24 * L::STAGES, base + L::v_at};
    if (threadIdx.x == 0) {
      nn_tensor_prefetch(&k_map);
      nn_tensor_prefetch(&v_map);
      for (int i = 0; i < L::STAGES; i++) {
        nn_mbarrier_init(keys.full + 8 * i, 1);
        nn_mbarrier_init(values.full + 8 * i, 1);
        nn_mbarrier_init(keys.empty + 8 * i, L::CONSUMERS);
        nn_mbarrier_init(values.empty + 8 * i, L::CONSUMERS);
      }
      nn_fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      nn_registers_lower<40>();
      if (threadIdx.x < NN_WARP) {
        if (nn_elect()) {
          const uint64_t policy = nn_l2_evict_normal();
          for (int step = 0; step < steps; step++) {
            const int key = begin + step * L::N;
            nn_flash_produce<L>(keys, &k_map, step, key, policy, kv_head, (int)sequence);
            nn_flash_produce<L>(values, &v_map, step, key, policy, kv_head, (int)sequence);
          }
        }
      }
    } else {
      nn_registers_raise<232>();
      nn_flash_consume<L, T>(p, rows, sequence, shared, keys, values, begin, steps);
    }
  }
}

/* Starts the kernel if it can do this; `*done` says whether. */
template <class T, int D>
inline int32_t nn_flash_wgmma(nncuda_ctx *ctx, nn_flash p, int64_t batch, int32_t dtype, bool *done) {
  using L = nn_flash_wgmma_layout<D>;
  static int known;
  const auto kernel = nn_flash_wgmma_kernel<T, D>;
  const nn_attention_sizes &s = p.sizes;
  const int64_t dims[4] = {s.dim, s.kv_heads, s.kv_len, batch}, strides[3] = {s.dim, s.ld_kv, s.kv_len * s.ld_kv};
  const int32_t box[4] = {64, 1, L::N, 1};
  CUtensorMap k_map, v_map;
  *done = p.wide && nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), L::THREADS, &known) &&
          nn_tensor_map(&k_map, dtype, 4, p.k, dims, strides, box, NN_SWIZZLE_128) &&
          nn_tensor_map(&v_map, dtype, 4, p.v, dims, strides, box, NN_SWIZZLE_128);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  p.tiles = nn_ceil_div(s.rows(), L::M);
  return nn_launch(ctx, kernel, dim3((unsigned)(p.tiles * batch * s.kv_heads)), dim3(L::THREADS), L::bytes, p, k_map,
                   v_map);
}

#endif

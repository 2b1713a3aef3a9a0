/*
 * Attention on Hopper's tensor cores (wgmma, sm_90a; Shah et al. 2024, "FlashAttention-3", algorithm 2), for f16 and
 * bf16 up to head_dim 128 whose K and V have rows of whole 16 bytes.
 *
 * One block a multiprocessor walks over tiles of rows. A warp of its first warpgroup has the copy engine bring tiles
 * of K and V into two rings in shared memory, those of the next tile of rows while the others still end the one before.
 * The other warpgroups have 64 rows each: S comes from Q and K, P goes from registers to the product with V. While the
 * product with V of one tile of keys runs, so does the softmax of the next one. And warpgroups start their products in
 * turn, so that all the tensor cores' time is filled: while one finds its powers, the others' products run.
 */
#ifndef NN_KERNELS_ATTENTION_FLASH_WGMMA_CUH
#define NN_KERNELS_ATTENTION_FLASH_WGMMA_CUH

#include "kernels/attention_flash_wgmma_tile.cuh"

/* Starts S = Q K^T of a step; q is the warpgroup's part of a box. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_start_scores(float (&score)[L::N / 2], uint32_t q, const nn_flash_ring &ring,
                                                      uint32_t step) {
  const uint32_t tile = ring.tiles + nn_ring_stage<L>(step) * L::TILE;
#pragma unroll
  for (int d = 0; d < L::D / 16; d++) {
    const uint64_t of_q = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(q + d / 4 * L::Q_BOX);
    const uint64_t of_k = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(tile + d / 4 * L::HALF);
    nn_wgmma<T>(score, nn_wgmma_step(of_q, d % 4 * 32), nn_wgmma_step(of_k, d % 4 * 32), d > 0);
  }
  nn_wgmma_commit();
}

/* Starts O += P V of a step. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_start_output(float (&out)[L::D / 2], const uint32_t (&prob)[L::N / 16][4],
                                                      const nn_flash_ring &ring, uint32_t step) {
  const uint64_t v =
      nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(ring.tiles + nn_ring_stage<L>(step) * L::TILE, L::HALF);
#pragma unroll
  for (int n = 0; n < L::N / 16; n++) {
    nn_wgmma<T, true>(out, prob[n], nn_wgmma_step(v, n * 16 * 128), true);
  }
  nn_wgmma_commit();
}

/* The two rows of a lane: running maxima of the products and sums of the powers of this lane's keys; of a step's
 * products, what is taken from their powers' exponents, the sum of those found so far, and what older sums and outputs
 * are to be multiplied by. */
struct nn_flash_rows {
  float peak[2], sum[2], base[2], total[2], rescale[2];

  /* Whether a lane of the warp has older outputs to multiply: by 1 it would change nothing. */
  __device__ __forceinline__ bool rescales() const {
    return __ballot_sync(NN_ALL_LANES, rescale[0] != 1.0f || rescale[1] != 1.0f) != 0;
  }
};

/* A row's products to powers of two below its maximum: of its groups of 8 keys those from FROM on, before TO. */
template <int FROM, int TO, int COUNT>
__device__ __forceinline__ void nn_flash_powers(float (&score)[COUNT], nn_flash_rows &rows, int half, float factor) {
#pragma unroll
  for (int n = 4 * FROM + 2 * half; n < 4 * TO; n += 4) {
    score[n] = nn_exp2_approx(fmaf(score[n], factor, -rows.base[half]));
    score[n + 1] = nn_exp2_approx(fmaf(score[n + 1], factor, -rows.base[half]));
    rows.total[half] += score[n] + score[n + 1];
  }
}

/* Finds the rows' maxima, and the first GROUPS groups' powers. */
template <int GROUPS, int COUNT>
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
    rows.base[half] = base;
    rows.total[half] = 0.0f;
    nn_flash_powers<0, GROUPS>(score, rows, half, factor);
  }
}

/* The other powers, and the sums. */
template <int GROUPS, int COUNT>
__device__ __forceinline__ void nn_flash_soften_late(float (&score)[COUNT], nn_flash_rows &rows, float factor) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    nn_flash_powers<GROUPS, COUNT / 4>(score, rows, half, factor);
    rows.sum[half] = fmaf(rows.sum[half], rows.rescale[half], rows.total[half]);
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

/* Starts to copy the warpgroup's 64 rows of Q of a tile. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_load_q(const nn_flash &p, const nn_flash_place &place, unsigned char *shared,
                                                int first_row) {
  const nn_query_rows rows(p.sizes, place.sequence, place.kv_head, place.first, L::M);
  const uint32_t thread = nn_anew(threadIdx.x) % 128;
#pragma unroll
  for (int d = 0; d < L::D; d += 64) {
    nn_mma_load<64, 64, 128>(
        shared + d / 64 * L::Q_BOX + first_row * 128, static_cast<const T *>(p.q) + d, rows.count - first_row,
        p.sizes.dim - d, true, [&](int r) { return rows.at(first_row + r, p.sizes.ld_q, p.sizes.dim); }, (int)thread);
  }
  nn_copy_async_commit();
}

/* Waits for it. Where the factor is negative, Q is: the largest score must be that of the largest product. */
template <class L>
__device__ __forceinline__ void nn_flash_await_q(unsigned char *shared, uint32_t consumer, bool negative) {
  const uint32_t barrier = nn_flash_barriers<L>::OWN + nn_anew(consumer);
  nn_copy_async_wait<0>();
  if (negative) {
    nn_barrier_sync(barrier, 128);
    for (int i = threadIdx.x % 128; i < L::D / 64 * 64 * 32; i += 128) {
      reinterpret_cast<uint32_t *>(shared + i / 2048 * L::Q_BOX + consumer * 64 * 128)[i % 2048] ^= 0x80008000u;
    }
  }
  nn_fence_async_shared();
  nn_barrier_sync(barrier, 128);
}

/* The keys that a row sees are those below this. */
__device__ __forceinline__ int nn_flash_limit(const nn_flash &p, const nn_query_rows &rows, int row) {
  return (int)nn_keys_seen(p.sizes, rows.query + rows.further(row));
}

/* The row of a thread: of its warp's 16 the one of its number, or 8 further. The first key that it sees, and the first
 * after those. */
template <class L>
__device__ __forceinline__ int2 nn_flash_row(const unsigned char *shared, uint32_t thread, int half) {
  const uint32_t row = (thread - 128) / NN_WARP * 16 + 8 * half + thread % NN_WARP / 4;
  return reinterpret_cast<const int2 *>(shared + L::seen_at)[row];
}

/* What a warpgroup needs to know of its 64 rows: of a tile's steps, numbered over all tiles, those before `after`, its
 * own ones, `first` to `end`. What each row sees lies in shared memory. */
template <class L> struct nn_flash_seen {
  uint32_t first, end, after, origin; /* `origin` would be the first key of step 0 */

  __device__ __forceinline__ nn_flash_seen(const nn_flash &p, const nn_flash_place &place, unsigned char *shared,
                                           int first_row, uint32_t done) {
    constexpr int N = L::N;
    const nn_query_rows rows(p.sizes, place.sequence, place.kv_head, place.first, L::M);
    const nn_flash_keys<N> keys(p, rows);
    const int last = rows.count - 1 < first_row + 63 ? rows.count - 1 : first_row + 63;
    int from = 0, to = 0;
    if (first_row <= last) {
      to = nn_flash_limit(p, rows, last) - keys.begin;
      to = to > 0 ? (to + N - 1) / N : 0;
      from = (nn_first_tile<N>(p.starts, rows, first_row) - keys.begin) / N;
      from = from < 0 ? 0 : from < to ? from : to;
    }
    first = nn_uniform(done + from);
    end = nn_uniform(done + to);
    after = nn_uniform(done + keys.steps);
    origin = keys.begin - done * N;
    /* A warp's rows are its own. */
    const int thread = (int)nn_anew(threadIdx.x) - 128, row = thread / NN_WARP * 16 + thread % 16;
    const int near = row < rows.count ? row : rows.count - 1;
    reinterpret_cast<int2 *>(shared + L::seen_at)[row] =
        make_int2(nn_first_key(p.starts, rows.sequence_query + rows.further(near)), nn_flash_limit(p, rows, near));
    __syncwarp();
  }
  __device__ __forceinline__ int key(uint32_t step) const { return (int)(origin + step * L::N); }
  /* Whether a row of the warpgroup does not see some of the keys of a step: its last row's first key and its first
   * row's last tell. After a barrier of the warpgroup. */
  __device__ __forceinline__ bool partly(const unsigned char *shared, int first_row, uint32_t step) const {
    const int2 *const rows = reinterpret_cast<const int2 *>(shared + L::seen_at) + first_row;
    return key(step) + L::N > rows[0].y || key(step) < rows[63].x;
  }
  /* Hides them from the lane's two rows. */
  __device__ __forceinline__ void hide(float (&score)[L::N / 2], const unsigned char *shared, uint32_t step) const {
    const uint32_t thread = nn_anew(threadIdx.x);
    const int own_key = key(step) + 2 * (thread % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int2 sees = nn_flash_row<L>(shared, thread, half);
      const int from = sees.x - own_key, to = sees.y - own_key;
#pragma unroll
      for (int n = 0; n < L::N / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (8 * n + e >= to || 8 * n + e < from) {
            score[4 * n + 2 * half + e] = nn_lowest();
          }
        }
      }
    }
  }
};

/* The sums of a warp's 16 rows to `out`, through shared memory, and what `lse` takes. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_store(const nn_flash &p, const nn_flash_place &place, unsigned char *shared,
                                               const float (&out)[L::D / 2], const nn_flash_rows &own) {
  constexpr int D = L::D;
  unsigned char *const tile = shared + L::out_at;
  const uint32_t thread = nn_anew(threadIdx.x);
  const nn_attention_sizes &s = p.sizes;
  const nn_query_rows rows(s, place.sequence, place.kv_head, place.first, L::M);
  const int lane = (int)(thread % NN_WARP), own_row = (int)(thread / NN_WARP * 16) - 64;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = nn_warp_sum<4>(own.sum[half]);
    const int r = own_row + 8 * half + lane / 4;
    const bool sees = nn_flash_row<L>(shared, thread, half).y > 0;
    const float share = sees ? 1.0f / total : 0.0f;
    if (p.lse != nullptr && lane % 4 == 0 && r < rows.count) {
      p.lse[rows.at_head(r, s, place.sequence)] =
          sees ? nn_log_sum(own.peak[half] * fabsf(p.factor.high), total) : nn_lowest();
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      *reinterpret_cast<uint32_t *>(tile + nn_mma_tile<D>::at(r, n) + 4 * (lane % 4)) =
          nn_pair<T>(out[4 * n + 2 * half] * share, out[4 * n + 2 * half + 1] * share);
    }
  }
  __syncwarp();
  nn_tile_to_rows<D, 16, D>(static_cast<T *>(p.out), tile, own_row, 0, rows.count, s.dim, p.wide_out,
                            [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
}

/* A warpgroup's 64 rows of each of the block's tiles. */
template <class L, class T>
__device__ __forceinline__ void nn_flash_consume(const nn_flash &p, const nn_flash_walk &walk, unsigned char *shared,
                                                 const nn_flash_ring &keys, const nn_flash_ring &values) {
  constexpr int D = L::D, N = L::N, M = L::M, EARLY = N / 8 - L::LATE;
  constexpr uint32_t OWN = nn_flash_barriers<L>::OWN;
  const uint32_t consumer = nn_uniform(threadIdx.x / 128 - 1), q = nn_shared_address(shared) + consumer * 64 * 128;
  const float factor = fabsf(p.factor.high);
  const nn_flash_turns<L> turns(consumer);
  uint32_t done = 0; /* steps of the tiles before */
  const auto first_row = [&] { return (int)nn_anew(consumer) * 64; };
  const auto load_q = [&](uint32_t round) {
    nn_flash_place place;
    if (walk.find<M>(place, round, p.sizes.kv_heads)) {
      nn_flash_load_q<L, T>(p, place, shared, first_row());
    }
  };
  load_q(0);
  /* What only other warpgroups need. */
  const auto skip = [&](uint32_t from, uint32_t to) {
    for (uint32_t step = from; step < to; step++) {
      nn_flash_await<L>(keys, step);
      nn_flash_release<L>(keys, step);
      nn_flash_await<L>(values, step);
      nn_flash_release<L>(values, step);
      turns.take();
      turns.pass();
    }
  };
  nn_flash_place place;
  for (uint32_t round = 0; walk.find<M>(place, round, p.sizes.kv_heads); round++) {
    const nn_flash_seen<L> see(p, place, shared, first_row(), done);
    float out[D / 2], score[N / 2];
    uint32_t prob[N / 16][4];
    nn_flash_rows own = {{nn_lowest(), nn_lowest()}, {}, {}, {}, {}};
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
      out[i] = 0.0f;
    }
    /* What is multiplied after a step's powers, before they are done: it has come long since, and asking takes time. */
    const auto await_next = [&](uint32_t step) {
      nn_flash_await<L>(values, step);
      if (step + 1 < see.end) {
        nn_flash_await<L>(keys, step + 1);
      }
    };
    nn_flash_await_q<L>(shared, consumer, p.factor.high < 0.0f);
    skip(done, see.first);
    done = see.after;
    if (see.first < see.end) {
      nn_flash_await<L>(keys, see.first);
      turns.take();
      nn_wgmma_hold(score);
      nn_wgmma_fence();
      nn_flash_start_scores<L, T>(score, q, keys, see.first);
      turns.pass();
      bool partly = see.partly(shared, first_row(), see.first);
      nn_wgmma_wait<0>();
      nn_wgmma_hold(score);
      nn_flash_release<L>(keys, see.first);
      if (partly) {
        see.hide(score, shared, see.first);
      }
      nn_flash_soften<EARLY>(score, own, factor);
      await_next(see.first);
      nn_flash_soften_late<EARLY>(score, own, factor);
      nn_flash_pack<T>(prob, score);
      for (uint32_t step = see.first + 1; step < see.end; step++) {
        turns.take();
        nn_wgmma_hold(score);
        nn_wgmma_hold(out);
        nn_wgmma_fence();
        nn_flash_start_scores<L, T>(score, q, keys, step);
        nn_flash_start_output<L, T>(out, prob, values, step - 1);
        turns.pass();
        partly = see.partly(shared, first_row(), step);
        nn_wgmma_wait<1>();
        nn_wgmma_hold(score);
        nn_flash_release<L>(keys, step);
        if (partly) {
          see.hide(score, shared, step);
        }
        nn_flash_soften<EARLY>(score, own, factor);
        nn_wgmma_wait_after(own.total[0], own.total[1]);
        nn_wgmma_wait<0>();
        nn_wgmma_hold(out);
        nn_flash_release<L>(values, step - 1);
        if (own.rescales()) {
#pragma unroll
          for (int i = 0; i < D / 2; i++) {
            out[i] *= own.rescale[i / 2 % 2];
          }
        }
        await_next(step);
        nn_flash_soften_late<EARLY>(score, own, factor);
        nn_flash_pack<T>(prob, score);
      }
      nn_barrier_sync(OWN + nn_anew(consumer), 128); /* no warp multiplies Q any more */
      turns.take();
      nn_wgmma_hold(out);
      nn_wgmma_fence();
      nn_flash_start_output<L, T>(out, prob, values, see.end - 1);
      turns.pass();
      load_q(nn_anew(round) + 1);
      nn_wgmma_wait<0>();
      nn_wgmma_hold(out);
      nn_flash_release<L>(values, see.end - 1);
    } else {
      turns.take();
      turns.pass();
      load_q(nn_anew(round) + 1);
    }
    skip(see.end, see.after);
    uint32_t again = nn_anew(round);
    walk.find<M>(place, again, p.sizes.kv_heads);
    nn_flash_store<L, T>(p, place, shared, out, own);
  }
  turns.end();
}

/* By one thread: has the copy engine bring the keys, or the values, of each of the block's tiles. Each have a thread of
 * their own: a stage of keys is free half a step before that of the values. */
template <class L>
__device__ __forceinline__ void nn_flash_produce(const nn_flash &p, const nn_flash_walk &walk, const CUtensorMap *map,
                                                 const nn_flash_ring &ring) {
  const uint64_t policy = nn_l2_evict_normal();
  uint32_t done = 0;
  nn_flash_place place;
  for (uint32_t round = 0; walk.find<L::M>(place, round, p.sizes.kv_heads); round++) {
    const nn_query_rows rows(p.sizes, place.sequence, place.kv_head, place.first, L::M);
    const nn_flash_keys<L::N> seen(p, rows);
    for (int step = 0; step < seen.steps; step++) {
      nn_flash_load<L>(ring, map, done + step, seen.begin + step * L::N, policy, place.kv_head, place.sequence);
    }
    done += seen.steps;
  }
}

// sass: nn_flash_wgmma_kernel on sm_90a: at least 50 MUFU.EX2 between waits, at least 48 FADD between waits
// sass: nn_flash_wgmma_kernel on sm_90a: at least 24 HGMMA, no HGMMA out of turn
// setmaxnreg moves registers among exactly these: with fewer, the consumers would wait for ever.
// sass: nn_flash_wgmma_kernel<nn_bf16, 64, 3> on sm_90a: at least 128 registers, at most 128 registers
// sass: nn_flash_wgmma_kernel<nn_f16, 64, 3> on sm_90a: at least 128 registers, at most 128 registers
// sass: nn_flash_wgmma_kernel<nn_bf16, 64, 2> on sm_90a: at least 168 registers, at most 168 registers
// sass: nn_flash_wgmma_kernel<nn_f16, 64, 2> on sm_90a: at least 168 registers, at most 168 registers
// sass: nn_flash_wgmma_kernel<nn_bf16, 128> on sm_90a: at least 168 registers, at most 168 registers
// sass: nn_flash_wgmma_kernel<nn_f16, 128> on sm_90a: at least 168 registers, at most 168 registers
template <class T, int D, int CONSUMERS>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? nn_flash_wgmma_layout<D, CONSUMERS>::THREADS : NN_WARP, 1)
    nn_flash_wgmma_kernel(nn_flash p, nn_flash_walk walk, const __grid_constant__ CUtensorMap k_map,
                          const __grid_constant__ CUtensorMap v_map) {
  if constexpr (NN_HAS_WGMMA) {
    using L = nn_flash_wgmma_layout<D, CONSUMERS>;
    NN_SHARED_BYTES(shared);
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
      nn_registers_lower<L::PRODUCER_REGISTERS>();
      if (threadIdx.x < NN_WARP) {
        if (nn_elect()) {
          nn_flash_produce<L>(p, walk, &k_map, keys);
        }
      } else if (threadIdx.x < 2 * NN_WARP) {
        if (nn_elect()) {
          nn_flash_produce<L>(p, walk, &v_map, values);
        }
      }
    } else {
      nn_registers_raise<L::REGISTERS>();
      nn_flash_consume<L, T>(p, walk, shared, keys, values);
    }
  }
}

/* Starts the kernel if it can do this; `*done` says whether. Documents may be of any lengths: their tiles are handed
 * out one by one, to whichever multiprocessor is free. */
template <class T, int D, int CONSUMERS>
inline int32_t nn_flash_wgmma_start(nncuda_ctx *ctx, const nn_flash &p, int64_t batch, int32_t dtype, bool *done) {
  using L = nn_flash_wgmma_layout<D, CONSUMERS>;
  static int known;
  const auto kernel = nn_flash_wgmma_kernel<T, D, CONSUMERS>;
  const nn_attention_sizes &s = p.sizes;
  const int64_t dims[4] = {s.dim, s.kv_heads, s.kv_len, batch}, strides[3] = {s.dim, s.ld_kv, s.kv_len * s.ld_kv};
  const int32_t box[4] = {64, 1, L::N, 1};
  const int64_t pairs = batch * s.kv_heads, tiles = nn_ceil_div(s.rows(), L::M), sms = nn_gpu_sms(ctx);
  CUtensorMap k_map, v_map;
  *done = p.wide && tiles * L::M <= INT32_MAX && tiles * pairs <= INT32_MAX &&
          nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), L::THREADS, &known) &&
          nn_tensor_map(&k_map, dtype, 4, p.k, dims, strides, box, NN_SWIZZLE_128) &&
          nn_tensor_map(&v_map, dtype, 4, p.v, dims, strides, box, NN_SWIZZLE_128);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  const int64_t cached = NN_FLASH_CACHED_BYTES / (2 * s.kv_len * s.dim * (int64_t)sizeof(T));
  const int64_t together = !s.causal || cached < 1 ? 1 : cached < pairs ? cached : pairs;
  const bool one_by_one = p.starts != nullptr || tiles * pairs < sms;
  const int64_t blocks = one_by_one ? tiles * pairs : sms;
  const nn_flash_walk walk(tiles, pairs, together, blocks, s.causal && tiles * together >= 2 * blocks);
  return nn_launch(ctx, kernel, dim3((unsigned)blocks), dim3(L::THREADS), L::bytes, p, walk, k_map, v_map);
}

/* Rounds of tiles over the multiprocessors decide between 192 and 128 rows; 192 take somewhat less than one and a half
 * times as long, since K and V pass through shared memory for more rows at once. The sums are the same with both. By
 * count. */
template <class T>
inline int32_t nn_flash_wgmma_64(nncuda_ctx *ctx, const nn_flash &p, int64_t batch, int32_t dtype, bool *done) {
  constexpr int64_t WIDE_COST = 10, NARROW_COST = 7;
  const int64_t pairs = batch * p.sizes.kv_heads, sms = nn_gpu_sms(ctx);
  const auto cost = [&](int64_t rows, int64_t each) {
    return nn_ceil_div(nn_ceil_div(p.sizes.rows(), rows) * pairs, sms) * each;
  };
  return cost(192, WIDE_COST) <= cost(128, NARROW_COST) ? nn_flash_wgmma_start<T, 64, 3>(ctx, p, batch, dtype, done)
                                                        : nn_flash_wgmma_start<T, 64, 2>(ctx, p, batch, dtype, done);
}

#endif

/*
 * Gradients of attention on Hopper's tensor cores (wgmma; sm_90a), for f16 and bf16 up to head_dim 128 whose operands
 * have rows of whole 16 bytes: S and dP are computed once.
 *
 * A block has a tile of keys, whose dK and dV it sums in registers while it walks over the tiles of rows that see them,
 * first to last. What it finds of dQ is added to f32 sums in global memory, one block after another: for a tile of
 * rows, first comes the last tile of keys that it sees, then the one before, and so on. Turns go by a number for each
 * tile of rows. Blocks take their tiles by tickets, last tile of keys first, so each waits only for blocks that have
 * begun: there is no deadlock, however many run at once. Under a causal mask a block
 * comes to the rows of the block before it a tile of keys later than that one did, and nobody waits; without one all
 * begin with the same rows and queue up once. The order decides the bits, and follows from the sizes alone.
 *
 * In bytes and operations: with S and dP computed twice, as by mma, there are 7 products; here there are 5, for which 4
 * M D bytes go to L2, which adds them: 320 operations a byte at N = 128, or 3 TB/s if the tensor cores never waited. dQ
 * of each tile of keys written apart and added at the end would take 8 M D bytes of HBM, 160 operations a byte, which
 * alone allows no more than 770 of 989 TFLOP/s, and room for kv_len / 128 times dQ. A block for each key head, which
 * would need neither, fills no GPU.
 *
 * Of the first warpgroup one warp has the copy engine bring K and V, then Q, dO and the rows' sums into rings in shared
 * memory; another has it add what the other warpgroups leave of dQ. Those have 64 keys each and compute the transposes
 * of S and dP, so that P and dS go from registers to dV and dK. For dQ both need all of dS: it passes through shared
 * memory. P is computed from S while dP is multiplied, and dQ leaves while the next S is. More would be under way with
 * more registers: dQ, S and dP at once take all of them.
 *
 * P and dS are multiplied as PARTS 16-bit numbers: 2 of them as in attention_backward_mma.cuh, 1 as the forward pass
 * does, by the number of keys.
 */
#ifndef NN_KERNELS_ATTENTION_BACKWARD_WGMMA_CUH
#define NN_KERNELS_ATTENTION_BACKWARD_WGMMA_CUH

#include "kernels/attention_backward_wgmma_tile.cuh"
#include "kernels/attention_mma.cuh"
#include "kernels/instructions_registers.cuh"

/* By one thread: has the copy engine bring what the consumers multiply. */
template <class L>
__device__ __forceinline__ void nn_backward_produce(const nn_flash_backward &p, const nn_backward_wgmma_maps &maps,
                                                    const nn_backward_wgmma_work &work, uint32_t shared,
                                                    const nn_backward_wgmma_barriers<L> &barriers) {
  const nn_attention_sizes &s = p.sizes;
  const uint64_t policy = nn_l2_evict_normal();
  const int head = work.kv_head * s.group, kv_head = work.kv_head / p.shares, sequence = work.sequence;
  const uint32_t rows = (uint32_t)(L::D / 64 * p.tile_queries * s.group * 128);
  nn_mbarrier_arrive_expect(barriers.keys_full, 2 * L::KEY_TILE);
#pragma unroll
  for (int d = 0; d < L::D / 64; d++) {
    nn_tensor_load(shared + d * L::KEY_BOX, &maps.k, barriers.keys_full, policy, 64 * d, kv_head, work.key, sequence);
    nn_tensor_load(shared + L::v_at + d * L::KEY_BOX, &maps.v, barriers.keys_full, policy, 64 * d, kv_head, work.key,
                   sequence);
  }
  for (int i = work.first; i < work.end; i++) {
    const uint32_t step = (uint32_t)(i - work.first), stage = step % L::STAGES;
    const uint32_t q = shared + L::q_at + stage * L::ROW_TILE, dout = shared + L::dout_at + stage * L::ROW_TILE;
    const int query = i * (int)p.tile_queries;
    nn_mbarrier_wait(barriers.empty + 8 * stage, (step / L::STAGES & 1) ^ 1);
    nn_mbarrier_arrive_expect(barriers.q_full + 8 * stage, rows + L::SUMS);
#pragma unroll
    for (int d = 0; d < L::D / 64; d++) {
      nn_tensor_load(q + d * L::ROW_BOX, &maps.q, barriers.q_full + 8 * stage, policy, 64 * d, head, query, sequence);
    }
    nn_tensor_load(shared + L::sums_at + stage * L::SUMS, &maps.sums, barriers.q_full + 8 * stage, policy, 0,
                   (int)((work.pair * p.row_tiles + i) * (L::M / 64)));
    nn_mbarrier_arrive_expect(barriers.dout_full + 8 * stage, rows);
#pragma unroll
    for (int d = 0; d < L::D / 64; d++) {
      nn_tensor_load(dout + d * L::ROW_BOX, &maps.dout, barriers.dout_full + 8 * stage, policy, 64 * d, head, query,
                     sequence);
    }
  }
}

/* By one thread: adds each step's dQ to the sums of its tile of rows, after the tiles of keys that follow this one. */
template <class L>
__device__ __forceinline__ void nn_backward_add_dq(const nn_flash_backward &p, const nn_backward_wgmma_work &work,
                                                   uint32_t shared, const nn_backward_wgmma_barriers<L> &barriers) {
  const uint32_t turn = (uint32_t)(p.tiles - work.tile);
  const nn_backward_row_tiles before(p, work.sequence, work.tile + 1);
  for (int i = work.first; i < work.end; i++) {
    const int64_t tile = work.pair * p.row_tiles + i;
    float *const sums = p.dq_sums + tile * (L::M * L::D);
    nn_mbarrier_wait(barriers.dq_full, (uint32_t)(i - work.first) & 1);
    if (before.has(i)) {
      nn_turn_wait(p.turns + 1 + tile, turn - 1);
      nn_bulk_add(sums, shared + L::dq_at, 4 * L::M * L::D);
    } else {
      nn_bulk_store(sums, shared + L::dq_at, 4 * L::M * L::D);
    }
    nn_tensor_store_commit();
    nn_tensor_store_wait<0>();
    nn_mbarrier_arrive(barriers.dq_empty);
    nn_bulk_wait<0>();
    nn_turn_raise(p.turns + 1 + tile, turn);
  }
}

/* x rounded to 16 bits as operands of a next product, 16 columns each, and what each rounding drops, rounded likewise.
 */
template <class T, int PARTS, int COUNT>
__device__ __forceinline__ void nn_backward_pack(uint32_t (&to)[PARTS][COUNT / 8][4], const float (&x)[COUNT]) {
#pragma unroll
  for (int n = 0; n < COUNT / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float low = x[8 * n + 2 * i], high = x[8 * n + 2 * i + 1];
      to[0][n][i] = nn_pair<T>(low, high);
      if constexpr (PARTS == 2) {
        to[1][n][i] = nn_dropped<T>(low, high, to[0][n][i]);
      }
    }
  }
}

/* What a lane needs to know of its rows, two neighbours for each 8 of a tile; `which` of four numbers. */
template <class L>
__device__ __forceinline__ float2 nn_backward_sums(const unsigned char *memory, uint32_t at, int which, int n) {
  return *reinterpret_cast<const float2 *>(memory + at + 4 * L::M * which + 32 * n);
}

enum nn_backward_sum { NN_SUM_LSE = 0, NN_SUM_START = 1, NN_SUM_DELTA = 2, NN_SUM_SEEN = 3 };

/* Zeros where a row does not see a key: `key` is the lane's first, `at` its rows' sums. */
template <class L>
__device__ __forceinline__ void nn_backward_hide(float (&x)[L::M / 2], const unsigned char *memory, uint32_t at,
                                                 int key) {
  at = nn_anew(at);
#pragma unroll
  for (int n = 0; n < L::M / 8; n++) {
    const float2 seen = nn_backward_sums<L>(memory, at, NN_SUM_SEEN, n),
                 start = nn_backward_sums<L>(memory, at, NN_SUM_START, n);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int to = __float_as_int(e == 0 ? seen.x : seen.y) - key;
      const int from = __float_as_int(e == 0 ? start.x : start.y) - key;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if (8 * half >= to || 8 * half < from) {
          x[4 * n + 2 * half + e] = 0.0f;
        }
      }
    }
  }
}

/* Starts S^T or dP^T: a consumer's 64 keys of a tile by the rows of another. */
template <class L, class T>
__device__ __forceinline__ void nn_backward_start_transposed(float (&sums)[L::M / 2], uint32_t keys, uint32_t rows) {
#pragma unroll
  for (int d = 0; d < L::D / 16; d++) {
    const uint64_t a = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(keys + d / 4 * L::KEY_BOX);
    const uint64_t b = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(rows + d / 4 * L::ROW_BOX);
    nn_wgmma<T>(sums, nn_wgmma_step(a, d % 4 * 32), nn_wgmma_step(b, d % 4 * 32), d > 0);
  }
  nn_wgmma_commit();
}

/* Starts dV += P^T dO or dK += dS^T Q. */
template <class L, class T>
__device__ __forceinline__ void nn_backward_start_sums(float (&sums)[L::D / 2],
                                                       const uint32_t (&a)[L::PARTS][L::M / 16][4], uint32_t rows) {
  const uint64_t b = nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(rows, L::ROW_BOX);
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
    for (int n = 0; n < L::M / 16; n++) {
      nn_wgmma<T, true>(sums, a[part][n], nn_wgmma_step(b, n * 16 * 128), true);
    }
  }
  nn_wgmma_commit();
}

/* Starts dK += dS^T Q with dS^T from shared memory. */
template <class L, class T>
__device__ __forceinline__ void nn_backward_start_dk(float (&dk)[L::D / 2], uint32_t ds, uint32_t rows) {
  const uint64_t b = nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(rows, L::ROW_BOX);
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
    for (int n = 0; n < L::M / 16; n++) {
      const uint64_t a = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(ds + part * L::DS_TILE + n / 4 * L::DS_BOX);
      nn_wgmma<T, false, true>(dk, nn_wgmma_step(a, n % 4 * 32), nn_wgmma_step(b, n * 16 * 128), true);
    }
  }
  nn_wgmma_commit();
}

/* A warpgroup's 64 keys. */
template <class L, class T>
__device__ __forceinline__ void nn_backward_consume(const nn_flash_backward &p, const nn_backward_wgmma_work &work,
                                                    unsigned char *memory,
                                                    const nn_backward_wgmma_barriers<L> &barriers) {
  constexpr int D = L::D, M = L::M, N = L::N, PARTS = L::PARTS;
  const nn_attention_sizes &s = p.sizes;
  const uint32_t shared = nn_shared_address(memory);
  const int lane = threadIdx.x % NN_WARP, consumer = threadIdx.x / 128 - 1;
  const int own = threadIdx.x / NN_WARP * 16 - 64; /* the warp's first key in the tile */
  const int own_key = work.key + own + lane / 4;
  /* A's 64 keys of a product; dS as this lane stores it; what the warpgroup multiplies for its part of dQ */
  const uint32_t k_tile = shared + consumer * 64 * 128, v_tile = k_tile + L::v_at;
  const uint32_t own_ds = shared + L::ds_at + consumer * 64 * 128;
  const int ds_key = own + lane % 16;
  const uint32_t ds_row = shared + L::ds_at + ds_key * 128, ds_unit = (uint32_t)(lane / 16 ^ ds_key % 8) << 4;
  const uint64_t of_ds =
      nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(shared + L::ds_at + (D == 64 ? consumer * L::DS_BOX : 0), L::DS_BOX);
  const uint64_t of_k =
      nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(shared + (D == 64 ? 0 : consumer * L::KEY_BOX), L::KEY_BOX);
  const int last_rows = (int)(s.rows() - (p.row_tiles - 1) * p.tile_rows); /* of the last tile */
  float dk[D / 2], dv[D / 2], score[M / 2], ds[M / 2], dq[32];
#pragma unroll
  for (int i = 0; i < D / 2; i++) {
    dk[i] = 0.0f;
    dv[i] = 0.0f;
  }
  const auto start_dq = [&] {
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
#pragma unroll
      for (int n = 0; n < N / 16; n++) {
        nn_wgmma<T, true, true>(dq, nn_wgmma_step(of_ds, part * L::DS_TILE + n * 16 * 128),
                                nn_wgmma_step(of_k, n * 16 * 128), part + n > 0);
      }
    }
    nn_wgmma_commit();
  };
  const auto leave_dq = [&](uint32_t step) {
    nn_mbarrier_wait(barriers.dq_empty, (step & 1) ^ 1);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = (own & 63) + 8 * half + lane / 4;
#pragma unroll
      for (int n = 0; n < 8; n++) {
        *reinterpret_cast<float2 *>(memory + L::dq_at + consumer * L::DQ_PART + 4 * nn_backward_dq_at<64>(r, n) +
                                    8 * (lane % 4)) = make_float2(dq[4 * n + 2 * half], dq[4 * n + 2 * half + 1]);
      }
    }
    nn_fence_async_shared();
    __syncwarp();
    if (lane == 0) {
      nn_mbarrier_arrive(barriers.dq_full);
    }
  };
  const auto start_scores = [&](uint32_t step) {
    const uint32_t stage = step % L::STAGES, q_tile = shared + L::q_at + stage * L::ROW_TILE;
    nn_mbarrier_wait(barriers.q_full + 8 * stage, step / L::STAGES & 1);
    nn_wgmma_hold(score);
    nn_wgmma_fence();
    nn_backward_start_transposed<L, T>(score, k_tile, q_tile);
  };
  if (work.first < work.end) {
    nn_mbarrier_wait(barriers.keys_full, 0);
    start_scores(0);
    for (int i = work.first;; i++) {
      const uint32_t step = (uint32_t)(i - work.first), stage = step % L::STAGES;
      const uint32_t q_tile = shared + L::q_at + stage * L::ROW_TILE, dout_tile = q_tile + (L::dout_at - L::q_at);
      const uint32_t sums = L::sums_at + stage * L::SUMS + 8 * (lane % 4);
      nn_mbarrier_wait(barriers.dout_full + 8 * stage, step / L::STAGES & 1);
      nn_wgmma_hold(ds);
      nn_wgmma_fence();
      nn_backward_start_transposed<L, T>(ds, v_tile, dout_tile);
      const int last = (i + 1 < p.row_tiles ? (int)p.tile_rows : last_rows) - 1;
      const int32_t *const row_sums = reinterpret_cast<const int32_t *>(memory + L::sums_at + stage * L::SUMS);
      const bool partly = row_sums[NN_SUM_SEEN * M] < work.key + N || row_sums[NN_SUM_START * M + last] > work.key;
      nn_wgmma_wait<1>();
      nn_wgmma_hold(score);
#pragma unroll
      for (int n = 0; n < M / 8; n++) {
        const float2 lse = nn_backward_sums<L>(memory, sums, NN_SUM_LSE, n);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float *const x = score + 4 * n + 2 * half;
          x[0] = nn_exp2_approx(fmaf(x[0], p.factor.high, -lse.x));
          x[1] = nn_exp2_approx(fmaf(x[1], p.factor.high, -lse.y));
        }
      }
      if (partly) {
        nn_backward_hide<L>(score, memory, sums, own_key);
      }
      nn_wgmma_wait<0>();
      nn_wgmma_hold(ds);
#pragma unroll
      for (int n = 0; n < M / 8; n++) {
        const float2 delta = nn_backward_sums<L>(memory, sums, NN_SUM_DELTA, n);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float *const x = score + 4 * n + 2 * half;
          float *const y = ds + 4 * n + 2 * half;
          y[0] = x[0] * (y[0] - delta.x);
          y[1] = x[1] * (y[1] - delta.y);
        }
      }
      if (partly) {
        nn_backward_hide<L>(ds, memory, sums, own_key);
      }
      uint32_t a_dv[PARTS][M / 16][4], a_dk[PARTS][M / 16][4];
      nn_backward_pack<T>(a_dk, ds);
      nn_barrier_sync(2, 128 * L::CONSUMERS); /* nobody multiplies the previous dS any more */
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int n = 0; n < M / 16; n++) {
          nn_stmatrix_x4(ds_row + part * L::DS_TILE + n / 4 * L::DS_BOX + (ds_unit ^ (uint32_t)(n % 4) << 5),
                         a_dk[part][n]);
        }
      }
      nn_fence_async_shared();
      nn_backward_pack<T>(a_dv, score);
      nn_wgmma_hold(dv);
      nn_wgmma_hold(dk);
      nn_wgmma_fence();
      nn_backward_start_sums<L, T>(dv, a_dv, dout_tile);
      if constexpr (!L::SHARED_DS) {
        nn_backward_start_sums<L, T>(dk, a_dk, q_tile);
      }
      nn_barrier_sync(1, 128 * L::CONSUMERS); /* all of dS is there */
      if constexpr (L::SHARED_DS) {
        nn_backward_start_dk<L, T>(dk, own_ds, q_tile);
      }
      nn_wgmma_wait<1>(); /* P's registers are those of dQ */
      nn_wgmma_hold(dv);
      nn_wgmma_hold(dq);
      nn_wgmma_fence();
      start_dq();
      nn_wgmma_wait<1>();
      nn_wgmma_hold(dk);
      if (threadIdx.x % 128 == 0) {
        nn_mbarrier_arrive(barriers.empty + 8 * stage);
      }
      if (i + 1 == work.end) {
        break;
      }
      nn_wgmma_wait<0>();
      nn_wgmma_hold(dq);
      start_scores(step + 1);
      leave_dq(step);
    }
    nn_wgmma_wait<0>();
    nn_wgmma_hold(dq);
    leave_dq((uint32_t)(work.end - work.first - 1));
  }
  const int count = (int)(s.kv_len - work.key < N ? s.kv_len - work.key : N);
  if (p.partial != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = own + 8 * half + lane / 4;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        const int d = 8 * n + 2 * (lane % 4);
        if (r < count && d < s.dim) {
          *reinterpret_cast<float2 *>(p.partial + nn_partial_at(p, work.place, 0, work.key_pair, work.key + r) + d) =
              make_float2(dk[4 * n + 2 * half], dk[4 * n + 2 * half + 1]);
          *reinterpret_cast<float2 *>(p.partial + nn_partial_at(p, work.place, 1, work.key_pair, work.key + r) + d) =
              make_float2(dv[4 * n + 2 * half], dv[4 * n + 2 * half + 1]);
        }
      }
    }
    return;
  }
  /* Through the places of K and V, which nobody multiplies any more. */
  nn_barrier_sync(2, 128 * L::CONSUMERS);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int r = own + 8 * half + lane / 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      unsigned char *const place = memory + nn_mma_tile<D>::at(r, n) + 4 * (lane % 4);
      *reinterpret_cast<uint32_t *>(place) =
          nn_pair<T>(dk[4 * n + 2 * half] * p.scale, dk[4 * n + 2 * half + 1] * p.scale);
      *reinterpret_cast<uint32_t *>(place + L::v_at) = nn_pair<T>(dv[4 * n + 2 * half], dv[4 * n + 2 * half + 1]);
    }
  }
  __syncwarp();
  const int64_t at = ((int64_t)work.sequence * s.kv_len + work.key) * s.ld_kv + (int64_t)work.kv_head * s.dim;
  const auto token = [&](int r) { return r * s.ld_kv; };
  nn_tile_to_rows<D, 16, D>(static_cast<T *>(p.dk) + at, memory, own, 0, count, s.dim, true, token);
  nn_tile_to_rows<D, 16, D>(static_cast<T *>(p.dv) + at, memory + L::v_at, own, 0, count, s.dim, true, token);
}

// sass: nn_backward_wgmma_kernel on sm_90a: at least 32 MUFU.EX2 between waits
// setmaxnreg moves registers among exactly these: with fewer, the consumers would wait for ever.
// sass: nn_backward_wgmma_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class T, int D, int PARTS>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? nn_backward_wgmma_layout<D, PARTS>::THREADS : NN_WARP, 1)
    nn_backward_wgmma_kernel(nn_flash_backward p, const __grid_constant__ nn_backward_wgmma_maps maps) {
  if constexpr (NN_HAS_WGMMA) {
    using L = nn_backward_wgmma_layout<D, PARTS>;
    NN_SHARED_BYTES(memory);
    const uint32_t shared = nn_shared_address(memory);
    const nn_backward_wgmma_barriers<L> barriers(shared);
    nn_backward_wgmma_work &work = *reinterpret_cast<nn_backward_wgmma_work *>(memory + L::work_at);
    if (threadIdx.x == 0) {
      nn_tensor_prefetch(&maps.q);
      nn_tensor_prefetch(&maps.k);
      nn_tensor_prefetch(&maps.v);
      nn_tensor_prefetch(&maps.dout);
      nn_tensor_prefetch(&maps.sums);
      barriers.init();
      nn_fence_mbarrier_init();
      work.find(p, nn_turn_ticket(p.turns));
    }
    /* No box reaches the rows of a tile that are none: zeros, as their P is. */
    for (int i = threadIdx.x; i < 2 * L::STAGES * L::D / 64 * (L::M - (int)p.tile_rows) * 8; i += L::THREADS) {
      const int row = i / 8, room = L::M - (int)p.tile_rows;
      *reinterpret_cast<uint4 *>(memory + L::q_at + row / room * L::ROW_BOX + ((int)p.tile_rows + row % room) * 128 +
                                 i % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    nn_fence_async_shared();
    __syncthreads();
    if (threadIdx.x < 128) {
      nn_registers_lower<24>();
      if (work.first < work.end) {
        if (threadIdx.x < NN_WARP) {
          if (nn_elect()) {
            nn_backward_produce<L>(p, maps, work, shared, barriers);
          }
        } else if (threadIdx.x < 2 * NN_WARP) {
          if (nn_elect()) {
            nn_backward_add_dq<L>(p, work, shared, barriers);
          }
        }
      }
    } else {
      nn_registers_raise<240>();
      nn_backward_consume<L, T>(p, work, memory, barriers);
    }
  }
}

constexpr int NN_BACKWARD_FINISH_THREADS = 256;

/* Sums of dQ to dQ: 8 elements a thread. Rows that see no keys have none. */
template <class T, int D>
__global__ void __launch_bounds__(NN_BACKWARD_FINISH_THREADS) nn_backward_finish_kernel(nn_flash_backward p) {
  constexpr int M = nn_backward_wgmma_rows(D);
  const nn_attention_sizes &s = p.sizes;
  const int64_t across = s.dim / 8, units = p.pairs * s.rows() * across;
  for (int64_t i = (int64_t)blockIdx.x * NN_BACKWARD_FINISH_THREADS + threadIdx.x; i < units;
       i += (int64_t)gridDim.x * NN_BACKWARD_FINISH_THREADS) {
    const int64_t row = i / across, pair = row / s.rows(), of_pair = row - pair * s.rows();
    const int64_t sequence = pair / s.kv_heads, tile = pair * p.row_tiles + of_pair / p.tile_rows;
    const int unit = (int)(i - row * across), r = (int)(of_pair % p.tile_rows);
    const nn_query_rows rows(s, sequence, (int32_t)(pair - sequence * s.kv_heads), of_pair, 1);
    float x[8] = {};
    if (p.turns[1 + tile] != 0) {
      const float *const from = p.dq_sums + tile * (M * D) + nn_backward_dq_at<D>(r, unit);
      float low[4], high[4];
      nn_load_4(low, from);
      nn_load_4(high, from + 4);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        x[e] = low[e] * p.scale;
        x[4 + e] = high[e] * p.scale;
      }
    }
    nn_store_row(static_cast<T *>(p.dq) + rows.at(0, s.ld_q, s.dim) + 8 * unit, x, true);
  }
}

template <class T, int D, int PARTS> struct nn_backward_wgmma {
  using L = nn_backward_wgmma_layout<D, PARTS>;
  static constexpr int N = L::N;
  static constexpr bool FIRST_KEYS = true; /* in row_sums */
  nn_backward_wgmma_maps maps;

  /* Whether this form can do it. */
  bool ready(const nn_flash_backward &a, int32_t dtype) {
    static int known;
    const nn_attention_sizes &s = a.sizes;
    const int64_t batch = a.pairs / s.kv_heads, sums = a.pairs * a.row_tiles * (L::M / 64);
    const auto rows = [&](CUtensorMap &map, const void *base, int64_t ld) {
      const int64_t dims[4] = {s.dim, s.heads, s.q_len, batch}, strides[3] = {s.dim, ld, s.q_len * ld};
      const int32_t box[4] = {64, s.group, (int32_t)a.tile_queries, 1};
      return nn_tensor_map(&map, dtype, 4, base, dims, strides, box, NN_SWIZZLE_128);
    };
    const auto keys = [&](CUtensorMap &map, const void *base) {
      const int64_t dims[4] = {s.dim, s.kv_heads / a.shares, s.kv_len, batch};
      const int64_t strides[3] = {s.dim, s.ld_kv, s.kv_len * s.ld_kv};
      const int32_t box[4] = {64, 1, L::N, 1};
      return nn_tensor_map(&map, dtype, 4, base, dims, strides, box, NN_SWIZZLE_128);
    };
    const int64_t sums_dims[2] = {256, sums}, sums_stride = 256;
    const int32_t sums_box[2] = {256, L::M / 64};
    return a.wide && a.wide_out &&
           nn_wgmma_loaded(reinterpret_cast<const void *>(nn_backward_wgmma_kernel<T, D, PARTS>), L::THREADS, &known) &&
           rows(maps.q, a.q, s.ld_q) && rows(maps.dout, a.dout, (int64_t)s.heads * s.dim) && keys(maps.k, a.k) &&
           keys(maps.v, a.v) &&
           nn_tensor_map(&maps.sums, NNCUDA_F32, 2, a.row_sums, sums_dims, &sums_stride, sums_box, NN_SWIZZLE_NONE);
  }
  int32_t keys(nncuda_ctx *ctx, const nn_flash_backward &a) const {
    return nn_launch(ctx, nn_backward_wgmma_kernel<T, D, PARTS>, dim3((unsigned)(a.pieces * a.tiles * a.pairs)),
                     dim3(L::THREADS), L::bytes, a, maps);
  }
  int32_t rows(nncuda_ctx *ctx, const nn_flash_backward &a) const {
    const int64_t units = a.pairs * a.sizes.rows() * (a.sizes.dim / 8);
    return nn_launch(ctx, nn_backward_finish_kernel<T, D>,
                     dim3(nn_blocks(ctx, units, NN_BACKWARD_FINISH_THREADS, NN_BACKWARD_BLOCKS_PER_SM)),
                     dim3(NN_BACKWARD_FINISH_THREADS), 0, a);
  }
};

#endif

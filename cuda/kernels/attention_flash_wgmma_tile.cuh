/* Which tiles a block takes, where the parts of its shared memory lie, and how its warpgroups take turns: of
 * attention_flash_wgmma.cuh. */
#ifndef NN_KERNELS_ATTENTION_FLASH_WGMMA_TILE_CUH
#define NN_KERNELS_ATTENTION_FLASH_WGMMA_TILE_CUH

#include "kernels/attention_flash.cuh"
#include "kernels/attention_mma.cuh"
#include "kernels/instructions_registers.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/*
 * Registers of a consumer: (D + N) / 2 sums and N / 4 of P, 128 of the 160 that setmaxnreg leaves three of them, or 160
 * of the 232 of two (128 * 32 + 384 * 160 = 65536 in all, 128 * 40 + 256 * 232 = 64512). For D = 64 there is room for
 * four stages, 128 KiB: three consumers use a stage one after another before it can be filled again, and they go
 * through it in half the time. For D = 128 two stages are as much. By count.
 */
template <int D_, int CONSUMERS_> struct nn_flash_wgmma_layout {
  static constexpr int D = D_, CONSUMERS = CONSUMERS_, M = 64 * CONSUMERS, N = 128, STAGES = D == 64 ? 4 : 2;
  static constexpr int THREADS = 128 * (1 + CONSUMERS);
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40, REGISTERS = CONSUMERS == 3 ? 160 : 232;
  static constexpr bool IN_TURN = true; /* whether one consumer's products go before those of the next */
  static constexpr int LATE = 4;        /* of a step's N / 8 groups of powers, those found after the product with V */
  static constexpr int Q_BOX = M * 128, HALF = N * 128; /* bytes of 64 columns of a tile of Q, and of K or V: a box */
  static constexpr int TILE = D / 64 * HALF;
  static constexpr int k_at = D / 64 * Q_BOX, v_at = k_at + STAGES * TILE, out_at = v_at + STAGES * TILE;
  static constexpr int seen_at = out_at + nn_mma_tile<D>::bytes(M), barriers_at = seen_at + 8 * M;
  static constexpr size_t bytes = barriers_at + 4 * STAGES * 8;
};

/* bar.sync's barriers: each consumer's own, and one for its turn. */
template <class L> struct nn_flash_barriers {
  static constexpr uint32_t OWN = 1, TURN = OWN + L::CONSUMERS;
};

/* Keys and values that blocks walk over side by side. The second cache has 50 MB, but needs only what they read at
 * about the same time: those of a (sequence, key head) begin with its first keys at once. By count. */
constexpr int64_t NN_FLASH_CACHED_BYTES = 64 << 20;

/* A tile of rows: its (sequence, key head), and its first row. */
struct nn_flash_place {
  int32_t sequence, kv_head;
  uint32_t first;
};

/*
 * How blocks walk over all tiles: in one order, forwards in even rounds and backwards in odd ones, so that who had the
 * longest tile of a round has the shortest of the next. Under a causal mask the last tile of a (sequence, key head)
 * sees the most keys; those of `side_by_side` of these pairs come first, then their last but one, and so on: long tiles
 * first, and no more K and V in use at once than the second cache holds. The next pairs begin with a round of their
 * own: were their longest tiles in a round with the shortest of these, the same blocks would have the longest of that
 * round and of the next. Without a mask one pair follows another. No sum is made of two tiles: the order decides no
 * bit.
 */
struct nn_flash_walk {
  uint32_t tiles, pairs, side_by_side, slots; /* tiles of each pair; places for those of side_by_side pairs */

  nn_flash_walk(int64_t tiles_, int64_t pairs_, int64_t together, int64_t blocks, bool by_rounds)
      : tiles((uint32_t)tiles_), pairs((uint32_t)pairs_), side_by_side((uint32_t)together),
        slots((uint32_t)(by_rounds ? nn_ceil_div(tiles_ * together, blocks) * blocks : tiles_ * together)) {}

  /* This block's next tile, of M rows, from `round` on, which becomes the tile's round; whether there is one. */
  template <int M>
  __device__ __forceinline__ bool find(nn_flash_place &place, uint32_t &round, int32_t kv_heads) const {
    for (;; round++) {
      const uint32_t index = round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
      const uint32_t section = index / slots, pair_begin = section * side_by_side;
      if (pair_begin >= pairs) {
        return false;
      }
      const uint32_t of_section = index - section * slots;
      const uint32_t left = pairs - pair_begin, wide = side_by_side < left ? side_by_side : left;
      const uint32_t level = of_section / wide, pair = pair_begin + of_section - level * wide;
      if (level < tiles) {
        place.sequence = (int32_t)(pair / (uint32_t)kv_heads);
        place.kv_head = (int32_t)(pair - (uint32_t)place.sequence * (uint32_t)kv_heads);
        place.first = (tiles - 1 - level) * M;
        return true;
      }
    }
  }
};

/* The tiles of keys that some row of a tile of rows sees: from key `begin` on, and how many. */
template <int N> struct nn_flash_keys {
  int32_t begin, steps;

  __device__ __forceinline__ nn_flash_keys(const nn_flash &p, const nn_query_rows &rows) {
    begin = nn_first_tile<N>(p.starts, rows);
    const int32_t end = (int32_t)nn_keys_seen(p.sizes, rows.query + rows.further(rows.count - 1));
    steps = end > begin ? (end - begin + N - 1) / N : 0;
  }
};

/* Addresses of the barriers of one ring: `full` counts the bytes of a stage, `empty` the warpgroups that have read it.
 */
struct nn_flash_ring {
  uint32_t full, empty, tiles;
};

/* A stage is what a step's number is modulo STAGES; its turns alternate between parities. Steps are numbered over all
 * tiles of a block. */
template <class L> __device__ __forceinline__ uint32_t nn_ring_stage(uint32_t step) { return step % L::STAGES; }
template <class L> __device__ __forceinline__ uint32_t nn_ring_parity(uint32_t step) { return step / L::STAGES & 1; }

/* By one thread: the tile of keys `key` and on, as step `step`. */
template <class L>
__device__ __forceinline__ void nn_flash_load(const nn_flash_ring &ring, const CUtensorMap *map, uint32_t step, int key,
                                              uint64_t policy, int kv_head, int sequence) {
  const uint32_t stage = nn_ring_stage<L>(step), full = ring.full + 8 * stage;
  nn_mbarrier_wait(ring.empty + 8 * stage, nn_ring_parity<L>(step) ^ 1);
  nn_mbarrier_arrive_expect(full, L::TILE);
#pragma unroll
  for (int half = 0; half < L::D / 64; half++) {
    nn_tensor_load(ring.tiles + stage * L::TILE + half * L::HALF, map, full, policy, 64 * half, kv_head, key, sequence);
  }
}

template <class L> __device__ __forceinline__ void nn_flash_await(const nn_flash_ring &ring, uint32_t step) {
  nn_mbarrier_wait(ring.full + 8 * nn_ring_stage<L>(step), nn_ring_parity<L>(step));
}

template <class L> __device__ __forceinline__ void nn_flash_release(const nn_flash_ring &ring, uint32_t step) {
  if (threadIdx.x % 128 == 0) {
    nn_mbarrier_arrive(ring.empty + 8 * nn_ring_stage<L>(step));
  }
}

/*
 * The turns of the consumers, one after another in a circle: whose turn it is starts its products and passes the turn
 * on, and computes powers while the tensor cores have those of the others. A tile of `steps` steps is steps + 1 turns
 * of each consumer: in turn j it multiplies Q with the keys of step j, and P with the values of step j - 1. So a turn
 * waits only for what earlier turns release, and no circle of waiting arises; who has nothing to multiply passes it on.
 */
template <class L> struct nn_flash_turns {
  static constexpr uint32_t TURN = nn_flash_barriers<L>::TURN, CONSUMERS = L::CONSUMERS;
  uint32_t consumer;

  /* The last consumer gives the first one its first turn. */
  __device__ __forceinline__ explicit nn_flash_turns(uint32_t which) : consumer(which) {
    if (consumer + 1 == CONSUMERS) {
      pass();
    }
  }
  __device__ __forceinline__ void take() const {
    if constexpr (L::IN_TURN) {
      nn_barrier_sync(TURN + nn_anew(consumer), 256);
    }
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (L::IN_TURN) {
      const uint32_t next = nn_anew(consumer) + 1;
      nn_barrier_arrive(next < CONSUMERS ? TURN + next : TURN, 256);
    }
  }
  /* And takes what the last one passed on last: each barrier is complete when the block ends. */
  __device__ __forceinline__ void end() const {
    if (consumer == 0) {
      take();
    }
  }
};

#endif

/* What a block has to do, where the parts of its shared memory lie, and its barriers: of attention_backward_wgmma.cuh.
 */
#ifndef NN_KERNELS_ATTENTION_BACKWARD_WGMMA_TILE_CUH
#define NN_KERNELS_ATTENTION_BACKWARD_WGMMA_TILE_CUH

#include "kernels/attention_backward.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/* Where an element of dQ lies among the sums of its tile: that of a consumer after another's, rows of 64 columns, whose
 * units of 8 are moved so that the lanes of a warp meet all banks. */
template <int D> __device__ __forceinline__ int nn_backward_dq_at(int row, int unit) {
  const int part = D == 64 ? row / 64 : unit / 8;
  return part * 4096 + row % 64 * 64 + ((unit ^ row) & 7) * 8;
}

struct nn_backward_wgmma_maps {
  CUtensorMap q, k, v, dout, sums;
};

/* The tiles of rows that see any key of a tile. */
struct nn_backward_row_tiles {
  int32_t first, end;

  __device__ __forceinline__ nn_backward_row_tiles(const nn_flash_backward &p, int64_t sequence, int64_t tile) {
    const nn_attention_sizes &s = p.sizes;
    const int64_t key = tile * NN_BACKWARD_WGMMA_KEYS, query = key - (s.kv_len - s.q_len), queries = p.tile_queries;
    const int64_t seeing = key < s.kv_len ? nn_queries_seeing(p.starts, s, sequence, key + NN_BACKWARD_WGMMA_KEYS) : 0;
    first = s.causal && query > 0 ? (int32_t)(query / queries) : 0;
    end = (int32_t)nn_ceil_div(seeing, queries);
  }
  __device__ __forceinline__ bool has(int32_t i) const { return i >= first && i < end; }
};

/* What a block does: a piece of the rows that see a tile of keys. It lies in shared memory, not in registers. */
struct nn_backward_wgmma_work {
  int64_t pair, tile, key_pair, place;        /* of `partial`: (sequence, key head) and piece, share */
  int32_t sequence, kv_head, key, first, end; /* the tile's first key; tiles of rows */

  __device__ __forceinline__ void find(const nn_flash_backward &p, uint32_t ticket) {
    const int64_t of_pair = p.tiles * p.pieces, left = ticket % of_pair;
    pair = ticket / of_pair;
    sequence = (int32_t)(pair / p.sizes.kv_heads);
    kv_head = (int32_t)(pair - sequence * p.sizes.kv_heads);
    tile = p.tiles - 1 - left / p.pieces;
    key_pair = pair / p.shares;
    const int64_t piece = left % p.pieces;
    place = piece * p.shares + pair % p.shares;
    key = (int32_t)(tile * NN_BACKWARD_WGMMA_KEYS);
    const nn_backward_row_tiles rows(p, sequence, tile);
    const int64_t each = rows.end > rows.first ? nn_ceil_div((int64_t)rows.end - rows.first, p.pieces) : 0;
    first = (int32_t)(rows.first + piece * each);
    end = (int32_t)(first + each < rows.end ? first + each : rows.end);
  }
};

/*
 * Registers of a consumer: D of dK and dV and M / 2 each of S and dP, 192 of the 240 that setmaxnreg leaves (128 * 24 +
 * 256 * 240 = 64512 in all); P and dS take the places of S and dP, in PARTS 16-bit parts, and dQ that of P. With two
 * parts of 128 rows there would be too few: dK then takes dS from shared memory. By count.
 */
template <int D_, int PARTS_> struct nn_backward_wgmma_layout {
  static constexpr int D = D_, PARTS = PARTS_, CONSUMERS = 2, STAGES = 2, THREADS = 128 * (1 + CONSUMERS);
  static constexpr int N = 64 * CONSUMERS, M = nn_backward_wgmma_rows(D);
  static constexpr int KEY_BOX = N * 128, KEY_TILE = D / 64 * KEY_BOX; /* bytes; of 64 columns */
  static constexpr int ROW_BOX = M * 128, ROW_TILE = D / 64 * ROW_BOX;
  static constexpr int DS_BOX = N * 128, DS_TILE = M / 64 * DS_BOX; /* [64 rows][key][row] */
  static constexpr int DQ_PART = 64 * 64 * 4;                       /* of a consumer */
  static constexpr bool SHARED_DS = D == 64 && PARTS == 2;          /* where dK takes dS from */
  static constexpr int v_at = KEY_TILE, q_at = v_at + KEY_TILE, dout_at = q_at + STAGES * ROW_TILE;
  static constexpr int ds_at = dout_at + STAGES * ROW_TILE, dq_at = ds_at + PARTS * DS_TILE;
  static constexpr int SUMS = 16 * M, sums_at = dq_at + CONSUMERS * DQ_PART, barriers_at = sums_at + STAGES * SUMS;
  static constexpr int work_at = barriers_at + 8 * (4 + 3 * STAGES);
  static constexpr size_t bytes = work_at + sizeof(nn_backward_wgmma_work);
  static_assert(N == NN_BACKWARD_WGMMA_KEYS && CONSUMERS * DQ_PART == 4 * M * D, "");
};

/* Addresses of barriers. `full` ones count the bytes of a stage, `empty` the warpgroups that have read it; the dQ of a
 * step is put down by all warps of the consumers, and taken by one thread. */
template <class L> struct nn_backward_wgmma_barriers {
  uint32_t keys_full, dq_full, dq_empty, q_full, dout_full, empty;

  __device__ __forceinline__ explicit nn_backward_wgmma_barriers(uint32_t shared)
      : keys_full(shared + L::barriers_at), dq_full(keys_full + 8), dq_empty(dq_full + 8), q_full(dq_empty + 8),
        dout_full(q_full + 8 * L::STAGES), empty(dout_full + 8 * L::STAGES) {}

  __device__ __forceinline__ void init() const {
    nn_mbarrier_init(keys_full, 1);
    nn_mbarrier_init(dq_full, 4 * L::CONSUMERS);
    nn_mbarrier_init(dq_empty, 1);
    for (uint32_t i = 0; i < L::STAGES; i++) {
      nn_mbarrier_init(q_full + 8 * i, 1);
      nn_mbarrier_init(dout_full + 8 * i, 1);
      nn_mbarrier_init(empty + 8 * i, L::CONSUMERS);
    }
  }
};

#endif

/*
 * What the forms of flash_attention_backward share (Dao 2023, algorithm 2). With P = softmax(S), dP = dO V^T and
 * delta = rowsum(dO * O):
 *   dV = P^T dO,  dS = P * (dP - delta),  dQ = scale * dS K,  dK = scale * dS^T Q.
 *
 * Three kernels: one fills `row_sums`, one has a block for each tile of keys, which walks over the rows that see them
 * (those of all heads of the group) and so sums dK and dV in one fixed order, and one gives dQ. By mma and in f32
 * arithmetic the last has a block for each tile of rows, which walks over the keys; S and dP are computed in both, and
 * blocks add nothing together. By wgmma the second adds up dQ, too (attention_backward_wgmma.cuh).
 *
 * When there are few tiles of keys, the rows are cut into pieces by the sizes alone, dK and dV of each piece go to
 * `partial`, and a fourth kernel adds them in order.
 */
#ifndef NN_KERNELS_ATTENTION_BACKWARD_CUH
#define NN_KERNELS_ATTENTION_BACKWARD_CUH

#include "kernels/attention_starts.cuh"

struct nn_flash_backward {
  const void *dout, *q, *k, *v, *out;
  const float *lse;
  const int32_t *starts; /* the first key that each query sees, or null */
  void *dq, *dk, *dv;
  /* Of each row, in the order of nn_query_rows, sequence after sequence: lse * log2(e) as two numbers (rounding it
   * would cost P more than all else in f32), delta, and, as bits, how many keys it sees. Rows without keys have +inf,
   * which makes P zero. The forms of 16 bits, which need no second number, have the row's first key there, as bits. */
  float4 *row_sums;
  float *partial; /* [piece, share][2][sequence, key head][kv_len][dim]: dK, dV; null when there is one */
  nn_attention_sizes sizes;
  nn_split factor; /* scale * log2(e) */
  float scale;
  int64_t tiles, pieces, pairs; /* of keys or rows, in each (sequence, key head); of rows; (sequence, key head)s */
  /* By wgmma each key head counts as so many, each with a share of its query heads, in `sizes` and `pairs`;
   * (sequence, key head)s of `partial`, where it counts as one. */
  int32_t shares;
  int64_t key_pairs;
  /* Where row_sums has places for rows: each (sequence, key head) has so many tiles, of so many rows or queries, with
   * room for more; of a tile, the first numbers of all rows stand together, then the second ones. By wgmma they are
   * tiles; else each row is one, and its numbers a float4. */
  int64_t row_tiles, tile_rows, tile_queries, tile_room;
  float *dq_sums;      /* by wgmma: sums of dQ and */
  uint32_t *turns;     /* a number for all blocks, and one for each tile of rows; else null */
  bool wide, wide_out; /* 16 bytes at a time in q, k, v, dq, dk, dv; in dout and out */
};

/* The tiles of rows that piece `piece` of a tile of `keys` keys takes, of those that see any of them. */
struct nn_backward_span {
  int32_t first, end;

  __device__ __forceinline__ nn_backward_span(const nn_flash_backward &p, int64_t sequence, int64_t key, int keys,
                                              int64_t piece, int tile) {
    const nn_attention_sizes &s = p.sizes;
    const int64_t pieces = p.pieces, query = key - (s.kv_len - s.q_len); /* the first that sees `key` */
    const int64_t from = s.causal && query > 0 ? query * s.group / tile : 0;
    const int64_t to = nn_ceil_div(nn_queries_seeing(p.starts, s, sequence, key + keys) * s.group, tile);
    const int64_t each = to > from ? nn_ceil_div(to - from, pieces) : 0;
    first = (int32_t)(from + piece * each);
    end = (int32_t)(from + (piece + 1) * each < to ? from + (piece + 1) * each : to);
  }
};

constexpr int NN_BACKWARD_BLOCKS_PER_SM = 8; /* of the kernels before and after the products */

/* Where a tile of keys leaves dK and dV when there are several pieces or shares: of `pair`, without shares. */
__device__ __forceinline__ int64_t nn_partial_at(const nn_flash_backward &p, int64_t piece, int side, int64_t pair,
                                                 int64_t key) {
  return (((piece * 2 + side) * p.key_pairs + pair) * p.sizes.kv_len + key) * p.sizes.dim;
}

#endif

/* How the GPU's kernels of attention lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_ATTENTION_WORKSPACE_H
#define NN_KERNELS_ATTENTION_WORKSPACE_H

#include "abi/generated/attention.h"
#include "runtime/engine.h"

/* ---- decoding ---- */

/*
 * What a row reads is cut into runs of neighbouring pieces or pages, as many in each, which are merged twice: within a
 * run as they come, then the runs. How long a run is follows from the row's own number of keys, never from the capacity
 * or the batch, and neither do scratch and grid grow with the capacity beyond this many. 64 runs of two key heads fill
 * an H100, and the second merge has at most 64 steps. By count.
 */
enum { NN_DECODE_RUNS = 64 };

/* Pieces or pages of a run, and runs, of `count` of them. */
NN_SIZE_FUNCTION int64_t nn_run_length(int64_t count) {
  return count <= NN_DECODE_RUNS ? 1 : nn_ceil_div(count, NN_DECODE_RUNS);
}

NN_SIZE_FUNCTION int64_t nn_most_runs(int64_t count) {
  return count < NN_DECODE_RUNS ? count : (int64_t)NN_DECODE_RUNS;
}

/* ---- attention_decode ---- */

/* A piece of keys: K, and V, of so many bytes are loaded by a block, all under way at once; with two or more blocks on
 * a multiprocessor that is what latency times bandwidth asks for, and they fit in any architecture's shared memory
 * beside Q and P. By count. */
enum { NN_DECODE_PIECE_BYTES = 16384, NN_DECODE_PIECE_KEYS = 128 };

typedef struct nn_decode_pieces {
  int64_t keys, runs; /* of a piece; of a whole cache */
  float *partial;     /* [batch][heads][runs][head_dim + 2] */
} nn_decode_pieces;

static inline nn_decode_pieces nn_decode_lay_out(const nn_attention_decode_args *a, nn_workspace *w) {
  nn_decode_pieces p = {NN_DECODE_PIECE_KEYS, 0, NULL};
  while (p.keys * a->head_dim * (a->dtype == NNCUDA_F32 ? 4 : 2) > NN_DECODE_PIECE_BYTES) {
    p.keys /= 2;
  }
  p.runs = nn_most_runs(nn_ceil_div(a->capacity, p.keys));
  p.partial =
      (float *)nn_workspace_piece(w, sizeof(float) * (size_t)(a->batch * a->heads * p.runs * (a->head_dim + 2)));
  return p;
}

/* ---- attention_decode_paged, attention_step_paged ---- */

/* What each run of pages gives each head of a sequence. */
static inline float *nn_decode_paged_lay_out(int64_t batch, int64_t heads, int64_t max_pages, int64_t head_dim,
                                             nn_workspace *w) {
  return (float *)nn_workspace_piece(w, sizeof(float) * (size_t)(batch * heads * nn_most_runs(max_pages)) *
                                            (size_t)(head_dim + 2));
}

/* ---- flash_attention_paged ---- */

/* Tensor cores multiply pages of 16-bit numbers and of blocks, as far as a row's sums and powers fit in registers.
 * Prompts and decoding choose alike: a row's bits hang on it. Not for a `variant`: attention_paged.cuh. */
enum { NN_PAGED_MMA_DIM = 128 };
NN_SIZE_FUNCTION int32_t nn_paged_uses_mma(int32_t arch, int32_t format, int64_t head_dim, int32_t variant) {
  return !variant && arch >= 80 && format != NNCUDA_FORMAT_F32 && head_dim <= NN_PAGED_MMA_DIM;
}

/* Whether a call has a window, a soft cap or sinks. */
static inline int32_t nn_paged_is_variant(const nn_flash_attention_paged_args *a) {
  return a->window != 0 || a->softcap != 0.0f || a->sinks != NULL;
}

/* The sums of all runs before a row's last, where a row may have runs of several pages: as `out`, which serves itself
 * where it is f32; else null. */
static inline float *nn_flash_paged_lay_out(const nn_flash_attention_paged_args *a, nn_workspace *w) {
  if (!nn_paged_uses_mma(w->machine->isa, a->format, a->head_dim, nn_paged_is_variant(a)) || a->dtype == NNCUDA_F32 ||
      a->max_pages <= NN_DECODE_RUNS) {
    return NULL;
  }
  return (float *)nn_workspace_piece(w, sizeof(float) * (size_t)(a->tokens * a->heads * a->head_dim));
}

/* ---- flash_attention_backward ---- */

/*
 * Blocks that the kernel over keys should have, so that a large GPU is full; pieces of a tile of keys make up for what
 * tiles are missing, but none is shorter than PIECE_ROWS rows, or partial results would cost more than they bring. Sums
 * hang on both, so neither may follow the device. By count.
 */
enum { NN_BACKWARD_BLOCKS = 512, NN_BACKWARD_PIECE_ROWS = 512 };

/* Keys of a tile, by the padded head_dim. The forms are made for them: see nn_backward_mma_tile. */
NN_SIZE_FUNCTION int32_t nn_backward_keys(int32_t mma, int64_t dim) {
  return mma ? (dim <= 64 ? 128 : 64) : dim <= 128 ? 32 : 16;
}

/* sm_75 has not enough shared memory for tiles of 256 columns. */
static inline int32_t nn_backward_uses_mma(const nn_flash_attention_backward_args *a, int32_t arch) {
  return a->dtype != NNCUDA_F32 && arch >= (a->dtype == NNCUDA_F16 ? 75 : 80) && a->shape.kv_len <= 1 << 30 &&
         (a->shape.head_dim <= 128 || arch >= 80);
}

/* The form by wgmma, which is for sm_90a: keys of a tile, and rows, by the padded head_dim. A tile of rows has all
 * heads of a group for so many queries; further rows are empty. */
enum { NN_BACKWARD_WGMMA_KEYS = 128 };

/* Its blocks have a multiprocessor each, and are wanted twice over. The partial dK and dV of one with 128 columns, 131
 * KB, take 4 us to write and 4 to read, as long as 4 tiles of 64 rows: a piece has at least 32. By count. */
enum { NN_BACKWARD_WGMMA_BLOCKS = 256, NN_BACKWARD_WGMMA_PIECE_ROWS = 2048 };
NN_SIZE_FUNCTION int32_t nn_backward_wgmma_rows(int64_t dim) { return dim <= 64 ? 128 : 64; }
NN_SIZE_FUNCTION int64_t nn_backward_wgmma_queries(int64_t dim, int64_t group) {
  return nn_backward_wgmma_rows(dim) / group;
}

/* From so many keys on P and dS are multiplied as one 16-bit number each, in 5 products and not 8. Where few terms make
 * a sum the rounding that this adds is as large as that of the gradients, and with 2 to 4 keys it took up to 1.5 times
 * what the golden fixtures allow; with 80 it kept below. */
enum { NN_BACKWARD_ONE_PART_KEYS = 512 };

/* Whether it can take these sizes. It still needs rows of whole 16 bytes, and a driver that knows tensor maps. */
static inline int32_t nn_backward_may_use_wgmma(const nn_flash_attention_backward_args *a, int32_t arch) {
  const nn_attention_shape *s = &a->shape;
  return arch == 90 && nn_backward_uses_mma(a, arch) && s->head_dim <= 128 &&
         s->heads / s->kv_heads <= nn_backward_wgmma_rows(s->head_dim) && s->q_len <= 1 << 30;
}

/*
 * Query heads that share a key head are taken in shares, each as if it had a key head of its own, where else too few
 * blocks would take too long: shares have no rows in common, so that none waits for another to add to dQ. There are so
 * many blocks in all, if the group has a divisor for it and each share as many rows as a piece. By count: with 12 heads
 * over one and 16384 tokens, the longest of 128 blocks takes twice the mean, and that of 1536 a sixth of it.
 */
enum { NN_BACKWARD_WGMMA_SHARE_BLOCKS = 1024 };

static inline int64_t nn_backward_wgmma_shares(const nn_attention_shape *s) {
  const int64_t group = s->heads / s->kv_heads;
  const int64_t blocks = nn_ceil_div(s->kv_len, NN_BACKWARD_WGMMA_KEYS) * s->batch * s->kv_heads;
  int64_t shares = 1;
  for (int64_t d = 2; d <= group && shares * blocks < NN_BACKWARD_WGMMA_SHARE_BLOCKS; d++) {
    if (group % d == 0 && s->q_len * (group / d) >= NN_BACKWARD_WGMMA_PIECE_ROWS) {
      shares = d;
    }
  }
  return shares;
}

/* Pieces that each tile's rows are cut into, and their partial dK and dV. */
typedef struct nn_backward_pieces {
  int64_t pieces;
  size_t bytes; /* of [pieces][2][pairs][kv_len][head_dim] in f32; 0 with one piece */
} nn_backward_pieces;

static inline nn_backward_pieces nn_backward_cut(const nn_attention_shape *s, int64_t keys, int64_t blocks,
                                                 int64_t piece_rows) {
  const int64_t pairs = s->batch * s->kv_heads, rows = s->q_len * (s->heads / s->kv_heads);
  const int64_t wanted = blocks / (nn_ceil_div(s->kv_len, keys) * pairs);
  const int64_t most = rows / piece_rows, pieces = wanted < most ? wanted : most;
  nn_backward_pieces p = {1, 0};
  if (pieces > 1) {
    p.pieces = pieces;
    p.bytes = sizeof(float) * (size_t)(pieces * 2 * pairs * s->kv_len * s->head_dim);
  }
  return p;
}

typedef struct nn_backward_space {
  int32_t mma, wgmma;           /* on tensor cores; by wgmma, if operands and driver allow it */
  int64_t pieces, wgmma_pieces; /* of the form by wgmma, and of the others */
  int64_t wgmma_shares;         /* of each group of heads, by wgmma */
  void *row_sums;               /* 16 bytes a row: [pairs][rows], by wgmma [pairs][tiles][rows of a tile] */
  float *partial;               /* of either; or null */
  /* By wgmma alone. Sums of dQ, tile by tile; how many tiles of keys they have of each tile, and before these the
   * number of blocks that have begun. */
  float *dq_sums;
  uint32_t *turns;
} nn_backward_space;

static inline nn_backward_space nn_backward_lay_out(const nn_flash_attention_backward_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  const int32_t arch = w->machine->isa;
  const int64_t pairs = s->batch * s->kv_heads, rows = s->q_len * (s->heads / s->kv_heads);
  nn_backward_space p = {
      nn_backward_uses_mma(a, arch), nn_backward_may_use_wgmma(a, arch), 1, 1, 1, NULL, NULL, NULL, NULL};
  const nn_backward_pieces cut =
      nn_backward_cut(s, nn_backward_keys(p.mma, s->head_dim), NN_BACKWARD_BLOCKS, NN_BACKWARD_PIECE_ROWS);
  int64_t sums = pairs * rows;
  size_t partial = cut.bytes;
  p.pieces = cut.pieces;
  if (p.wgmma) {
    nn_attention_shape of_shares = *s;
    p.wgmma_shares = nn_backward_wgmma_shares(s);
    of_shares.kv_heads *= p.wgmma_shares;
    nn_backward_pieces other =
        nn_backward_cut(&of_shares, NN_BACKWARD_WGMMA_KEYS, NN_BACKWARD_WGMMA_BLOCKS, NN_BACKWARD_WGMMA_PIECE_ROWS);
    if (a->causal !=
        0) { /* the second piece's first rows see keys that the first piece of the tile before takes last */
      other.pieces = 1;
    }
    const int64_t all = other.pieces * p.wgmma_shares;
    other.bytes = all > 1 ? sizeof(float) * (size_t)(all * 2 * pairs * s->kv_len * s->head_dim) : 0;
    const int64_t dim = s->head_dim <= 64 ? 64 : 128;
    const int64_t queries = nn_backward_wgmma_queries(dim, s->heads / of_shares.kv_heads);
    const int64_t tiles = pairs * p.wgmma_shares * nn_ceil_div(s->q_len, queries);
    const int64_t padded = tiles * nn_backward_wgmma_rows(dim);
    sums = padded > sums ? padded : sums;
    partial = other.bytes > partial ? other.bytes : partial;
    p.wgmma_pieces = other.pieces;
    p.dq_sums = (float *)nn_workspace_piece(w, sizeof(float) * (size_t)(padded * dim));
    p.turns = (uint32_t *)nn_workspace_piece(w, sizeof(uint32_t) * (size_t)(tiles + 1));
  }
  p.row_sums = nn_workspace_piece(w, (size_t)sums * 16);
  if (partial > 0) {
    p.partial = (float *)nn_workspace_piece(w, partial);
  }
  return p;
}

#endif

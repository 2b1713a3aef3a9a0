/* How the GPU's kernels of gemm lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_GEMM_WORKSPACE_H
#define NN_KERNELS_GEMM_WORKSPACE_H

#include "abi/gemm.h"
#include "abi/gemm_gate.h"
#include "runtime/engine.h"

enum { NN_GEMM_FEW_ROWS = 8 };

/* How a product is computed, and what it needs. */
typedef struct nn_gemm_cut {
  int32_t wide;  /* rows of A and B are runs of 16 bytes, in every product */
  int32_t few;   /* few rows of A with a weight: neither tiles nor pieces */
  int32_t large; /* tiles */
  int32_t pieces;
  int64_t piece;  /* k of a piece */
  float *partial; /* [pieces, count, m, n]: sums of pieces of k, or null */
} nn_gemm_cut;

/* Multiprocessors of a usual GPU of the architecture: how finely work is cut must not depend on the very one, since
 * pieces of k decide bits. */
static inline int64_t nn_gemm_usual_sms(int32_t arch) {
  return arch >= 90 ? 132 : arch == 89 ? 128 : arch == 86 ? 84 : arch >= 80 ? 108 : arch == 75 ? 68 : 80;
}

/*
 * Large tiles where there are enough of them to give each multiprocessor one, or two with pieces of at least
 * LARGE_PIECE; else small tiles, in pieces of at least SMALL_PIECE until each multiprocessor has three. What pieces
 * cost is a trip of C in f32 to memory and back for each: at most PIECES of them, of PARTIAL_BYTES together. By count.
 */
enum {
  NN_GEMM_LARGE = 128,
  NN_GEMM_SMALL = 64,
  NN_GEMM_STAGE = 64,
  NN_GEMM_LARGE_PIECE = 1024,
  NN_GEMM_SMALL_PIECE = 256,
  NN_GEMM_PIECES = 32,
  NN_GEMM_PARTIAL_BYTES = 64 << 20
};

static inline int64_t nn_gemm_tiles(const nn_gemm_args *x, int64_t side) {
  const int64_t tiles = nn_ceil_div(x->m, side) * nn_ceil_div(x->n, side);
  return x->ragged == NN_GEMM_RAGGED_M ? tiles : tiles * x->count;
}

static inline int64_t nn_gemm_pieces(const nn_gemm_args *x, int64_t tiles, int64_t wanted_tiles, int64_t least) {
  const int64_t most_depth = x->k / least, most_bytes = NN_GEMM_PARTIAL_BYTES / 4 / (x->count * x->m * x->n);
  const int64_t most = nn_min(NN_GEMM_PIECES, nn_min(most_depth, most_bytes));
  const int64_t pieces = nn_min(nn_ceil_div(wanted_tiles, tiles), most);
  return x->ragged != NN_GEMM_EVEN || pieces < 1 ? 1 : pieces;
}

/* Batches and the experts' weights are dense. */
static inline int32_t nn_gemm_wide(const nn_gemm_args *x) {
  const int64_t each = x->dtype == NNCUDA_F32 ? 4 : 8;
  const int32_t a_steps = x->ragged != NN_GEMM_EVEN || x->count == 1 || x->m * x->k % each == 0;
  const int32_t b_steps = x->ragged == NN_GEMM_RAGGED_K || x->count == 1 || x->k * x->n % each == 0;
  return ((uintptr_t)x->a | (uintptr_t)x->b) % 16 == 0 && x->lda % each == 0 && x->ldb % each == 0 && a_steps &&
         b_steps;
}

/*
 * What a product takes on sm_90, in clocks of a multiprocessor, where it has fewer tiles of 128 x 128 than there are
 * multiprocessors: such tiles on wgmma, or more, smaller ones on mma. A stage of 64 of k, of all blocks that run at
 * once, takes what the tensor cores need for it (512 for 128 x 128; 206 for 64 x 64, since mma reaches 62 % of their
 * speed), or L2 (5120 bytes a clock for all), or a multiprocessor's way to it (64 bytes a clock). START: the first
 * loads and the last tile's way to C. Pieces are written and read in f32 besides, and added by a second kernel, ADD.
 * Tiles of 64 x 128 on wgmma would take 24 KiB a stage in 256 clocks, more than the 64 bytes a clock there are: at most
 * a third faster than tiles twice as large on half as many multiprocessors, and slower from 54 of those on. By count.
 */
enum {
  NN_GEMM_WGMMA_CLOCKS = 512,
  NN_GEMM_MMA_CLOCKS = 206,
  NN_GEMM_L2_BYTES = 5120,
  NN_GEMM_SM_BYTES = 64,
  NN_GEMM_START = 2000,
  NN_GEMM_ADD = 3500,
  NN_GEMM_MMA_BLOCKS = 4, /* small tiles that a multiprocessor has at once */
  NN_GEMM_WGMMA_PIECE = 512
};

static inline int64_t nn_gemm_clocks(const nn_gemm_args *x, int64_t sms, int32_t large, int64_t pieces) {
  const int64_t side = large ? NN_GEMM_LARGE : NN_GEMM_SMALL, each = large ? 1 : NN_GEMM_MMA_BLOCKS;
  const int64_t bytes = 2 * side * NN_GEMM_STAGE * 2, blocks = nn_gemm_tiles(x, side) * pieces;
  const int64_t at_once = nn_min(blocks, each * sms), on_one = nn_ceil_div(at_once, sms);
  const int64_t tensor = on_one * (large ? NN_GEMM_WGMMA_CLOCKS : NN_GEMM_MMA_CLOCKS);
  const int64_t l2 = at_once * bytes / NN_GEMM_L2_BYTES, way = on_one * bytes / NN_GEMM_SM_BYTES;
  const int64_t stage = nn_max(tensor, nn_max(l2, way)), stages = nn_ceil_div(nn_ceil_div(x->k, pieces), NN_GEMM_STAGE);
  const int64_t added = pieces == 1 ? 0 : NN_GEMM_ADD + 2 * 4 * pieces * x->count * x->m * x->n / NN_GEMM_L2_BYTES;
  return nn_ceil_div(blocks, each * sms) * (stages * stage + NN_GEMM_START) + added;
}

/* The pieces of large tiles that take fewer clocks than small ones in `small` pieces; 0 where none do. Groups of rows
 * are left to small tiles: how many tiles they have, only the device knows. */
static inline int64_t nn_gemm_wgmma_pieces(const nn_gemm_args *x, int64_t sms, int64_t small) {
  if (x->ragged == NN_GEMM_RAGGED_M || x->m <= NN_GEMM_SMALL || x->n <= NN_GEMM_SMALL) {
    return 0;
  }
  const int64_t most = nn_gemm_pieces(x, 1, NN_GEMM_PIECES, NN_GEMM_WGMMA_PIECE);
  int64_t least = nn_gemm_clocks(x, sms, 0, small), found = 0;
  for (int64_t pieces = 1; pieces <= most; pieces++) {
    const int64_t clocks = nn_gemm_clocks(x, sms, 1, pieces);
    if (clocks < least) {
      least = clocks;
      found = pieces;
    }
  }
  return found;
}

static inline nn_gemm_cut nn_gemm_lay_out(const nn_gemm_args *x, nn_workspace *w) {
  nn_gemm_cut cut = {nn_gemm_wide(x), 0, 0, 1, x->k, NULL};
  cut.few = x->m <= NN_GEMM_FEW_ROWS && x->ragged == NN_GEMM_EVEN && x->trans_b && !x->trans_a && cut.wide;
  if (cut.few) {
    return cut;
  }
  const int64_t sms = nn_gemm_usual_sms(w->machine->isa), large = nn_gemm_tiles(x, NN_GEMM_LARGE);
  const int32_t wgmma = w->machine->isa == 90 && x->dtype != NNCUDA_F32 && cut.wide;
  int64_t pieces = 1;
  cut.large = large >= sms;
  if (!cut.large && !wgmma && x->m > NN_GEMM_SMALL && x->n > NN_GEMM_SMALL) {
    pieces = nn_gemm_pieces(x, large, 2 * sms, NN_GEMM_LARGE_PIECE);
    cut.large = large * pieces >= 2 * sms;
  }
  if (!cut.large) {
    const int64_t small = nn_gemm_tiles(x, NN_GEMM_SMALL);
    pieces = small >= sms ? 1 : nn_gemm_pieces(x, small, 3 * sms, NN_GEMM_SMALL_PIECE);
    const int64_t on_wgmma = wgmma ? nn_gemm_wgmma_pieces(x, sms, pieces) : 0;
    cut.large = on_wgmma > 0;
    pieces = cut.large ? on_wgmma : pieces;
  }
  cut.piece = nn_round_up(nn_ceil_div(x->k, pieces), NN_GEMM_STAGE);
  cut.pieces = (int32_t)nn_ceil_div(x->k, cut.piece);
  if (cut.pieces > 1) {
    cut.partial = (float *)nn_workspace_piece(w, (size_t)(cut.pieces * x->count * x->m * x->n) * sizeof(float));
  }
  return cut;
}

/* moe_input_backward: of its products, one after the other. */
static inline void nn_router_lay_out(const nn_moe_input_backward_args *a, nn_workspace *w) {
  const nn_gemm_args of_gate = nn_gate_gradient(a), of_tokens = nn_gate_input_gradient(a);
  nn_gemm_lay_out(&of_gate, w);
  nn_gemm_lay_out(&of_tokens, w);
}

#endif

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

static inline nn_gemm_cut nn_gemm_lay_out(const nn_gemm_args *x, nn_workspace *w) {
  nn_gemm_cut cut = {nn_gemm_wide(x), 0, 0, 1, x->k, NULL};
  cut.few = x->m <= NN_GEMM_FEW_ROWS && x->ragged == NN_GEMM_EVEN && x->trans_b && !x->trans_a && cut.wide;
  if (cut.few) {
    return cut;
  }
  const int64_t sms = nn_gemm_usual_sms(w->machine->isa), large = nn_gemm_tiles(x, NN_GEMM_LARGE);
  int64_t pieces = 1;
  cut.large = large >= sms;
  if (!cut.large && x->m > NN_GEMM_SMALL && x->n > NN_GEMM_SMALL) {
    pieces = nn_gemm_pieces(x, large, 2 * sms, NN_GEMM_LARGE_PIECE);
    cut.large = large * pieces >= 2 * sms;
  }
  if (!cut.large) {
    const int64_t small = nn_gemm_tiles(x, NN_GEMM_SMALL);
    pieces = small >= sms ? 1 : nn_gemm_pieces(x, small, 3 * sms, NN_GEMM_SMALL_PIECE);
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

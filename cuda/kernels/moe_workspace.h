/* How the GPU's kernels of moe lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_MOE_WORKSPACE_H
#define NN_KERNELS_MOE_WORKSPACE_H

#include "abi/generated/moe.h"
#include "kernels/loss_workspace.h"
#include "runtime/engine.h"

enum { NN_MOE_PIECE = 512, NN_MOE_SHARED_EXPERTS = 2048 };

/* The slots are cut into pieces, each at least four times as long as there are experts, so that counts take no more
 * than the slots. */
typedef struct nn_moe_pieces {
  int64_t slots, count;
  int32_t *ranks;   /* [count, experts] */
  int32_t *running; /* as ranks, or null: the experts fit into shared memory */
} nn_moe_pieces;

static inline nn_moe_pieces nn_moe_plan_lay_out(const nn_moe_plan_args *a, nn_workspace *w) {
  const int64_t least = nn_round_up(4 * a->experts, 32);
  nn_moe_pieces p = {nn_max(least, NN_MOE_PIECE), 0, NULL, NULL};
  p.count = nn_ceil_div(a->tokens * a->k, p.slots);
  const size_t counts = (size_t)(p.count * a->experts) * sizeof(int32_t);
  p.ranks = (int32_t *)nn_workspace_piece(w, counts);
  if (a->experts > NN_MOE_SHARED_EXPERTS) {
    p.running = (int32_t *)nn_workspace_piece(w, counts);
  }
  return p;
}

/*
 * moe_route: with at most EXPERTS experts, whose counts a block keeps in shared memory, the tokens are cut into at most
 * PIECES pieces of at least LEAST, a block each: as many as fill the multiprocessors with rows to copy, and no more
 * than each block can add up the counts of (64 KiB with 64 experts). With more experts it is the calls that it stands
 * for. By count.
 */
enum { NN_ROUTE_EXPERTS = 1024, NN_ROUTE_PIECES = 256, NN_ROUTE_LEAST = 8 };

typedef struct nn_moe_route_pieces {
  int64_t tokens, count; /* of a piece; pieces */
  int32_t *chosen;       /* [count, experts]: slots of each expert in a piece */
  double *partial;       /* sums of the loss; null for none */
  int32_t *done;         /* [1]: blocks that have added up their chunks */
} nn_moe_route_pieces;

static inline nn_moe_plan_args nn_moe_route_plan(const nn_moe_route_args *a) {
  const nn_moe_plan_args plan = {a->indices, a->counts, a->offsets, a->slot_row, a->row_slot,
                                 a->tokens,  a->k,      a->experts, a->capacity};
  return plan;
}

static inline nn_moe_route_pieces nn_moe_route_lay_out(const nn_moe_route_args *a, nn_workspace *w) {
  nn_moe_route_pieces p = {0, 0, NULL, NULL, NULL};
  if (a->experts > NN_ROUTE_EXPERTS) {
    const nn_moe_plan_args plan = nn_moe_route_plan(a);
    nn_moe_plan_lay_out(&plan, w);
  } else {
    p.tokens = nn_round_up(nn_ceil_div(a->tokens, NN_ROUTE_PIECES), NN_ROUTE_LEAST);
    p.count = nn_ceil_div(a->tokens, p.tokens);
    p.chosen = (int32_t *)nn_workspace_piece(w, (size_t)(p.count * a->experts) * sizeof(int32_t));
    p.done = (int32_t *)nn_workspace_piece(w, sizeof(int32_t));
  }
  if (a->loss != NULL) {
    p.partial = nn_aux_lay_out(a->tokens * a->experts, w);
  }
  return p;
}

#endif

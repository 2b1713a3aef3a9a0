/* How the GPU's kernels of moe lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_MOE_WORKSPACE_H
#define NN_KERNELS_MOE_WORKSPACE_H

#include "abi/generated/moe.h"
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

#endif

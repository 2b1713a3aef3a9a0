/* How the GPU's kernels of loss lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_LOSS_WORKSPACE_H
#define NN_KERNELS_LOSS_WORKSPACE_H

#include "abi/generated/loss.h"
#include "runtime/engine.h"

enum { NN_AUX_CHUNK = 8192 }; /* probabilities of a block, by count */

/* The loss of each row. */
static inline double *nn_entropy_lay_out(const nn_cross_entropy_forward_args *a, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)a->rows * sizeof(double));
}

static inline int64_t nn_aux_chunks(const nn_aux_loss_forward_args *a) {
  return nn_ceil_div(a->tokens * a->experts, NN_AUX_CHUNK);
}

/* The sum of each chunk. */
static inline double *nn_aux_lay_out(const nn_aux_loss_forward_args *a, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)nn_aux_chunks(a) * sizeof(double));
}

#endif

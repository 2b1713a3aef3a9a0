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

/* Of n probabilities. */
static inline int64_t nn_aux_chunks(int64_t n) { return nn_ceil_div(n, NN_AUX_CHUNK); }

/* The sum of each chunk. */
static inline double *nn_aux_lay_out(int64_t n, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)nn_aux_chunks(n) * sizeof(double));
}

#endif

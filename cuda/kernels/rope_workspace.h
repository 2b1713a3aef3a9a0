/* How the GPU's kernels of rope lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_ROPE_WORKSPACE_H
#define NN_KERNELS_ROPE_WORKSPACE_H

#include "abi/generated/rope.h"
#include "runtime/engine.h"

/* A frequency for each pair of a head. */
static inline double *nn_rope_lay_out(int64_t head_dim, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)(head_dim / 2) * sizeof(double));
}

#endif

/* How the GPU's kernels of ternary lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_TERNARY_WORKSPACE_H
#define NN_KERNELS_TERNARY_WORKSPACE_H

#include "abi/ternary.h"
#include "runtime/engine.h"

/* The sum of each row. */
static inline double *nn_ternary_lay_out(const nn_ternary_quantize_args *a, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)a->n * sizeof(double));
}

#endif

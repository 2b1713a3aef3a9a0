/* How the GPU's kernels of optimizer lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_OPTIMIZER_WORKSPACE_H
#define NN_KERNELS_OPTIMIZER_WORKSPACE_H

#include "abi/generated/optimizer.h"
#include "abi/optimizer.h"
#include "numbers/sizes.h"
#include "runtime/engine.h"

/* Of what the three steps of AdamW compute from step and rate: see optimizer_adamw.cuh. */
enum { NN_ADAMW_FACTORS_BYTES = 40 };

static inline void *nn_adamw_lay_out(nn_workspace *w) { return nn_workspace_piece(w, NN_ADAMW_FACTORS_BYTES); }

static inline int64_t nn_grad_chunks(const nn_grad_norm_args *a) { return nn_ceil_div(a->n, NN_GRAD_CHUNK_GPU); }

/* The sum of each chunk. */
static inline double *nn_grad_norm_lay_out(const nn_grad_norm_args *a, nn_workspace *w) {
  return a->squares != NULL ? a->squares : (double *)nn_workspace_piece(w, (size_t)nn_grad_chunks(a) * sizeof(double));
}

#endif

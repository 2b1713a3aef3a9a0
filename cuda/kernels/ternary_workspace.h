/* How the GPU's kernels of ternary lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_TERNARY_WORKSPACE_H
#define NN_KERNELS_TERNARY_WORKSPACE_H

#include "abi/ternary.h"
#include "runtime/engine.h"

/* The sum of each row. */
static inline double *nn_ternary_lay_out(const nn_ternary_quantize_args *a, nn_workspace *w) {
  return (double *)nn_workspace_piece(w, (size_t)a->n * sizeof(double));
}

/* Rows of x in 8 bits. */
typedef struct nn_ternary_rows {
  int8_t *codes; /* [m, k] */
  float *scale;  /* [m] */
} nn_ternary_rows;

static inline nn_ternary_rows nn_ternary_rows_lay_out(const nn_bitlinear_norm_args *a, nn_workspace *w) {
  nn_ternary_rows rows;
  rows.codes = (int8_t *)nn_workspace_piece(w, (size_t)(a->m * a->k));
  rows.scale = (float *)nn_workspace_piece(w, (size_t)a->m * sizeof(float));
  return rows;
}

#endif

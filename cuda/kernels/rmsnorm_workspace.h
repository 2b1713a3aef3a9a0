/* How the GPU's kernels of rmsnorm lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_RMSNORM_WORKSPACE_H
#define NN_KERNELS_RMSNORM_WORKSPACE_H

#include "abi/generated/rmsnorm.h"
#include "runtime/engine.h"

/* The rows are cut by their number alone, since sums hang on it. What a piece leaves is one row of f32, written and
 * read again: with 8 rows of 16-bit numbers a piece, which 2048 tokens need to occupy all multiprocessors, a sixth of
 * the traffic, with 32 rows (32 k tokens) a twentieth. By count. */
enum { NN_NORM_MOST_PIECES = 1024, NN_NORM_FEWEST_ROWS = 8 };

/* What the rows are cut into, and the sums of each piece for the gradient of the weight. */
typedef struct nn_norm_pieces {
  int64_t rows, count;
  float *partial; /* [count, cols] */
} nn_norm_pieces;

static inline nn_norm_pieces nn_norm_lay_out(const nn_rmsnorm_backward_args *a, nn_workspace *w) {
  const int64_t least = nn_ceil_div(a->rows, NN_NORM_MOST_PIECES);
  nn_norm_pieces p;
  p.rows = nn_max(least, NN_NORM_FEWEST_ROWS);
  p.count = nn_ceil_div(a->rows, p.rows);
  p.partial = (float *)nn_workspace_piece(w, (size_t)p.count * (size_t)a->cols * sizeof(float));
  return p;
}

#endif

/* How the GPU's kernels of embedding lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_EMBEDDING_WORKSPACE_H
#define NN_KERNELS_EMBEDDING_WORKSPACE_H

#include "abi/generated/embedding.h"
#include "runtime/engine.h"

/* Chunks are few, since each block reads all their counts, and no smaller than what keeps one busy. By count. */
enum { NN_SORT_DIGIT_BITS = 9, NN_SORT_DIGITS = 1 << NN_SORT_DIGIT_BITS, NN_SORT_CHUNKS = 128, NN_SORT_TOKENS = 2048 };

/* What sorts the tokens by id. */
typedef struct nn_sort_space {
  int64_t chunk, chunks;        /* tokens of a chunk; how many there are */
  uint32_t *keys[2], *order[2]; /* [tokens] each */
  uint32_t *counts;             /* [chunks, digits] */
} nn_sort_space;

static inline nn_sort_space nn_scatter_lay_out(const nn_scatter_add_args *a, nn_workspace *w) {
  const int64_t least = nn_round_up(nn_ceil_div(a->tokens, NN_SORT_CHUNKS), NN_SORT_DIGITS);
  const size_t each = (size_t)a->tokens * sizeof(uint32_t);
  nn_sort_space s = {0, 0, {NULL, NULL}, {NULL, NULL}, NULL};
  if (a->tokens > INT32_MAX) { /* the kernel refuses it */
    return s;
  }
  s.chunk = nn_max(least, NN_SORT_TOKENS);
  s.chunks = nn_ceil_div(a->tokens, s.chunk);
  for (int i = 0; i < 2; i++) {
    s.keys[i] = (uint32_t *)nn_workspace_piece(w, each);
    s.order[i] = (uint32_t *)nn_workspace_piece(w, each);
  }
  s.counts = (uint32_t *)nn_workspace_piece(w, (size_t)(s.chunks * NN_SORT_DIGITS) * sizeof(uint32_t));
  return s;
}

#endif

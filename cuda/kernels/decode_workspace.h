/* How the GPU's kernels of decode lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_DECODE_WORKSPACE_H
#define NN_KERNELS_DECODE_WORKSPACE_H

#include "abi/decode.h"
#include "runtime/engine.h"

/*
 * Parts of a row of logits, a block each: as many as two blocks a multiprocessor leave each row, of at least 4096
 * tokens, eight a thread. Below that, what the blocks tell one another would take longer than a block takes for the
 * whole row. No sum of a part is rounded, so that neither their number nor the device decides a bit. By count.
 */
enum { NN_SAMPLE_PARTS = 64, NN_SAMPLE_PART_TOKENS = 4096, NN_SAMPLE_PARTS_SM = 2 };
/* Rows that are cut, at most: their blocks have a counter each (nn_gpu_arrivals). */
enum { NN_SAMPLE_ROWS = 4096 };

/* How rows are cut. */
typedef struct nn_row_parts {
  int64_t parts, length; /* of a row; tokens of a part but the last. One part: rows are not cut */
} nn_row_parts;

static inline nn_row_parts nn_row_parts_of(int64_t rows, int64_t vocab, const nn_workspace *w) {
  const int64_t grain = 32; /* parts begin at whole lines, as far as the row does */
  const int64_t room = rows > NN_SAMPLE_ROWS ? 1 : (int64_t)w->machine->sms * NN_SAMPLE_PARTS_SM / rows;
  int64_t most = nn_ceil_div(vocab, NN_SAMPLE_PART_TOKENS);
  most = most < NN_SAMPLE_PARTS ? most : (int64_t)NN_SAMPLE_PARTS;
  most = most < room ? most : room;
  nn_row_parts cut = {1, vocab};
  if (most >= 2) {
    cut.length = nn_ceil_div(nn_ceil_div(vocab, most), grain) * grain;
    cut.parts = nn_ceil_div(vocab, cut.length);
  }
  return cut;
}

/* ---- argmax ---- */

/* The first token (token_of) of each part of each row; null where rows are not cut. */
static inline uint64_t *nn_argmax_lay_out(const nn_argmax_args *a, nn_workspace *w) {
  const nn_row_parts cut = nn_row_parts_of(a->rows, a->vocab, w);
  return cut.parts < 2 ? NULL : (uint64_t *)nn_workspace_piece(w, (size_t)(a->rows * cut.parts) * sizeof(uint64_t));
}

/* ---- logprobs ---- */

/* All but `cut` are arrays of each part's of each row's. */
typedef struct nn_logprobs_space {
  nn_row_parts cut;
  uint64_t *first;  /* the first token */
  uint64_t *sums;   /* what its tokens weigh */
  uint64_t *listed; /* [n] its first tokens, in any order; 0 where there are fewer */
} nn_logprobs_space;

static inline nn_logprobs_space nn_logprobs_lay_out(const nn_logprobs_args *a, nn_workspace *w) {
  nn_logprobs_space s = {nn_row_parts_of(a->rows, a->vocab, w), NULL, NULL, NULL};
  if (s.cut.parts < 2) {
    return s;
  }
  const size_t parts = (size_t)(a->rows * s.cut.parts);
  s.first = (uint64_t *)nn_workspace_piece(w, parts * sizeof(uint64_t));
  s.sums = (uint64_t *)nn_workspace_piece(w, parts * sizeof(uint64_t));
  if (a->top_ids != NULL || a->top_logprobs != NULL) {
    s.listed = (uint64_t *)nn_workspace_piece(w, parts * (size_t)a->n * sizeof(uint64_t));
  }
  return s;
}

/* ---- draws ---- */

/* Buckets of a row's tokens by how likely they are, and the most of them that are sorted to find a border: a bucket of
 * 128256 logits that are spread as a bell has at most some 250. By count. */
enum { NN_SAMPLE_BUCKETS = 2048, NN_SAMPLE_SORTED = 2048 };

/* All but `cut` are arrays of each row's. */
typedef struct nn_sample_space {
  nn_row_parts cut;
  uint64_t *first;   /* [parts] the first token (token_of) of each */
  uint32_t *lowest;  /* [parts] the lowest key that may be drawn, all bits 1 where there is none */
  uint64_t *weights; /* [NN_SAMPLE_BUCKETS] */
  uint32_t *counts;  /* [NN_SAMPLE_BUCKETS] */
  uint64_t *sums;    /* [parts] weights of tokens that the border allows whatever it is */
  uint64_t *near;    /* [NN_SAMPLE_SORTED] tokens of the border's bucket, in any order */
  uint32_t *found;   /* [2] how many those are; parts that are done */
} nn_sample_space;

static inline nn_sample_space nn_sample_lay_out(const nn_sample_args *a, nn_workspace *w) {
  nn_sample_space s = {nn_row_parts_of(a->rows, a->vocab, w), NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  if (s.cut.parts < 2) {
    return s;
  }
  const size_t rows = (size_t)a->rows, parts = rows * (size_t)s.cut.parts;
  s.first = (uint64_t *)nn_workspace_piece(w, parts * sizeof(uint64_t));
  s.lowest = (uint32_t *)nn_workspace_piece(w, parts * sizeof(uint32_t));
  s.weights = (uint64_t *)nn_workspace_piece(w, rows * NN_SAMPLE_BUCKETS * sizeof(uint64_t));
  s.counts = (uint32_t *)nn_workspace_piece(w, rows * NN_SAMPLE_BUCKETS * sizeof(uint32_t));
  s.sums = (uint64_t *)nn_workspace_piece(w, parts * sizeof(uint64_t));
  s.near = (uint64_t *)nn_workspace_piece(w, rows * NN_SAMPLE_SORTED * sizeof(uint64_t));
  s.found = (uint32_t *)nn_workspace_piece(w, rows * 2 * sizeof(uint32_t));
  return s;
}

#endif

/*
 * Attention of one query a sequence over its cache (Dao et al. 2023, "Flash-Decoding"): the keys are cut into pieces of
 * a fixed number, each piece leaves its maximum, sum and output in scratch, and a second pass combines them in order.
 * What limits it is reading the cache, which each task does once for all query heads that share the key head. Here is
 * what does not depend on how a piece is computed.
 */
#ifndef NN_CPU_ATTENTION_DECODE_H
#define NN_CPU_ATTENTION_DECODE_H

#include "attention_pack.h"
#include "checks.h"

#include "abi/generated/attention.h"

enum { PIECE_KEYS = 256 }; /* at most */

typedef struct decode {
  const nn_attention_decode_args *a;
  float *partial, *workspace; /* [batch][heads][pieces][partial_size]: output, maximum, sum; and of each worker */
  int64_t piece_keys, pieces, partial_size, workspace_size;
} decode;

/* The softmax of `keys` scores against their own maximum: scores become 2^(score - maximum). */
NN_INLINE void decode_soften(float *scores, int64_t keys, float *peak, float *sum) {
  vf top = vf_set1(-INFINITY);
  for (int64_t j = 0; j < keys; j += VF) {
    top = vf_max(vf_keep_part(vf_load(scores + j), nn_min(VF, keys - j), -INFINITY), top);
  }
  *peak = vf_maximum(top);
  vf total = vf_set1(0.0f);
  for (int64_t j = 0; j < keys; j += VF) {
    const vf p = vf_keep_part(vf_exp2(vf_sub(vf_load(scores + j), vf_set1(*peak))), nn_min(VF, keys - j), 0.0f);
    total = vf_add(total, p);
    vf_store(scores + j, p);
  }
  *sum = vf_sum(total);
}

NN_INLINE void decode_combine(const decode *f, int64_t row, int32_t dtype) {
  const nn_attention_decode_args *a = f->a;
  const int64_t dim = a->head_dim, end = nn_round_up(dim, VF),
                pieces = nn_ceil_div(a->lengths[row / a->heads], f->piece_keys);
  const float *partial = f->partial + row * f->pieces * f->partial_size;
  float peak = -INFINITY;
  for (int64_t p = 0; p < pieces; p++) {
    const float top = partial[p * f->partial_size + end];
    peak = top > peak ? top : peak;
  }
  vf sum = vf_set1(0.0f); /* in each lane */
  for (int64_t p = 0; p < pieces; p++) {
    const float *x = partial + p * f->partial_size + end;
    sum = vf_fma(vf_set1(x[1]), vf_exp2(vf_set1(x[0] - peak)), sum);
  }
  for (int64_t d = 0; d < dim; d += VF) {
    vf total = vf_set1(0.0f);
    for (int64_t p = 0; p < pieces; p++) {
      const float *x = partial + p * f->partial_size;
      total = vf_fma(vf_load(x + d), vf_exp2(vf_set1(x[end] - peak)), total);
    }
    if (pieces > 0) {
      total = vf_div(total, sum);
    }
    vf_store_part_as(a->out, row * dim + d, nn_min(VF, dim - d), total, dtype);
  }
}

NN_TASK(decode_combine_task, decode, NN_SWITCH_DTYPE(job->a->dtype, decode_combine(job, task, DT)))

/* Partial results for as many pieces as the longest sequence can have; a worker keeps `size` floats. */
NN_PLAIN NN_INLINE decode decode_lay_out(const nn_attention_decode_args *a, nn_workspace *w, int64_t piece_keys,
                                         int64_t size) {
  decode f = {
      .a = a, .piece_keys = piece_keys, .partial_size = nn_round_up(a->head_dim, VF) + 2, .workspace_size = size};
  const int64_t most = nn_max(1, nn_ceil_div(a->capacity, f.piece_keys));
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * w->machine->threads) * sizeof(float));
  f.partial = nn_workspace_piece(w, (size_t)(a->batch * a->heads * most * f.partial_size) * sizeof(float));
  return f;
}

/* All pieces of all sequences, each by `task`; task i is piece i % pieces of sequence i / pieces. */
NN_INLINE int32_t decode_run(nncuda_ctx *ctx, decode *f, void (*task)(void *, int64_t, int32_t)) {
  const nn_attention_decode_args *a = f->a;
  NN_TRY(nn_check_range(ctx, "lengths", a->lengths, a->batch, 0, a->capacity, ", the capacity"));
  int64_t longest = 0;
  for (int64_t b = 0; b < a->batch; b++) {
    longest = nn_max(longest, a->lengths[b]);
  }
  f->pieces = nn_max(1, nn_ceil_div(longest, f->piece_keys));
  nn_parallel(ctx, a->batch * f->pieces, task, f);
  nn_parallel(ctx, a->batch * a->heads, decode_combine_task, f);
  return NNCUDA_SUCCESS;
}

#endif

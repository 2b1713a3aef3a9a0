/*
 * How the gradients of attention are cut into tasks, whatever they are multiplied by.
 *
 * A task owns some queries of one head, or of several that share a key head: it walks over the keys in blocks, keeps dK
 * and dV of a block in the cache while the queries pass, and adds to dQ, which nobody else touches. When several tasks
 * share a key head, each leaves its dK and dV in scratch, and a second pass adds them up in order. How the queries are
 * cut depends on the sizes alone, and so do all sums.
 */
#ifndef NN_CPU_ATTENTION_GRADIENTS_H
#define NN_CPU_ATTENTION_GRADIENTS_H

#include "attention_pack.h"
#include "attention_starts.h"

#include "abi/generated/attention.h"

enum {
  ATTN_TASKS_WANTED = 8,        /* with fewer heads than that, the queries of each are cut into pieces */
  ATTN_PARTIAL_ROUND = 1 << 24, /* floats of partial results that are kept at a time */
  ATTN_ADD_KEYS = 64            /* keys that a task of the second pass adds up */
};

typedef struct gradients {
  const nn_flash_attention_backward_args *a;
  float dk_factor;            /* what dK is to be multiplied by at the end */
  float *partial;             /* dK and dV of each task, [kv_len][head_dim] each, or null */
  char *workspace;            /* of each worker, */
  int64_t workspace_size;     /* in bytes */
  int64_t round;              /* (sequence, key head) pairs whose partial results are kept at a time */
  int64_t first_pair, pairs;  /* those in this round */
  int64_t heads;              /* that a task takes, one after another */
  int64_t pieces, piece_rows; /* tasks a head, and queries a task and head */
  int64_t tasks;              /* a pair */
} gradients;

/* The queries of a task, and where those of its first head and their keys begin, in elements. */
typedef struct gradient_task {
  int64_t heads, rows, seen; /* query r of the task sees r + seen keys */
  int64_t q, kv, out, lse;
  const int32_t *starts; /* of the queries, or null */
} gradient_task;

NN_INLINE gradient_task gradient_task_at(const gradients *f, int64_t i) {
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t group = s->heads / s->kv_heads, dim = s->head_dim;
  const int64_t pair = f->first_pair + i / f->tasks, sequence = pair / s->kv_heads;
  const int64_t skipped = i % f->tasks / f->pieces * f->heads, head = pair % s->kv_heads * group + skipped;
  /* The last piece sees the most keys: it goes first. */
  const int64_t piece = f->pieces - 1 - i % f->pieces, begin = piece * f->piece_rows;
  return (gradient_task){.heads = nn_min(f->heads, group - skipped),
                         .rows = nn_min(f->piece_rows, s->q_len - begin),
                         .seen = begin + s->kv_len - s->q_len + 1,
                         .q = (sequence * s->q_len + begin) * a->ld_q + head * dim,
                         .kv = sequence * s->kv_len * a->ld_kv + pair % s->kv_heads * dim,
                         .out = ((sequence * s->q_len + begin) * s->heads + head) * dim,
                         .lse = (sequence * s->heads + head) * s->q_len + begin,
                         .starts = a->starts ? a->starts + sequence * s->q_len + begin : NULL};
}

/* rowsum(dout * out) of rows first .. first+VF-1, one a lane; zero from `rows` on. */
NN_INLINE vf row_products(const void *dout, const void *out, int64_t ld, int64_t first, int64_t rows, int64_t dim,
                          int32_t dtype) {
  vf sums[VF];
  for (int i = 0; i < VF; i++) {
    sums[i] = vf_set1(0.0f);
    for (int64_t d = 0; d < dim && first + i < rows; d += VF) {
      sums[i] = vf_fma(load_columns(dout, (first + i) * ld, d, dim, dtype),
                       load_columns(out, (first + i) * ld, d, dim, dtype), sums[i]);
    }
  }
  return sum_each(sums);
}

NN_INLINE void add_partials(const gradients *f, int64_t local, int64_t begin, int64_t end, int32_t dtype) {
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t tasks = f->tasks, dim = s->head_dim, size = s->kv_len * dim;
  const int64_t pair = f->first_pair + local;
  const int64_t at = pair / s->kv_heads * s->kv_len * a->ld_kv + pair % s->kv_heads * dim;
  for (int64_t key = begin; key < end; key++) {
    for (int32_t side = 0; side < 2; side++) {
      const float *partial = f->partial + (2 * local * tasks + side) * size + key * dim;
      for (int64_t d = 0; d < dim; d += VF) {
        const int64_t n = nn_min(VF, dim - d);
        vf sum = vf_load_part(partial + d, n);
        for (int64_t t = 1; t < tasks; t++) {
          sum = vf_add(sum, vf_load_part(partial + 2 * t * size + d, n));
        }
        sum = vf_mul(sum, vf_set1(side == 0 ? f->dk_factor : 1.0f));
        vf_store_part_as(side == 0 ? a->dk : a->dv, at + key * a->ld_kv + d, n, sum, dtype);
      }
    }
  }
}

static void gradients_add_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const gradients *f = arg;
  const int64_t kv_len = f->a->shape.kv_len, blocks = nn_ceil_div(kv_len, ATTN_ADD_KEYS),
                begin = i % blocks * ATTN_ADD_KEYS;
  NN_SWITCH_DTYPE(f->a->dtype, add_partials(f, i / blocks, begin, nn_min(begin + ATTN_ADD_KEYS, kv_len), DT));
}

/* Cuts the queries into pieces of whole blocks of `block_rows`, of `heads` heads of a key head at a time. */
NN_PLAIN NN_INLINE void gradients_cut(gradients *f, int64_t heads, int64_t block_rows) {
  const nn_attention_shape *s = &f->a->shape;
  const int64_t parts = nn_ceil_div(s->heads / s->kv_heads, heads);
  f->heads = heads;
  f->piece_rows =
      nn_round_up(nn_ceil_div(s->q_len, nn_ceil_div(ATTN_TASKS_WANTED, s->batch * s->kv_heads * parts)), block_rows);
  f->pieces = nn_ceil_div(s->q_len, f->piece_rows);
  f->tasks = parts * f->pieces;
}

/* Takes `workspace_size` bytes for each worker, and room for the partial results of a round. */
NN_PLAIN NN_INLINE void gradients_lay_out(gradients *f, nn_workspace *w) {
  const nn_attention_shape *s = &f->a->shape;
  f->workspace = nn_workspace_piece(w, (size_t)(f->workspace_size * w->machine->threads));
  f->round = s->batch * s->kv_heads;
  if (f->tasks > 1) {
    const int64_t pair_size = 2 * f->tasks * s->kv_len * s->head_dim;
    f->round = nn_max(1, nn_min(f->round, ATTN_PARTIAL_ROUND / pair_size));
    f->partial = nn_workspace_piece(w, (size_t)(f->round * pair_size) * sizeof(float));
  }
}

/* Runs `task` for all, and adds up what they leave. */
static int32_t gradients_run(nncuda_ctx *ctx, gradients *f, void (*task)(void *, int64_t, int32_t)) {
  const nn_attention_shape *s = &f->a->shape;
  const int64_t pairs = s->batch * s->kv_heads;
  for (f->first_pair = 0; f->first_pair < pairs; f->first_pair += f->pairs) {
    f->pairs = nn_min(f->round, pairs - f->first_pair);
    nn_parallel(ctx, f->pairs * f->tasks, task, f);
    if (f->partial) {
      nn_parallel(ctx, f->pairs * nn_ceil_div(s->kv_len, ATTN_ADD_KEYS), gradients_add_task, f);
    }
  }
  return NNCUDA_SUCCESS;
}

#endif

/*
 * Mixture of experts: a stable counting sort of the slots by expert, and the moves between token order and row order.
 * The moves are bound by memory: each output row is written once, by one task, in one pass over what it needs.
 */
#include "abi/generated/moe.h"

#include "checks.h"
#include "span.h"

#include <string.h>

/* Slots that one task counts and places, at least. */
enum { PIECE = 1 << 11 };

/* ---- moe_plan ---- */

typedef struct plan_job {
  const nn_moe_plan_args *args;
  int64_t slots, piece, pieces, limit;
  int32_t *ranks; /* [pieces, experts]: slots of an expert in a piece, then the rank of the first of them */
  int64_t *bad;   /* [pieces]: first slot with an expert out of range, or -1 */
} plan_job;

static int64_t piece_end(const plan_job *job, int64_t i) {
  return (i + 1) * job->piece < job->slots ? (i + 1) * job->piece : job->slots;
}

NN_TASK_OF(count_task, plan_job, job, i) {
  const int64_t experts = job->args->experts, end = piece_end(job, i);
  const int32_t *indices = job->args->indices;
  int32_t *ranks = job->ranks + i * experts;
  memset(ranks, 0, (size_t)experts * sizeof *ranks);
  job->bad[i] = -1;
  for (int64_t s = i * job->piece; s < end; s++) {
    const int32_t e = indices[s];
    if (e < 0 || e >= experts) {
      job->bad[i] = s;
      return;
    }
    ranks[e]++;
  }
}

NN_TASK_OF(place_task, plan_job, job, i) {
  const nn_moe_plan_args a = *job->args; /* a copy that no store can change, so that its fields stay in registers */
  const int64_t end = piece_end(job, i), limit = job->limit;
  int32_t *ranks = job->ranks + i * a.experts;
  for (int64_t s = i * job->piece; s < end; s++) {
    const int32_t e = a.indices[s], rank = ranks[e]++;
    if (rank < limit) {
      const int32_t row = a.offsets[e] + rank;
      a.slot_row[s] = row;
      a.row_slot[row] = (int32_t)s;
    } else {
      a.slot_row[s] = -1;
    }
  }
}

NN_PLAIN static plan_job plan_lay_out(const nn_moe_plan_args *a, nn_workspace *w) {
  plan_job job = {.args = a, .slots = a->tokens * a->k};
  job.limit = a->capacity == 0 || a->capacity > job.slots ? job.slots : a->capacity;
  job.piece = nn_max(4 * a->experts, PIECE); /* so that the counts are no more than the slots */
  job.pieces = nn_ceil_div(job.slots, job.piece);
  job.bad = nn_workspace_piece(w, (size_t)job.pieces * sizeof *job.bad);
  job.ranks = nn_workspace_piece(w, (size_t)(job.pieces * a->experts) * sizeof *job.ranks);
  return job;
}

NN_WORKSPACE(moe_plan) { plan_lay_out(args, w); }

int32_t NN_KERNEL(moe_plan)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_plan_args *a = args;
  plan_job job = plan_lay_out(a, nn_workspace_of(ctx));
  const int64_t pieces = job.pieces;
  nn_parallel(ctx, pieces, count_task, &job);
  for (int64_t i = 0; i < pieces; i++) {
    if (job.bad[i] >= 0) {
      return nn_refuse_index(ctx, a->indices, job.bad[i], a->k, a->experts);
    }
  }
  int32_t row = 0;
  for (int64_t e = 0; e < a->experts; e++) {
    int32_t count = 0;
    for (int64_t i = 0; i < pieces; i++) {
      int32_t *rank = &job.ranks[i * a->experts + e];
      const int32_t here = *rank;
      *rank = count;
      count += here;
    }
    a->counts[e] = count;
    a->offsets[e] = row;
    row += count < job.limit ? count : (int32_t)job.limit;
  }
  a->offsets[a->experts] = row;
  nn_parallel(ctx, pieces, place_task, &job);
  memset(a->row_slot + row, 0xff, (size_t)(job.slots - row) * sizeof *a->row_slot); /* -1 */
  return NNCUDA_SUCCESS;
}

/* ---- what the moves share ---- */

/* Rows of `dim` elements a task writes. */
static int64_t rows_a_task(int64_t dim, int32_t dtype) {
  const int64_t rows = NN_COPY_BYTES / (dim * nn_dtype_bytes(dtype));
  return rows > 1 ? rows : 1;
}

/* ---- moe_gather ---- */

typedef struct gather_job {
  nn_moe_gather_args args;
  const int32_t *slot_row; /* [tokens, k]: inverse of row_slot, or null when a slot is in two rows */
  int64_t bytes, grain;    /* of a row; rows of a task, a multiple of k */
  int32_t stream;
} gather_job;

NN_INLINE void gather_row(const gather_job *job, int64_t row, int64_t slot) {
  const char *x = (const char *)job->args.x + slot / job->args.k * job->bytes;
  char *y = (char *)job->args.y + row * job->bytes;
  if (job->stream) { /* as 32-bit words, whatever the dtype: a copy */
    NN_EACH_VECTOR(0, job->bytes / 4, 1, nn_stream_head(y, 0, NNCUDA_F32),
                   nn_put(y, i, lanes, nn_get(x, i, lanes, NNCUDA_F32, MODE), NNCUDA_F32, MODE));
  } else {
    memcpy(y, x, (size_t)job->bytes);
  }
}

/* In token order, so that a token is read from memory once and not again for each of its k experts. */
static void gather_task(void *arg, int64_t task, int32_t worker) {
  (void)worker;
  const gather_job job = *(const gather_job *)arg;
  const int64_t rows = job.args.tokens * job.args.k, begin = task * job.grain;
  const int64_t end = nn_min(begin + job.grain, rows);
  if (job.slot_row != NULL) {
    for (int64_t slot = begin; slot < end; slot++) {
      if (job.slot_row[slot] >= 0) {
        gather_row(&job, job.slot_row[slot], slot);
      }
    }
  }
  for (int64_t row = begin; row < end; row++) {
    const int32_t slot = job.args.row_slot[row];
    if (slot < 0) {
      memset((char *)job.args.y + row * job.bytes, 0, (size_t)job.bytes);
    } else if (job.slot_row == NULL) {
      gather_row(&job, row, slot);
    }
  }
  if (job.stream) {
    nn_stream_fence();
  }
}

/* The inverse of row_slot; 0 when a slot is in two rows. */
static int32_t invert(const int32_t *row_slot, int64_t n, int32_t *slot_row) {
  memset(slot_row, 0xff, (size_t)n * sizeof *slot_row); /* -1 */
  int32_t twice = 0;
  for (int64_t row = 0; row < n; row++) {
    const int32_t slot = row_slot[row];
    if (slot >= 0) {
      twice |= slot_row[slot] >= 0;
      slot_row[slot] = (int32_t)row;
    }
  }
  return !twice;
}

/* The row of each slot. */
NN_PLAIN static int32_t *gather_lay_out(const nn_moe_gather_args *a, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)(a->tokens * a->k) * sizeof(int32_t));
}

NN_WORKSPACE(moe_gather) { gather_lay_out(args, w); }

int32_t NN_KERNEL(moe_gather)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_gather_args *a = args;
  const int64_t rows = a->tokens * a->k;
  gather_job job = {.args = *a, .bytes = a->dim * nn_dtype_bytes(a->dtype)};
  job.grain = rows_a_task(a->dim * a->k, a->dtype) * a->k;
  NN_TRY(nn_check_range(ctx, "row_slot", a->row_slot, rows, -1, rows - 1, ""));
  int32_t *slot_row = gather_lay_out(a, nn_workspace_of(ctx));
  job.slot_row = invert(a->row_slot, rows, slot_row) ? slot_row : NULL;
  const int32_t words = job.bytes % 4 == 0 && (uintptr_t)a->x % 4 == 0 && (uintptr_t)a->y % 4 == 0;
  job.stream = words && nn_worth_streaming(rows * a->dim, a->dtype);
  nn_parallel(ctx, nn_ceil_div(rows, job.grain), gather_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- moe_combine and moe_gather_backward: a token is the weighted sum of its rows ---- */

typedef struct sum_job {
  const void *rows;
  const float *weights; /* null for a plain sum */
  const int32_t *slot_row;
  const void *residual; /* null for none */
  void *out;
  int64_t tokens, k, dim, grain;
  int32_t dtype, stream;
} sum_job;

NN_INLINE vf sum_of_rows(const sum_job *job, int64_t token, int64_t column, int64_t n, int32_t weighed, int32_t dtype,
                         int32_t mode) {
  vf sum = vf_set1(0.0f);
  for (int64_t slot = token * job->k; slot < (token + 1) * job->k; slot++) {
    const int32_t row = job->slot_row[slot];
    if (row >= 0) {
      const vf x = nn_get(job->rows, row * job->dim + column, n, dtype, mode);
      if (weighed) {
        sum = vf_fma(vf_set1(job->weights[slot]), x, sum);
      } else {
        sum = vf_add(sum, x);
      }
    }
  }
  if (job->residual != NULL) {
    sum = vf_add(nn_get(job->residual, token * job->dim + column, n, dtype, mode), sum);
  }
  return sum;
}

NN_INLINE void sum_tokens(const sum_job *shared, int64_t task, int32_t weighed, int32_t dtype) {
  const sum_job job = *shared; /* a copy that no store can change, so that its fields stay in registers */
  const int64_t stop = nn_min((task + 1) * job.grain, job.tokens);
  for (int64_t t = task * job.grain; t < stop; t++) {
    const int64_t begin = t * job.dim;
    NN_EACH_VECTOR(
        begin, begin + job.dim, job.stream, nn_stream_head(job.out, begin, dtype),
        nn_put(job.out, i, lanes, sum_of_rows(&job, t, i - begin, lanes, weighed, dtype, MODE), dtype, MODE));
  }
  if (job.stream) {
    nn_stream_fence();
  }
}

NN_TASK_OF(sum_task, sum_job, job, i) {
  if (job->weights != NULL) {
    NN_SWITCH_DTYPE(job->dtype, sum_tokens(job, i, 1, DT));
  } else {
    NN_SWITCH_DTYPE(job->dtype, sum_tokens(job, i, 0, DT));
  }
}

static int32_t sum_run(nncuda_ctx *ctx, sum_job job) {
  const int32_t status =
      nn_check_range(ctx, "slot_row", job.slot_row, job.tokens * job.k, -1, (job.tokens * job.k) - 1, "");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  job.grain = rows_a_task(job.dim, job.dtype);
  job.stream = job.out != job.residual && nn_worth_streaming(job.tokens * job.dim, job.dtype);
  nn_parallel(ctx, nn_ceil_div(job.tokens, job.grain), sum_task, &job);
  return NNCUDA_SUCCESS;
}

#define SUM(a, ...)                                                                                                    \
  sum_run(ctx, (sum_job){.slot_row = (a)->slot_row,                                                                    \
                         .tokens = (a)->tokens,                                                                        \
                         .k = (a)->k,                                                                                  \
                         .dim = (a)->dim,                                                                              \
                         .dtype = (a)->dtype,                                                                          \
                         __VA_ARGS__})

int32_t NN_KERNEL(moe_gather_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_gather_backward_args *a = args;
  return SUM(a, .rows = a->dy, .out = a->dx);
}

int32_t NN_KERNEL(moe_combine)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_combine_args *a = args;
  return SUM(a, .rows = a->y, .weights = a->weights, .residual = a->residual, .out = a->out);
}

/* ---- moe_combine_backward ---- */

typedef struct combine_backward_job {
  const nn_moe_combine_backward_args *args;
  int64_t grain;
  int32_t stream;
} combine_backward_job;

/* slot_row and row_slot must be each other's inverse: then each row is read and written for one slot only. */
static int32_t check_inverse(nncuda_ctx *ctx, const int32_t *slot_row, const int32_t *row_slot, int64_t n) {
  int64_t rows = 0;
  for (int64_t slot = 0; slot < n; slot++) {
    const int32_t row = slot_row[slot];
    if (row >= 0 && row_slot[row] != slot) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "slot_row[%lld] is %d, but row_slot[%d] is %d; it must be %lld",
                     (long long)slot, row, row, row_slot[row], (long long)slot);
    }
    rows += (row >= 0) - (row_slot[slot] >= 0);
  }
  if (rows != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "row_slot has %lld more rows than slot_row; they must be inverse",
                   (long long)-rows);
  }
  return NNCUDA_SUCCESS;
}

NN_INLINE float dot(const void *a, int64_t at, const void *b, int64_t bt, int64_t n, int32_t dtype) {
  vf s[4];
  s[0] = s[1] = s[2] = s[3] = vf_set1(0.0f);
  int64_t i = 0;
  for (; i + 4 * VF <= n; i += 4 * VF) {
    for (int j = 0; j < 4; j++) {
      s[j] = vf_fma(vf_load_as(a, at + i + j * VF, dtype), vf_load_as(b, bt + i + j * VF, dtype), s[j]);
    }
  }
  for (; i + VF <= n; i += VF) {
    s[0] = vf_fma(vf_load_as(a, at + i, dtype), vf_load_as(b, bt + i, dtype), s[0]);
  }
  if (i < n) {
    s[1] = vf_fma(vf_load_part_as(a, at + i, n - i, dtype), vf_load_part_as(b, bt + i, n - i, dtype), s[1]);
  }
  return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

NN_INLINE void combine_backward_tokens(const combine_backward_job *job, int64_t begin, int64_t end, int32_t dtype) {
  const nn_moe_combine_backward_args a = *job->args;
  for (int64_t slot = begin * a.k; slot < end * a.k; slot++) {
    const int64_t row = a.slot_row[slot], token = slot / a.k * a.dim;
    if (row < 0) {
      a.dweights[slot] = 0.0f;
      continue;
    }
    a.dweights[slot] = dot(a.dout, token, a.y, row * a.dim, a.dim, dtype);
    const vf weight = vf_set1(a.weights[slot]);
    NN_EACH_VECTOR(row * a.dim, (row + 1) * a.dim, job->stream, nn_stream_head(a.dy, row * a.dim, dtype),
                   nn_put(a.dy, i, lanes, vf_mul(weight, nn_get(a.dout, token + i - row * a.dim, lanes, dtype, MODE)),
                          dtype, MODE));
  }
  for (int64_t row = begin * a.k; row < end * a.k; row++) { /* there are as many rows as slots */
    if (a.row_slot[row] < 0) {
      const int64_t bytes = a.dim * nn_dtype_bytes(dtype);
      memset((char *)a.dy + row * bytes, 0, (size_t)bytes);
    }
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

NN_TASK_OF(combine_backward_task, combine_backward_job, job, i) {
  const int64_t tokens = job->args->tokens;
  const int64_t end = nn_min((i + 1) * job->grain, tokens);
  NN_SWITCH_DTYPE(job->args->dtype, combine_backward_tokens(job, i * job->grain, end, DT));
}

int32_t NN_KERNEL(moe_combine_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_moe_combine_backward_args *a = args;
  const int64_t n = a->tokens * a->k;
  NN_TRY(nn_check_range(ctx, "slot_row", a->slot_row, n, -1, n - 1, ""));
  NN_TRY(nn_check_range(ctx, "row_slot", a->row_slot, n, -1, n - 1, ""));
  NN_TRY(check_inverse(ctx, a->slot_row, a->row_slot, n));
  const combine_backward_job job = {.args = a,
                                    .grain = rows_a_task(a->dim * a->k, a->dtype),
                                    .stream = a->dy != a->y && nn_worth_streaming(n * a->dim, a->dtype)};
  nn_parallel(ctx, nn_ceil_div(a->tokens, job.grain), combine_backward_task, (void *)&job);
  return NNCUDA_SUCCESS;
}

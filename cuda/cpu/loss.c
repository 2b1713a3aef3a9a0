/*
 * Cross-entropy and the load-balancing loss. Rows of logits are long and read from memory, so the forward pass goes
 * through them once: a block that fits the first-level cache is read for its maximum, then for its sum of exponentials,
 * and the sum so far is rescaled when the maximum has grown. (Milakov and Gimelshein 2018, "Online normalizer
 * calculation for softmax", algorithm 3)
 */
#include "abi/generated/loss.h"

#include "reduce.h"
#include "span.h"

#include <string.h>

enum {
  BLOCK = 2048,    /* logits whose maximum and sum are taken together */
  TASK = 1 << 15,  /* logits a task, at least; a longer row is one task in the forward pass */
  AUX_TOKENS = 512 /* tokens whose probabilities one task adds up */
};

/* Targets are read before anything is written. */
static int32_t check_targets(nncuda_ctx *ctx, const int32_t *targets, int64_t rows, int64_t vocab, int32_t ignore) {
  for (int64_t r = 0; r < rows; r++) {
    if (targets[r] != ignore && (targets[r] < 0 || targets[r] >= vocab)) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "targets[%lld] is %d; it must be 0 to %lld, or ignore_index (%d)",
                     (long long)r, targets[r], (long long)vocab - 1, ignore);
    }
  }
  return NNCUDA_SUCCESS;
}

/* log(sum(exp(x))): NaN when an element is NaN or +inf, -inf when all are. */
NN_INLINE double row_lse(const void *x, int64_t begin, int64_t end, int32_t dtype) {
  float m = -INFINITY;
  double sum = 0.0;
  for (int64_t i = begin; i < end; i += BLOCK) {
    const int64_t stop = nn_min(i + BLOCK, end);
    const float most = nn_maximum(x, i, stop, dtype);
    if (most > m) {
      sum = sum == 0.0 ? 0.0 : sum * exp((double)m - (double)most);
      m = most;
    }
    sum += (double)nn_exp_sum(x, i, stop, m == -INFINITY ? 0.0f : m, 0, dtype);
  }
  return log(sum) + (m == -INFINITY ? 0.0 : (double)m);
}

typedef struct forward_job {
  const nn_cross_entropy_forward_args *args;
  int64_t rows; /* of a task */
  double *losses;
} forward_job;

NN_INLINE void forward_rows(const forward_job *job, int64_t begin, int64_t end, int32_t dtype) {
  const nn_cross_entropy_forward_args *a = job->args;
  for (int64_t r = begin; r < end; r++) {
    const double lse = row_lse(a->logits, r * a->vocab, (r + 1) * a->vocab, dtype);
    a->lse[r] = (float)lse;
    const int32_t target = a->targets[r];
    job->losses[r] =
        target == a->ignore_index ? 0.0 : lse - (double)nn_load_as(a->logits, r * a->vocab + target, dtype);
    if (a->losses != NULL) {
      a->losses[r] = (float)job->losses[r];
    }
  }
}

NN_TASK_OF(forward_task, forward_job, job, i) {
  const int64_t begin = i * job->rows, end = nn_min(begin + job->rows, job->args->rows);
  NN_SWITCH_DTYPE(job->args->dtype, forward_rows(job, begin, end, DT));
}

NN_PLAIN static forward_job forward_lay_out(const nn_cross_entropy_forward_args *a, nn_workspace *w) {
  return (forward_job){.args = a,
                       .rows = a->vocab < TASK ? TASK / a->vocab : 1,
                       .losses = nn_workspace_piece(w, (size_t)a->rows * sizeof(double))};
}

NN_WORKSPACE(cross_entropy_forward) { forward_lay_out(args, w); }

int32_t NN_KERNEL(cross_entropy_forward)(nncuda_ctx *ctx, const void *args) {
  const nn_cross_entropy_forward_args *a = args;
  NN_TRY(check_targets(ctx, a->targets, a->rows, a->vocab, a->ignore_index));
  forward_job job = forward_lay_out(a, nn_workspace_of(ctx));
  nn_parallel(ctx, nn_ceil_div(a->rows, job.rows), forward_task, &job);
  double sum = 0.0;
  int32_t count = 0;
  for (int64_t r = 0; r < a->rows; r++) {
    sum += job.losses[r];
    count += a->targets[r] != a->ignore_index;
  }
  *a->loss_sum = (float)sum;
  *a->count = count;
  return NNCUDA_SUCCESS;
}

typedef struct backward_job {
  const nn_cross_entropy_backward_args *args;
  float scale;
  int64_t rows;   /* of a task */
  int64_t pieces; /* a row is cut into, when a task is less than a row */
  int32_t stream;
} backward_job;

/* Columns begin .. end-1 of row r. dlogits may be the logits themselves. */
NN_INLINE void backward_piece(const backward_job *job, int64_t r, int64_t begin, int64_t end, int32_t dtype) {
  const nn_cross_entropy_backward_args *a = job->args;
  const int64_t row = r * a->vocab, target = a->targets[r];
  const vf lse = vf_set1(a->lse[r]), scale = vf_set1(job->scale);
  if (target == a->ignore_index) {
    const size_t element = (size_t)nn_dtype_bytes(dtype);
    memset((char *)a->dlogits + (size_t)(row + begin) * element, 0, (size_t)(end - begin) * element);
    return;
  }
  const int has_target = target >= begin && target < end;
  const float logit = has_target ? nn_load_as(a->logits, row + target, dtype) : 0.0f;
  NN_EACH_VECTOR(row + begin, row + end, job->stream, nn_stream_head(a->dlogits, row + begin, dtype),
                 nn_put(a->dlogits, i, lanes,
                        vf_mul(scale, vf_exp(vf_sub(nn_get(a->logits, i, lanes, dtype, MODE), lse))), dtype, MODE));
  if (has_target) {
    float lane[VF];
    vf_store(lane, vf_mul(vf_sub(vf_exp(vf_sub(vf_set1(logit), lse)), vf_set1(1.0f)), scale));
    nn_store_as(a->dlogits, row + target, lane[0], dtype);
  }
}

NN_INLINE void backward_rows(const backward_job *job, int64_t i, int32_t dtype) {
  const nn_cross_entropy_backward_args *a = job->args;
  if (job->pieces > 1) {
    const int64_t begin = i % job->pieces * TASK, end = nn_min(begin + TASK, a->vocab);
    backward_piece(job, i / job->pieces, begin, end, dtype);
  } else {
    const int64_t end = nn_min((i + 1) * job->rows, a->rows);
    for (int64_t r = i * job->rows; r < end; r++) {
      backward_piece(job, r, 0, a->vocab, dtype);
    }
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

NN_TASK(backward_task, backward_job, NN_SWITCH_DTYPE(job->args->dtype, backward_rows(job, task, DT)))

int32_t NN_KERNEL(cross_entropy_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_cross_entropy_backward_args *a = args;
  NN_TRY(check_targets(ctx, a->targets, a->rows, a->vocab, a->ignore_index));
  backward_job job = {.args = a,
                      .scale = *a->grad_scale,
                      .rows = a->vocab < TASK ? TASK / a->vocab : 1,
                      .pieces = nn_ceil_div(a->vocab, TASK),
                      .stream = a->dlogits != a->logits && nn_worth_streaming(a->rows * a->vocab, a->dtype)};
  nn_parallel(ctx, job.pieces > 1 ? a->rows * job.pieces : nn_ceil_div(a->rows, job.rows), backward_task, &job);
  return NNCUDA_SUCCESS;
}

typedef struct aux_job {
  const nn_aux_loss_forward_args *args;
  double *sums; /* [tasks, experts] */
} aux_job;

NN_TASK_OF(aux_forward_task, aux_job, job, i) {
  const nn_aux_loss_forward_args *a = job->args;
  double *sums = job->sums + i * a->experts;
  memset(sums, 0, (size_t)a->experts * sizeof *sums);
  const int64_t end = nn_min((i + 1) * AUX_TOKENS, a->tokens);
  for (int64_t t = i * AUX_TOKENS; t < end; t++) {
    const float *probs = a->probs + t * a->experts;
    for (int64_t e = 0; e < a->experts; e++) {
      sums[e] += (double)probs[e];
    }
  }
}

NN_PLAIN static int64_t aux_tasks(int64_t tokens) { return nn_ceil_div(tokens, AUX_TOKENS); }

NN_PLAIN static aux_job aux_lay_out(const nn_aux_loss_forward_args *a, nn_workspace *w) {
  return (aux_job){.args = a,
                   .sums = nn_workspace_piece(w, (size_t)(aux_tasks(a->tokens) * a->experts) * sizeof(double))};
}

NN_WORKSPACE(aux_loss_forward) { aux_lay_out(args, w); }

int32_t NN_KERNEL(aux_loss_forward)(nncuda_ctx *ctx, const void *args) {
  const nn_aux_loss_forward_args *a = args;
  const int64_t tasks = aux_tasks(a->tokens);
  aux_job job = aux_lay_out(a, nn_workspace_of(ctx));
  nn_parallel(ctx, tasks, aux_forward_task, &job);
  double loss = 0.0;
  for (int64_t e = 0; e < a->experts; e++) {
    double sum = 0.0;
    for (int64_t i = 0; i < tasks; i++) {
      sum += job.sums[i * a->experts + e];
    }
    loss += (double)a->counts[e] * sum;
  }
  *a->loss = (float)((double)*a->loss + (double)a->alpha * loss / ((double)a->tokens * (double)a->tokens));
  return NNCUDA_SUCCESS;
}

typedef struct aux_backward_job {
  const nn_aux_loss_backward_args *args;
  const float *row; /* the same for every token */
} aux_backward_job;

NN_TASK_OF(aux_backward_task, aux_backward_job, job, i) {
  const nn_aux_loss_backward_args *a = job->args;
  const int64_t end = nn_min((i + 1) * AUX_TOKENS, a->tokens);
  for (int64_t t = i * AUX_TOKENS; t < end; t++) {
    memcpy(a->dprobs + t * a->experts, job->row, (size_t)a->experts * sizeof(float));
  }
}

NN_PLAIN static float *aux_backward_lay_out(const nn_aux_loss_backward_args *a, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)a->experts * sizeof(float));
}

NN_WORKSPACE(aux_loss_backward) { aux_backward_lay_out(args, w); }

int32_t NN_KERNEL(aux_loss_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_aux_loss_backward_args *a = args;
  float *row = aux_backward_lay_out(a, nn_workspace_of(ctx));
  const double factor = (double)*a->grad_scale * (double)a->alpha / ((double)a->tokens * (double)a->tokens);
  for (int64_t e = 0; e < a->experts; e++) {
    row[e] = (float)(factor * (double)a->counts[e]);
  }
  aux_backward_job job = {.args = a, .row = row};
  nn_parallel(ctx, aux_tasks(a->tokens), aux_backward_task, &job);
  return NNCUDA_SUCCESS;
}

/* A number a micro-batch or a few rows of logits: too few for more than one worker. */
int32_t NN_KERNEL(weighted_mean)(nncuda_ctx *ctx, const void *args) {
  (void)ctx;
  const nn_weighted_mean_args *a = args;
  double sum = 0.0;
  for (int64_t i = 0; i < a->n; i++) {
    sum += (double)a->x[i] * (a->weights == NULL ? 1.0 : (double)a->weights[i]);
  }
  *a->y = (float)(sum / (double)a->divisor);
  return NNCUDA_SUCCESS;
}

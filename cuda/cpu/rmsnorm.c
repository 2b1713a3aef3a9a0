#include "abi/generated/rmsnorm.h"

#include "rmsnorm_row.h"

/* ---- forward: of x, or of x + residual, which is kept in `sum` ---- */

typedef struct forward_job {
  const void *x, *residual, *weight;
  void *sum, *y;
  float *rstd;
  int64_t rows, cols;
  float eps;
  int32_t dtype;
  int64_t block;
  int32_t stream;
} forward_job;

NN_INLINE void forward_piece(const forward_job *shared, int64_t piece, int32_t dtype) {
  const forward_job job = *shared;
  int64_t count;
  const int64_t row = nn_first_row(piece, job.block, job.rows, &count), cols = job.cols;
  for (int64_t r = row; r < row + count; r++) {
    const int64_t at = r * cols;
    const void *x = job.x;
    if (job.stream) {
      nn_fetch(x, at + NN_FETCH_ROWS * cols, cols, dtype);
    }
    if (job.residual != NULL) {
      NN_EACH_VECTOR(at, at + cols, 0, 0,
                     nn_put(job.sum, i, lanes,
                            vf_add(nn_get(job.x, i, lanes, dtype, MODE), nn_get(job.residual, i, lanes, dtype, MODE)),
                            dtype, MODE));
      x = job.sum; /* as it was rounded, for that is what the backward call will see */
    }
    const float rstd = nn_rstd(x, at, cols, job.eps, dtype);
    if (job.rstd != NULL) {
      job.rstd[r] = rstd;
    }
    const vf factor = vf_set1(rstd);
    NN_EACH_VECTOR(
        at, at + cols, job.stream, nn_stream_head(job.y, at, dtype),
        nn_put(job.y, i, lanes, nn_norm_vector(x, job.weight, factor, at, i - at, lanes, dtype, MODE), dtype, MODE));
  }
  if (job.stream) {
    nn_stream_fence();
  }
}

NN_TASK(forward_task, forward_job, NN_SWITCH_DTYPE(job->dtype, forward_piece(job, task, DT)))

static int32_t forward_run(nncuda_ctx *ctx, forward_job job) {
  job.block = nn_rows_per_task(job.cols);
  job.stream = job.y != job.x && nn_worth_streaming_from(NN_STREAM_BYTES_NORM, job.rows * job.cols, job.dtype);
  nn_parallel(ctx, nn_ceil_div(job.rows, job.block), forward_task, &job);
  return NNCUDA_SUCCESS;
}

#define FORWARD(a, ...)                                                                                                \
  forward_run(ctx, (forward_job){.x = (a)->x,                                                                          \
                                 .weight = (a)->weight,                                                                \
                                 .y = (a)->y,                                                                          \
                                 .rstd = (a)->rstd,                                                                    \
                                 .rows = (a)->rows,                                                                    \
                                 .cols = (a)->cols,                                                                    \
                                 .eps = (a)->eps,                                                                      \
                                 __VA_ARGS__})

int32_t NN_KERNEL(rmsnorm)(nncuda_ctx *ctx, const void *args) {
  const nn_rmsnorm_args *a = args;
  return FORWARD(a, .dtype = a->dtype);
}

int32_t NN_KERNEL(rmsnorm_residual)(nncuda_ctx *ctx, const void *args) {
  const nn_rmsnorm_residual_args *a = args;
  return FORWARD(a, .dtype = a->dtype, .residual = a->residual, .sum = a->sum);
}

/* ---- backward ---- */

/* The sum over rows that is dweight is made in at most this many pieces, each of whole tasks, added in their order. */
enum { MOST_PIECES = 64 };

/* Columns a task of that addition. */
enum { COLUMNS = 512 };

typedef struct backward_job {
  nn_rmsnorm_backward_args a;
  int64_t block, pieces;
  float *partial; /* [pieces, cols] */
  int32_t stream;
} backward_job;

NN_INLINE vf backward_g(const nn_rmsnorm_backward_args *a, int64_t at, int64_t i, int64_t lanes, int32_t dtype,
                        int32_t mode) {
  return vf_mul(nn_get(a->dy, at + i, lanes, dtype, mode), nn_get(a->weight, i, lanes, dtype, mode));
}

NN_INLINE void backward_vector(const nn_rmsnorm_backward_args *a, float *partial, vf rstd, vf mean, int64_t at,
                               int64_t i, int64_t lanes, int32_t dtype, int32_t mode) {
  /* dx may be dy or dresidual, so all is read before it is written; partial sums are never streamed. */
  const int32_t near = mode == NN_PART ? NN_PART : NN_WHOLE;
  const vf dy = nn_get(a->dy, at + i, lanes, dtype, mode),
           xhat = vf_mul(nn_get(a->x, at + i, lanes, dtype, mode), rstd);
  const vf g = vf_mul(dy, nn_get(a->weight, i, lanes, dtype, mode));
  vf dx = vf_mul(rstd, vf_sub(g, vf_mul(xhat, mean)));
  if (a->dresidual != NULL) {
    dx = vf_add(dx, nn_get(a->dresidual, at + i, lanes, dtype, mode));
  }
  nn_put(partial, i, lanes, vf_fma(dy, xhat, nn_get(partial, i, lanes, NNCUDA_F32, mode)), NNCUDA_F32, near);
  nn_put(a->dx, at + i, lanes, dx, dtype, mode);
}

NN_INLINE void backward_piece(const backward_job *job, int64_t piece, int32_t dtype) {
  const nn_rmsnorm_backward_args a = job->a;
  float *partial = job->partial + piece * a.cols;
  int64_t count;
  const int64_t row = nn_first_row(piece, job->block, a.rows, &count);
  memset(partial, 0, (size_t)a.cols * sizeof *partial);
  for (int64_t r = row; r < row + count; r++) {
    const int64_t at = r * a.cols;
    if (job->stream) {
      nn_fetch(a.x, at + NN_FETCH_ROWS * a.cols, a.cols, dtype);
      nn_fetch(a.dy, at + NN_FETCH_ROWS * a.cols, a.cols, dtype);
    }
    const vf rstd = vf_set1(a.rstd[r]);
    vf part[NN_GROUP];
    for (int g = 0; g < NN_GROUP; g++) {
      part[g] = vf_set1(0.0f);
    }
    int64_t k = 0;
    for (; k + NN_GROUP * VF <= a.cols; k += NN_GROUP * VF) {
      for (int g = 0; g < NN_GROUP; g++) {
        const vf xhat = vf_mul(vf_load_as(a.x, at + k + g * VF, dtype), rstd);
        part[g] = vf_fma(backward_g(&a, at, k + g * VF, VF, dtype, NN_WHOLE), xhat, part[g]);
      }
    }
    for (int g = 0; k < a.cols; k += VF, g++) {
      const int64_t left = nn_min(a.cols - k, VF);
      const vf xhat = vf_mul(vf_load_part_as(a.x, at + k, left, dtype), rstd);
      part[g] = vf_fma(backward_g(&a, at, k, left, dtype, NN_PART), xhat, part[g]);
    }
    const vf mean = vf_set1(nn_group_sum(part) / (float)a.cols);
    NN_EACH_VECTOR(0, a.cols, job->stream, nn_stream_head(a.dx, at, dtype),
                   backward_vector(&a, partial, rstd, mean, at, i, lanes, dtype, MODE));
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

NN_TASK(backward_task, backward_job, NN_SWITCH_DTYPE(job->a.dtype, backward_piece(job, task, DT)))

NN_TASK_OF(dweight_task, backward_job, job, task) {
  const int64_t cols = job->a.cols, begin = task * COLUMNS, end = nn_min(begin + COLUMNS, cols);
  double sum[COLUMNS];
  for (int64_t i = begin; i < end; i++) {
    sum[i - begin] = job->a.dweight[i];
  }
  for (int64_t piece = 0; piece < job->pieces; piece++) {
    const float *partial = job->partial + piece * cols;
    for (int64_t i = begin; i < end; i++) {
      sum[i - begin] += partial[i];
    }
  }
  for (int64_t i = begin; i < end; i++) {
    job->a.dweight[i] = (float)sum[i - begin];
  }
}

NN_PLAIN static backward_job backward_lay_out(const nn_rmsnorm_backward_args *a, nn_workspace *w) {
  const int64_t each = nn_rows_per_task(a->cols), least = nn_ceil_div(a->rows, MOST_PIECES);
  backward_job job = {.a = *a, .block = nn_max(each, least)};
  job.pieces = nn_ceil_div(a->rows, job.block);
  job.partial = nn_workspace_piece(w, (size_t)job.pieces * (size_t)a->cols * sizeof *job.partial);
  return job;
}

NN_WORKSPACE(rmsnorm_backward) { backward_lay_out(args, w); }

int32_t NN_KERNEL(rmsnorm_backward)(nncuda_ctx *ctx, const void *args) {
  backward_job job = backward_lay_out(args, nn_workspace_of(ctx));
  const int64_t rows = job.a.rows, cols = job.a.cols;
  job.stream = job.a.dx != job.a.dy && job.a.dx != job.a.dresidual &&
               nn_worth_streaming_from(NN_STREAM_BYTES_NORM, rows * cols, job.a.dtype);
  nn_parallel(ctx, job.pieces, backward_task, &job);
  nn_parallel(ctx, nn_ceil_div(cols, COLUMNS), dweight_task, &job);
  return NNCUDA_SUCCESS;
}

/* Gates: kernels of rows of `gate` and `up`, ld apart. */
#ifndef NN_CPU_GATE_H
#define NN_CPU_GATE_H

#include "checks.h"
#include "span.h"

typedef struct gate_job {
  const void *gate, *up, *dy; /* dy is null in the forward direction */
  void *y;                    /* dense, or dgate with rows ld apart */
  void *dup;
  int64_t rows, dim, ld, ld_y;
  int64_t row_block, column_blocks; /* a task has so many rows, and of each one of so many parts */
  int32_t dtype;
  int32_t stream;
  float alpha, limit; /* of SWIGLU_CLIPPED */
} gate_job;

enum { SWIGLU, RELU2, GEGLU, SWIGLU_CLIPPED, SWIGLU_BACKWARD, RELU2_BACKWARD };

/* The derivative of x * s is s + x * s * (1 - s). */
NN_INLINE vf silu_slope(vf x, vf s) { return vf_mul(s, vf_fma(x, vf_sub(vf_set1(1.0f), s), vf_set1(1.0f))); }

/* x/2 * (1 + tanh(u)) = x * sigmoid(2u), which cancels nothing. */
NN_INLINE vf gelu_tanh(vf x) {
  const vf root = vf_set1(0x1.988454p+0f); /* 2 sqrt(2/pi) */
  const vf u = vf_mul(vf_mul(root, x), vf_fma(vf_mul(x, x), vf_set1(0.044715f), vf_set1(1.0f)));
  return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_set1(0.0f), u))));
}

/* Bounds come first: of NaN they are NaN, since the second operand wins. */
NN_INLINE vf swiglu_clipped(vf gate, vf up, float alpha, float limit) {
  const vf g = vf_min(vf_set1(limit), gate), u = vf_max(vf_set1(-limit), vf_min(vf_set1(limit), up));
  const vf e = vf_exp(vf_mul(vf_set1(-alpha), g));
  return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), vf_add(u, vf_set1(1.0f)));
}

NN_INLINE void gate_vector(const gate_job *job, int64_t row, int64_t i, int64_t n, int32_t dtype, int32_t mode,
                           int32_t form) {
  const int64_t at = row * job->ld + i;
  const vf gate = nn_get(job->gate, at, n, dtype, mode), up = nn_get(job->up, at, n, dtype, mode);
  if (form == SWIGLU_BACKWARD) {
    const vf dy = nn_get(job->dy, row * job->dim + i, n, dtype, mode), s = vf_sigmoid(gate);
    nn_put(job->y, at, n, vf_mul(vf_mul(dy, up), silu_slope(gate, s)), dtype, mode);
    nn_put(job->dup, at, n, vf_mul(dy, vf_mul(gate, s)), dtype, mode);
  } else if (form == RELU2_BACKWARD) {
    const vf dy = nn_get(job->dy, row * job->dim + i, n, dtype, mode), positive = vf_max(vf_set1(0.0f), gate);
    nn_put(job->y, at, n, vf_mul(vf_mul(dy, up), vf_add(positive, positive)), dtype, mode);
    nn_put(job->dup, at, n, vf_mul(dy, vf_mul(positive, positive)), dtype, mode);
  } else if (form == SWIGLU) {
    nn_put(job->y, row * job->dim + i, n, vf_mul(vf_silu(gate), up), dtype, mode);
  } else if (form == GEGLU) {
    nn_put(job->y, row * job->dim + i, n, vf_mul(gelu_tanh(gate), up), dtype, mode);
  } else if (form == SWIGLU_CLIPPED) {
    nn_put(job->y, row * job->dim + i, n, swiglu_clipped(gate, up, job->alpha, job->limit), dtype, mode);
  } else {
    const vf positive = vf_max(vf_set1(0.0f), gate); /* of NaN it is NaN: the second operand wins */
    nn_put(job->y, row * job->dim + i, n, vf_mul(vf_mul(positive, positive), up), dtype, mode);
  }
}

NN_INLINE void gate_piece(const gate_job *shared, int64_t piece, int32_t dtype, int32_t form) {
  const gate_job job = *shared;
  const int64_t row0 = piece / job.column_blocks * job.row_block, column0 = piece % job.column_blocks * NN_CHUNK;
  const int64_t row1 = nn_min(row0 + job.row_block, job.rows);
  const int64_t column1 = job.column_blocks > 1 ? nn_min(column0 + NN_CHUNK, job.dim) : job.dim;
  for (int64_t row = row0; row < row1; row++) {
    const int64_t head = nn_stream_head(job.y, row * job.ld_y + column0, dtype);
    const int32_t backward = form == SWIGLU_BACKWARD || form == RELU2_BACKWARD;
    const int32_t stream =
        job.stream && (!backward || nn_stream_head(job.dup, row * job.ld_y + column0, dtype) == head);
    NN_EACH_VECTOR(column0, column1, stream, head, gate_vector(&job, row, i, lanes, dtype, MODE, form));
  }
  if (job.stream) {
    nn_stream_fence();
  }
}

/* Of the rows only those that are used, which `used` tells unless it is null. */
static int32_t gate_run(nncuda_ctx *ctx, gate_job job, const int32_t *used, nn_task task) {
  if (used != NULL) {
    const int32_t status = nn_check_range(ctx, "used", used, 1, 0, job.rows, ", the number of rows");
    if (status != NNCUDA_SUCCESS || used[0] == 0) {
      return status;
    }
    job.rows = used[0];
  }
  job.stream = job.y != job.gate && job.dup != job.up && nn_worth_streaming(job.rows * job.dim, job.dtype);
  if (job.ld == job.dim) { /* dense: one long row, cut anywhere */
    job.ld = job.ld_y = job.dim *= job.rows;
    job.rows = 1;
  }
  job.row_block = job.dim < NN_CHUNK ? NN_CHUNK / job.dim : 1;
  job.column_blocks = job.row_block > 1 ? 1 : nn_ceil_div(job.dim, NN_CHUNK);
  nn_parallel(ctx, nn_ceil_div(job.rows, job.row_block) * job.column_blocks, task, &job);
  return NNCUDA_SUCCESS;
}

/* Of the backward direction, which writes gradients where rows are ld apart. */
#define GATE_BACKWARD_KERNEL(op, used)                                                                                 \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) {                                                          \
    const nn_##op##_args *a = args;                                                                                    \
    const gate_job job = {.gate = a->gate,                                                                             \
                          .up = a->up,                                                                                 \
                          .dy = a->dy,                                                                                 \
                          .y = a->dgate,                                                                               \
                          .dup = a->dup,                                                                               \
                          .rows = a->rows,                                                                             \
                          .dim = a->dim,                                                                               \
                          .ld = a->ld,                                                                                 \
                          .ld_y = a->ld,                                                                               \
                          .dtype = a->dtype};                                                                          \
    return gate_run(ctx, job, used, op##_task);                                                                        \
  }

/* Whatever else a kernel has in its job stands behind `used`. */
#define GATE_KERNEL(op, used, ...)                                                                                     \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) {                                                          \
    const nn_##op##_args *a = args;                                                                                    \
    const gate_job job = {.gate = a->gate,                                                                             \
                          .up = a->up,                                                                                 \
                          .y = a->y,                                                                                   \
                          .rows = a->rows,                                                                             \
                          .dim = a->dim,                                                                               \
                          .ld = a->ld,                                                                                 \
                          .ld_y = a->dim,                                                                              \
                          .dtype = a->dtype,                                                                           \
                          __VA_ARGS__};                                                                                \
    return gate_run(ctx, job, used, op##_task);                                                                        \
  }

#endif

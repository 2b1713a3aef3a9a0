/* Kernels of one or two inputs and one output, all of n elements. */
#ifndef NN_CPU_FLAT_H
#define NN_CPU_FLAT_H

#include "span.h"

typedef struct flat_job {
  const void *a, *b; /* b is null for kernels of one input */
  void *y;
  int64_t n;
  float alpha;
  int32_t dtype;
  int32_t stream;
} flat_job;

typedef vf (*flat_formula)(vf a, vf b, vf alpha);

NN_INLINE void flat_vector(const flat_job *job, int64_t i, int64_t n, int32_t dtype, int32_t mode, int32_t inputs,
                           flat_formula formula) {
  const vf a = nn_get(job->a, i, n, dtype, mode);
  const vf b = inputs == 2 ? nn_get(job->b, i, n, dtype, mode) : a;
  nn_put(job->y, i, n, formula(a, b, vf_set1(job->alpha)), dtype, mode);
}

NN_INLINE void flat_piece(const flat_job *shared, int64_t piece, int32_t dtype, int32_t inputs, flat_formula formula) {
  const flat_job job = *shared; /* a copy that no store can change, so that its fields stay in registers */
  const int64_t begin = piece * NN_CHUNK, end = nn_min(begin + NN_CHUNK, job.n);
  NN_EACH_VECTOR(begin, end, job.stream, nn_stream_head(job.y, begin, dtype),
                 flat_vector(&job, i, lanes, dtype, MODE, inputs, formula));
  if (job.stream) {
    nn_stream_fence();
  }
}

static int32_t flat_run(nncuda_ctx *ctx, flat_job job, nn_task task) {
  job.stream = job.y != job.a && job.y != job.b && nn_worth_streaming(job.n, job.dtype);
  nn_parallel(ctx, nn_ceil_div(job.n, NN_CHUNK), task, &job);
  return NNCUDA_SUCCESS;
}

/* The task of a kernel, by its formula of a, b and alpha. */
#define FLAT_TASK(op, inputs, formula)                                                                                 \
  NN_INLINE vf op##_formula(vf a, vf b, vf alpha) {                                                                    \
    (void)a, (void)b, (void)alpha;                                                                                     \
    return formula;                                                                                                    \
  }                                                                                                                    \
  NN_TASK(op##_task, flat_job, NN_SWITCH_DTYPE(job->dtype, flat_piece(job, task, DT, inputs, op##_formula)))

#endif

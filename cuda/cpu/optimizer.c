#include "abi/generated/optimizer.h"
#include "abi/optimizer.h"

#include "abi/elementwise.h"
#include "optimizer_adamw.h"

/* ---- adamw_step ---- */

typedef struct adamw_job {
  nn_adamw_step_args a;
  adamw_factors factors;
} adamw_job;

NN_INLINE void adamw_vector(const adamw_job *job, vf decay, int64_t i, int64_t lanes, int32_t dtype, int32_t mode) {
  const nn_adamw_step_args *a = &job->a;
  const adamw_factors *f = &job->factors;
  if (mode != NN_PART) {
    const float *const streams[] = {a->grad, a->m, a->v, a->param};
    for (int k = 0; k < 4; k++) {
      nn_fetch(streams[k], i + NN_FETCH_BYTES / (int64_t)sizeof(float), VF, NNCUDA_F32);
    }
  }
  const vf grad = vf_mul(nn_get(a->grad, i, lanes, NNCUDA_F32, mode), vf_set1(f->grad_scale));
  const vf m = adamw_first(f, nn_get(a->m, i, lanes, NNCUDA_F32, mode), grad);
  const vf v = adamw_second(f, nn_get(a->v, i, lanes, NNCUDA_F32, mode), grad);
  const vf root = vf_add(vf_sqrt(vf_mul(v, vf_set1(f->v_scale))), vf_set1(f->eps));
  const vf param = adamw_param(f, nn_get(a->param, i, lanes, NNCUDA_F32, mode), decay, m, root);
  nn_put(a->m, i, lanes, m, NNCUDA_F32, mode);
  nn_put(a->v, i, lanes, v, NNCUDA_F32, mode);
  nn_put(a->param, i, lanes, param, NNCUDA_F32, mode);
  if (a->param_copy != NULL) {
    nn_put(a->param_copy, i, lanes, param, dtype, mode);
  }
}

NN_INLINE void adamw_piece(const adamw_job *shared, int64_t piece, int32_t dtype) {
  const adamw_job job = *shared;
  const int64_t begin = piece * NN_CHUNK, end = nn_min(begin + NN_CHUNK, job.a.n);
  const int64_t decayed = job.a.n_decay < begin ? begin : nn_min(job.a.n_decay, end);
  const vf decay = vf_set1(job.factors.decay), all = vf_set1(1.0f);
  NN_EACH_VECTOR(begin, decayed, 0, 0, adamw_vector(&job, decay, i, lanes, dtype, MODE));
  NN_EACH_VECTOR(decayed, end, 0, 0, adamw_vector(&job, all, i, lanes, dtype, MODE));
}

NN_TASK(adamw_task, adamw_job, NN_SWITCH_DTYPE(job->a.dtype, adamw_piece(job, task, DT)))

int32_t NN_KERNEL(adamw_step)(nncuda_ctx *ctx, const void *args) {
  adamw_job job = {.a = *(const nn_adamw_step_args *)args};
  const nn_adamw_step_args *a = &job.a;
  int32_t status;
  if (!ADAMW_FACTORS(ctx, a, &job.factors, &status)) {
    return status;
  }
  nn_parallel(ctx, nn_ceil_div(a->n, NN_CHUNK), adamw_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- gradients ---- */

int32_t NN_KERNEL(zero_grad)(nncuda_ctx *ctx, const void *args) {
  const nn_zero_grad_args *a = args;
  return NN_KERNEL(fill)(ctx, &(nn_fill_args){.y = a->grad, .n = a->n, .value = 0.0f, .dtype = a->dtype});
}

typedef struct norm_job {
  const nn_grad_norm_args *a;
  double *squares;
} norm_job;

/* In f64, since the square of an f32 may overflow or vanish where the norm does not. */
NN_INLINE double sum_of_squares(const void *x, int64_t begin, int64_t end, int32_t dtype) {
  vd low = vd_set1(0.0), high = vd_set1(0.0), low2 = low, high2 = high;
  int64_t i = begin;
  for (; i + 2 * VF <= end; i += 2 * VF) {
    nn_fetch(x, i + NN_FETCH_BYTES / nn_dtype_bytes(dtype), 2 * VF, dtype);
    const vf a = vf_load_as(x, i, dtype), b = vf_load_as(x, i + VF, dtype);
    low = vd_fma(vd_low(a), vd_low(a), low);
    high = vd_fma(vd_high(a), vd_high(a), high);
    low2 = vd_fma(vd_low(b), vd_low(b), low2);
    high2 = vd_fma(vd_high(b), vd_high(b), high2);
  }
  for (; i < end; i += VF) {
    const vf a = vf_load_part_as(x, i, nn_min(end - i, VF), dtype);
    low = vd_fma(vd_low(a), vd_low(a), low);
    high = vd_fma(vd_high(a), vd_high(a), high);
  }
  return vd_sum(vd_add(vd_add(low, high), vd_add(low2, high2)));
}

NN_TASK_OF(norm_task, norm_job, job, piece) {
  const nn_grad_norm_args *a = job->a;
  const int64_t chunk = a->first + piece, begin = chunk * NN_GRAD_CHUNK_CPU;
  const int64_t end = nn_min(begin + NN_GRAD_CHUNK_CPU, a->n);
  NN_SWITCH_DTYPE(a->dtype, job->squares[chunk] = sum_of_squares(a->grad, begin, end, DT));
}

NN_PLAIN static int64_t norm_chunks(int64_t n) { return nn_ceil_div(n, NN_GRAD_CHUNK_CPU); }

NN_PLAIN static norm_job norm_lay_out(const nn_grad_norm_args *a, nn_workspace *w) {
  double *given = a->squares;
  return (norm_job){a, given != NULL ? given : nn_workspace_piece(w, (size_t)norm_chunks(a->n) * sizeof(double))};
}

NN_WORKSPACE(grad_norm) { norm_lay_out(args, w); }

int32_t NN_KERNEL(grad_norm)(nncuda_ctx *ctx, const void *args) {
  const nn_grad_norm_args *a = args;
  norm_job job = norm_lay_out(a, nn_workspace_of(ctx));
  const int64_t chunks = norm_chunks(a->n);
  nn_parallel(ctx, nn_min(a->last, chunks) - a->first, norm_task, &job);
  if (a->norm != NULL) {
    double sum = 0.0;
    for (int64_t i = 0; i < chunks; i++) {
      sum += job.squares[i];
    }
    a->norm[0] = (float)sqrt(sum);
  }
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(grad_clip)(nncuda_ctx *ctx, const void *args) {
  const nn_grad_clip_args *a = args;
  const double s = a->loss_scale == NULL ? 1.0 : (double)a->loss_scale[0];
  const double share = (double)a->max_norm / ((double)a->norm[0] / s + 1e-6);
  /* A norm of NaN gives a factor of NaN; without a limit nothing is clipped, whatever the norm. */
  const double factor = share >= 1.0 || isinf(a->max_norm) ? 1.0 : share;
  a->scale[0] = (float)(factor / s);
  if (a->grad == NULL) {
    return NNCUDA_SUCCESS;
  }
  const nn_scale_args scale = {.x = a->grad, .y = a->grad, .n = a->n, .alpha = a->scale[0], .dtype = a->dtype};
  return NN_KERNEL(scale)(ctx, &scale);
}

/* ---- schedule and loss scale: one number each ---- */

int32_t NN_KERNEL(lr_schedule)(nncuda_ctx *ctx, const void *args) {
  const nn_lr_schedule_args *a = args;
  if (a->skip != NULL && a->skip[0] != 0) {
    return NNCUDA_SUCCESS;
  }
  if (a->step[0] < 0 || a->step[0] == INT32_MAX) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "step[0] is %d; it must be 0 to %d", a->step[0], INT32_MAX - 1);
  }
  const int32_t t = a->step[0] + 1;
  const double high = (double)a->max_lr, low = (double)a->min_lr;
  double lr = low;
  if (t <= a->warmup) {
    lr = high * (double)t / (double)a->warmup;
  } else if (t < a->total) {
    const double pi = 3.14159265358979323846, part = (double)(t - a->warmup) / (double)(a->total - a->warmup);
    lr = low + (high - low) * (1.0 + cos(pi * part)) / 2.0;
  }
  a->step[0] = t;
  a->lr[0] = (float)lr;
  return NNCUDA_SUCCESS;
}

/* Counts on, and stays at the largest count there is. */
static int32_t counted(int32_t count) { return count < INT32_MAX ? count + 1 : count; }

int32_t NN_KERNEL(loss_scale_update)(nncuda_ctx *ctx, const void *args) {
  (void)ctx;
  const nn_loss_scale_update_args *a = args;
  float scale = a->loss_scale[0];
  if (!isfinite(a->norm[0])) {
    a->skip[0] = 1;
    a->skipped[0] = counted(a->skipped[0]);
    a->good_steps[0] = 0;
    scale *= a->backoff;
  } else {
    a->skip[0] = 0;
    a->good_steps[0] = counted(a->good_steps[0]);
    if (a->good_steps[0] >= a->interval) {
      a->good_steps[0] = 0;
      scale *= a->growth;
    }
  }
  a->loss_scale[0] = scale < 0x1p-24f ? 0x1p-24f : scale > 0x1p24f ? 0x1p24f : scale;
  return NNCUDA_SUCCESS;
}

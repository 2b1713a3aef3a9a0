#include "abi/elementwise.h"

#include "flat.h"
#include "gate.h"

FLAT_TASK(silu, 1, vf_silu(a))
FLAT_TASK(silu_backward, 2, vf_mul(a, silu_slope(b, vf_sigmoid(b))))
FLAT_TASK(add, 2, vf_add(a, b))
FLAT_TASK(mul, 2, vf_mul(a, b))
FLAT_TASK(scale, 1, vf_mul(a, alpha))

int32_t NN_KERNEL(silu)(nncuda_ctx *ctx, const void *args) {
  const nn_silu_args *a = args;
  return flat_run(ctx, (flat_job){.a = a->x, .y = a->y, .n = a->n, .dtype = a->dtype}, silu_task);
}

int32_t NN_KERNEL(silu_backward)(nncuda_ctx *ctx, const void *args) {
  const nn_silu_backward_args *a = args;
  const flat_job job = {.a = a->dy, .b = a->x, .y = a->dx, .n = a->n, .dtype = a->dtype};
  return flat_run(ctx, job, silu_backward_task);
}

int32_t NN_KERNEL(add)(nncuda_ctx *ctx, const void *args) {
  const nn_add_args *a = args;
  return flat_run(ctx, (flat_job){.a = a->a, .b = a->b, .y = a->y, .n = a->n, .dtype = a->dtype}, add_task);
}

int32_t NN_KERNEL(mul)(nncuda_ctx *ctx, const void *args) {
  const nn_mul_args *a = args;
  return flat_run(ctx, (flat_job){.a = a->a, .b = a->b, .y = a->y, .n = a->n, .dtype = a->dtype}, mul_task);
}

int32_t NN_KERNEL(scale)(nncuda_ctx *ctx, const void *args) {
  const nn_scale_args *a = args;
  const flat_job job = {.a = a->x, .y = a->y, .n = a->n, .alpha = a->alpha, .dtype = a->dtype};
  return flat_run(ctx, job, scale_task);
}

/* ---- gates ---- */

NN_TASK(swiglu_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, SWIGLU)))

NN_TASK(relu2_gate_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, RELU2)))

NN_TASK(swiglu_backward_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, SWIGLU_BACKWARD)))

GATE_KERNEL(swiglu, a->used, )
GATE_KERNEL(relu2_gate, NULL, )
GATE_BACKWARD_KERNEL(swiglu_backward, a->used)

/* ---- cast ---- */

typedef struct cast_job {
  nn_cast_args a;
  int32_t stream;
} cast_job;

NN_INLINE void cast_piece(const cast_job *shared, int64_t piece, int32_t dtype_x, int32_t dtype_y) {
  const cast_job job = *shared;
  const int64_t begin = piece * NN_CHUNK, end = nn_min(begin + NN_CHUNK, job.a.n);
  NN_EACH_VECTOR(begin, end, job.stream, nn_stream_head(job.a.y, begin, dtype_y),
                 nn_put(job.a.y, i, lanes, nn_get(job.a.x, i, lanes, dtype_x, MODE), dtype_y, MODE));
  if (job.stream) {
    nn_stream_fence();
  }
}

NN_INLINE void cast_from(const cast_job *job, int64_t piece, int32_t dtype_x) {
  NN_SWITCH_DTYPE(job->a.dtype_y, cast_piece(job, piece, dtype_x, DT));
}

NN_TASK(cast_task, cast_job, NN_SWITCH_DTYPE(job->a.dtype_x, cast_from(job, task, DT)))

int32_t NN_KERNEL(cast)(nncuda_ctx *ctx, const void *args) {
  cast_job job = {.a = *(const nn_cast_args *)args};
  job.stream = nn_worth_streaming(job.a.n, job.a.dtype_y);
  nn_parallel(ctx, nn_ceil_div(job.a.n, NN_CHUNK), cast_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- round ---- */

/* What is rounded was written just now, or is read soon: nothing goes past the caches. */
NN_INLINE void round_piece(const nn_round_args *a, int64_t piece, int32_t dtype) {
  const int64_t begin = piece * NN_CHUNK, end = nn_min(begin + NN_CHUNK, a->n);
  for (int64_t i = begin; i < end; i += VF) {
    uint16_t rounded[VF];
    const int64_t lanes = nn_min(end - i, VF);
    vf_store_as(rounded, 0, vf_load_upto_as(a->x, i, lanes, NNCUDA_F32), dtype);
    vf_store_upto_as(a->y, i, lanes, vf_load_as(rounded, 0, dtype), NNCUDA_F32);
  }
}

NN_TASK_OF(round_task, nn_round_args, a, piece) { NN_SWITCH_DTYPE(a->dtype, round_piece(a, piece, DT)); }

int32_t NN_KERNEL(round)(nncuda_ctx *ctx, const void *args) {
  nn_round_args a = *(const nn_round_args *)args;
  nn_parallel(ctx, nn_ceil_div(a.n, NN_CHUNK), round_task, &a);
  return NNCUDA_SUCCESS;
}

/* ---- fill ---- */

typedef struct fill_job {
  char *y;
  int64_t n, bytes;      /* elements, bytes of one */
  float pattern[64 / 4]; /* a cache line of the value */
  int32_t stream;
} fill_job;

NN_TASK_OF(fill_task, fill_job, job, piece) {
  const int64_t left = job->n - piece * NN_CHUNK, count = nn_min(left, NN_CHUNK) * job->bytes;
  char *y = job->y + piece * NN_CHUNK * job->bytes, *end = y + count;
  const int64_t head = (int64_t)((0 - (uintptr_t)y) % 64);
  memcpy(y, job->pattern, (size_t)nn_min(head, count));
  for (y += head; y + 64 <= end; y += 64) {
    for (int32_t k = 0; k < 64 / 4; k += VF) {
      const vf x = vf_load(job->pattern + k);
      if (job->stream) {
        vf_stream((float *)y + k, x);
      } else {
        vf_store((float *)y + k, x);
      }
    }
  }
  if (y < end) {
    memcpy(y, job->pattern, (size_t)(end - y));
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

int32_t NN_KERNEL(fill)(nncuda_ctx *ctx, const void *args) {
  const nn_fill_args *a = args;
  fill_job job = {.y = a->y, .n = a->n, .bytes = nn_dtype_bytes(a->dtype)};
  char *pattern = (char *)job.pattern;
  for (int64_t at = 0; at < 64; at += job.bytes) {
    if (a->dtype == NNCUDA_I32) {
      memcpy(pattern + at, &(int32_t){(int32_t)a->value}, 4);
    } else if (a->dtype == NNCUDA_I8) {
      pattern[at] = (char)(int8_t)a->value;
    } else {
      nn_store_as(pattern + at, 0, a->value, a->dtype);
    }
  }
  job.stream = job.n >= NN_STREAM_BYTES / job.bytes;
  nn_parallel(ctx, nn_ceil_div(job.n, NN_CHUNK), fill_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- increment ---- */

static void increment_task(void *arg, int64_t piece, int32_t worker) {
  (void)worker;
  const nn_increment_args a = *(const nn_increment_args *)arg;
  const int64_t begin = piece * NN_CHUNK, end = nn_min(begin + NN_CHUNK, a.n);
  for (int64_t i = begin; i < end; i++) {
    a.x[i] += a.by;
  }
}

int32_t NN_KERNEL(increment)(nncuda_ctx *ctx, const void *args) {
  nn_increment_args a = *(const nn_increment_args *)args;
  const int32_t status =
      nn_check_range(ctx, "x", a.x, a.n, nn_increment_low(a.by), nn_increment_high(a.by), ", so that x + by is an i32");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_parallel(ctx, nn_ceil_div(a.n, NN_CHUNK), increment_task, &a);
  return NNCUDA_SUCCESS;
}

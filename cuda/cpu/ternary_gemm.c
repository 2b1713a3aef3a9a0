/*
 * Linear layers with ternary weights.
 *
 * A task owns some panels of sixteen rows of weights, that is columns of the result, and some rows of the activations;
 * it leaves their integers in scratch memory and makes the result of them there. Integers are exact, so no order of
 * additions matters; what follows is done element by element, with one rounding an operation.
 *
 * Weights are multiplied as stored, code + 1, so each integer is above the true one by the sum of its row of
 * activations, which is found once a call.
 */
#include "../abi/ternary.h"

#include "kernel.h"

#include <string.h>

enum {
  PANEL = NN_TERNARY_ROWS,
  STEP = NN_TERNARY_COLUMNS,
  STEP_BYTES = PANEL * 4,   /* of a panel's weights of one step */
  MOST_ROWS = 64,           /* of activations in a task */
  TASK_BYTES = 96 << 10,    /* of weights in a task */
  MOST_COLUMNS = 64 * PANEL /* of a task */
};

typedef struct gemm_job {
  const nn_bitlinear_args *args;
  const int8_t *x; /* [m, depth]: activations, zeros after k */
  int64_t depth;   /* k rounded up to whole steps */
  int32_t *total;  /* [m] sums of the rows of x */
  int64_t panels;  /* of a task */
  int64_t chunks;  /* tasks that own the same rows of activations */
  int32_t *sums;   /* [MOST_ROWS, panels * PANEL] a worker */
  int64_t ld;      /* of sums */
} gemm_job;

NN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
NN_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The integers of a panel with one row of activations. */
NN_INLINE void panel_row(const uint8_t *w, const int8_t *x, int64_t steps, int32_t total, int32_t *sums) {
  int32_t sum[PANEL];
  for (int r = 0; r < PANEL; r++) {
    sum[r] = -total;
  }
  for (int64_t s = 0; s < steps; s++, w += STEP_BYTES, x += STEP) {
    for (int r = 0; r < PANEL; r++) {
      for (int i = 0; i < STEP; i++) {
        sum[r] += (w[4 * r + i % 4] >> (i / 4 * 2) & 3) * x[i];
      }
    }
  }
  memcpy(sums, sum, sizeof sum);
}

/* ---- from integers to the result ---- */

typedef int32_t integers __attribute__((vector_size(sizeof(vf)), aligned(4), may_alias));

NN_INLINE vf load(const void *p, int64_t i, int64_t n, int32_t dtype) {
  return n == VF ? vf_load_as(p, i, dtype) : vf_load_part_as(p, i, n, dtype);
}

/* `count` integers into row `row` of the result, from `column` on. `sums` may be read up to whole vectors. */
NN_INLINE void finish_row(const nn_bitlinear_args *a, const int32_t *sums, int64_t row, int64_t column, int64_t count,
                          int32_t dtype) {
  const vf scale = vf_set1(a->scale[row]);
  for (int64_t i = 0; i < count; i += VF) {
    const int64_t n = least(VF, count - i), at = row * a->n + column + i;
    const vf whole = __builtin_convertvector(*(const integers *)(const void *)(sums + i), vf);
    vf v = whole * (scale * load(a->w_scale, column + i, n, NNCUDA_F32));
    if (a->residual != NULL) {
      v = v + load(a->residual, at, n, dtype);
    }
    if (n == VF) {
      vf_store_as(a->y, at, v, dtype);
    } else {
      vf_store_part_as(a->y, at, n, v, dtype);
    }
  }
}

static void finish(const nn_bitlinear_args *a, const int32_t *sums, int64_t row, int64_t column, int64_t count) {
  if (a->dtype == NNCUDA_I32) {
    memcpy((int32_t *)a->y + row * a->n + column, sums, (size_t)count * sizeof *sums);
    return;
  }
  NN_SWITCH_DTYPE(a->dtype, finish_row(a, sums, row, column, count, DT));
}

/* ---- tasks ---- */

static void product_task(void *arg, int64_t task, int32_t worker) {
  const gemm_job *job = arg;
  const nn_bitlinear_args *a = job->args;
  const int64_t row = task / job->chunks * MOST_ROWS, rows = least(MOST_ROWS, a->m - row);
  const int64_t panel = task % job->chunks * job->panels, panels = least(job->panels, a->stored / PANEL - panel);
  int32_t *sums = job->sums + worker * MOST_ROWS * job->ld;
  for (int64_t p = 0; p < panels; p++) {
    const uint8_t *w = (const uint8_t *)a->w + (panel + p) * PANEL * a->row_bytes;
    for (int64_t r = 0; r < rows; r++) {
      panel_row(w, job->x + (row + r) * job->depth, a->row_bytes / 4, job->total[row + r],
                sums + r * job->ld + p * PANEL);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    finish(a, sums + r * job->ld, row + r, panel * PANEL, least(panels * PANEL, a->n - panel * PANEL));
  }
}

/* The activations with zeros after them where k ends within a step, and their sums. */
static int32_t take_left(nncuda_ctx *ctx, gemm_job *job) {
  const nn_bitlinear_args *a = job->args;
  job->depth = ceil_div(a->k, STEP) * STEP;
  job->total = nn_scratch(ctx, (size_t)a->m * sizeof *job->total);
  if (job->total == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  job->x = a->codes;
  if (job->depth != a->k) {
    int8_t *x = nn_scratch(ctx, (size_t)(a->m * job->depth));
    if (x == NULL) {
      return NNCUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int64_t r = 0; r < a->m; r++) {
      memcpy(x + r * job->depth, a->codes + r * a->k, (size_t)a->k);
      memset(x + r * job->depth + a->k, 0, (size_t)(job->depth - a->k));
    }
    job->x = x;
  }
  for (int64_t r = 0; r < a->m; r++) {
    int32_t sum = 0;
    for (int64_t i = 0; i < job->depth; i++) {
      sum += job->x[r * job->depth + i];
    }
    job->total[r] = sum;
  }
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(bitlinear)(nncuda_ctx *ctx, const void *args) {
  const nn_bitlinear_args *a = args;
  gemm_job job = {.args = a};
  if (take_left(ctx, &job) != NNCUDA_SUCCESS) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  job.panels = least(TASK_BYTES / (PANEL * a->row_bytes) + 1, MOST_COLUMNS / PANEL);
  job.chunks = ceil_div(a->stored / PANEL, job.panels);
  job.ld = job.panels * PANEL;
  job.sums = nn_scratch(ctx, (size_t)(nn_threads(ctx) * MOST_ROWS * job.ld) * sizeof *job.sums);
  if (job.sums == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  nn_parallel(ctx, ceil_div(a->m, MOST_ROWS) * job.chunks, product_task, &job);
  return NNCUDA_SUCCESS;
}

/* What today's families have besides: bounds of scores, gates, and biases of grouped rows. */
#include "abi/generated/activation.h"

#include "flat.h"
#include "gate.h"

FLAT_TASK(softcap, 1, vf_mul(alpha, vf_tanh(vf_div(a, alpha))))

int32_t NN_KERNEL(softcap)(nncuda_ctx *ctx, const void *args) {
  const nn_softcap_args *a = args;
  return flat_run(ctx, (flat_job){.a = a->x, .y = a->y, .n = a->n, .alpha = a->cap, .dtype = a->dtype}, softcap_task);
}

NN_TASK(geglu_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, GEGLU)))
NN_TASK(swiglu_clipped_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, SWIGLU_CLIPPED)))

GATE_KERNEL(geglu, NULL, )
GATE_KERNEL(swiglu_clipped, NULL, .alpha = a->alpha, .limit = a->limit)

/* ---- biases ---- */

NN_INLINE void bias_row(const nn_grouped_bias_args *a, int64_t group, int64_t row, int32_t dtype) {
  NN_EACH_VECTOR(0, a->dim, 0, 0,
                 nn_put(a->y, row * a->dim + i, lanes,
                        vf_add(nn_get(a->x, row * a->dim + i, lanes, dtype, MODE),
                               nn_get(a->bias, group * a->dim + i, lanes, dtype, MODE)),
                        dtype, MODE));
}

NN_INLINE void bias_rows(const nn_grouped_bias_args *a, int64_t task, int32_t dtype) {
  const int64_t block = nn_rows_per_task(a->dim), first = task * block;
  const int64_t end = nn_min(first + block, a->offsets[a->groups]);
  int64_t group = 0;
  for (int64_t row = first; row < end; row++) {
    while (a->offsets[group + 1] <= row) {
      group++;
    }
    bias_row(a, group, row, dtype);
  }
}

NN_TASK(bias_task, nn_grouped_bias_args, NN_SWITCH_DTYPE(job->dtype, bias_rows(job, task, DT)))

int32_t NN_KERNEL(grouped_bias)(nncuda_ctx *ctx, const void *args) {
  const nn_grouped_bias_args *a = args;
  NN_TRY(nn_check_offsets(ctx, a->offsets, a->groups, a->rows, "rows"));
  nn_parallel(ctx, nn_ceil_div(a->offsets[a->groups], nn_rows_per_task(a->dim)), bias_task, (void *)a);
  return NNCUDA_SUCCESS;
}

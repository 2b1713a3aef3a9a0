/* What today's families have besides: bounds of scores, gates, rows in 8 bits as numbers, and biases of grouped rows.
 */
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

NN_TASK(relu2_gate_backward_task, gate_job, NN_SWITCH_DTYPE(job->dtype, gate_piece(job, task, DT, RELU2_BACKWARD)))

GATE_BACKWARD_KERNEL(relu2_gate_backward, NULL)

/* ---- rows in 8 bits ---- */

NN_INLINE vf codes_at(const int8_t *codes, int64_t n) {
  if (n == VF) {
    return vf_from_i8(codes);
  }
  int8_t part[VF] = {0};
  memcpy(part, codes, (size_t)n);
  return vf_from_i8(part);
}

NN_INLINE void dequant_rows(const nn_act_dequant_i8_args *a, int64_t task, int32_t dtype) {
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->cols), a->rows, &count);
  for (int64_t r = first; r < first + count; r++) {
    const int8_t *codes = (const int8_t *)a->codes + r * a->cols;
    const vf scale = vf_set1(a->scale[r]);
    NN_EACH_VECTOR(0, a->cols, 0, 0,
                   nn_put(a->x, r * a->cols + i, lanes, vf_mul(codes_at(codes + i, lanes), scale), dtype, MODE));
  }
}

NN_TASK(dequant_task, nn_act_dequant_i8_args, NN_SWITCH_DTYPE(job->dtype, dequant_rows(job, task, DT)))

int32_t NN_KERNEL(act_dequant_i8)(nncuda_ctx *ctx, const void *args) {
  const nn_act_dequant_i8_args *a = args;
  nn_parallel(ctx, nn_ceil_div(a->rows, nn_rows_per_task(a->cols)), dequant_task, (void *)a);
  return NNCUDA_SUCCESS;
}

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

#include "kernel.h"

#include "../abi/elementwise.h"

/* Elements a task: fixed, so that the pieces do not depend on the number of threads. */
enum { CHUNK = 1 << 14 };

NN_INLINE void silu_chunk(const nn_silu_args *a, int64_t begin, int64_t end, int32_t dtype) {
  int64_t i = begin;
  for (; i + VF <= end; i += VF) {
    const vf x = vf_load_as(a->x, i, dtype);
    vf_store_as(a->y, i, x * vf_sigmoid(x), dtype);
  }
  if (i < end) {
    const vf x = vf_load_part_as(a->x, i, end - i, dtype);
    vf_store_part_as(a->y, i, end - i, x * vf_sigmoid(x), dtype);
  }
}

static void silu_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const nn_silu_args *a = arg;
  const int64_t begin = i * CHUNK, end = begin + CHUNK < a->n ? begin + CHUNK : a->n;
  NN_SWITCH_DTYPE(a->dtype, silu_chunk(a, begin, end, DT));
}

int32_t NN_KERNEL(silu)(nncuda_ctx *ctx, const void *args) {
  const nn_silu_args *a = args;
  nn_parallel(ctx, (a->n + CHUNK - 1) / CHUNK, silu_task, (void *)a);
  return NNCUDA_SUCCESS;
}

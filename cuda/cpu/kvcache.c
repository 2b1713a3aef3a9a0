#include "checks.h"
#include "stream.h"

#include "abi/generated/kvcache.h"

#include <string.h>

typedef struct append {
  const nn_kv_append_args *a;
  int64_t row_bytes, rows; /* of a cache; a task's */
} append;

NN_TASK_OF(append_task, append, p, i) {
  const nn_kv_append_args *a = p->a;
  const int64_t total = a->batch * a->len, begin = i * p->rows, end = nn_min(begin + p->rows, total);
  const int64_t from_bytes = a->ld_kv * nn_dtype_bytes(a->dtype);
  for (int64_t r = begin; r < end; r++) {
    const int64_t b = r / a->len, to = (b * a->capacity + a->starts[b] + r % a->len) * p->row_bytes;
    memcpy((char *)a->k_cache + to, (const char *)a->k + r * from_bytes, (size_t)p->row_bytes);
    memcpy((char *)a->v_cache + to, (const char *)a->v + r * from_bytes, (size_t)p->row_bytes);
  }
}

int32_t NN_KERNEL(kv_append)(nncuda_ctx *ctx, const void *args) {
  const nn_kv_append_args *a = args;
  const int64_t last = a->capacity - a->len;
  NN_TRY(nn_check_range(ctx, "starts", a->starts, a->batch, 0, last, ", capacity - len"));
  append p = {.a = a, .row_bytes = a->kv_heads * a->head_dim * nn_dtype_bytes(a->dtype)};
  p.rows = 1 + NN_COPY_BYTES / p.row_bytes;
  nn_parallel(ctx, nn_ceil_div(a->batch * a->len, p.rows), append_task, &p);
  return NNCUDA_SUCCESS;
}

/* One sequence's keys (even i) or values (odd i): the rows that stay overlap where they go, so one task moves them. */
NN_TASK_OF(trim_task, nn_kv_trim_args, a, i) {
  const int64_t row_bytes = a->kv_heads * a->head_dim * nn_dtype_bytes(a->dtype), b = i / 2;
  char *cache = (char *)(i % 2 ? a->v_cache : a->k_cache) + b * a->capacity * row_bytes;
  const int64_t dropped = a->lengths[b] - a->keep;
  if (dropped > 0) {
    memmove(cache, cache + dropped * row_bytes, (size_t)(a->keep * row_bytes));
  }
}

int32_t NN_KERNEL(kv_trim)(nncuda_ctx *ctx, const void *args) {
  const nn_kv_trim_args *a = args;
  NN_TRY(nn_check_range(ctx, "lengths", a->lengths, a->batch, 0, a->capacity, ", the capacity"));
  nn_parallel(ctx, 2 * a->batch, trim_task, (void *)a);
  for (int64_t b = 0; b < a->batch; b++) {
    if (a->lengths[b] > a->keep) {
      a->lengths[b] = (int32_t)a->keep;
    }
  }
  return NNCUDA_SUCCESS;
}

#include "abi/generated/embedding.h"

#include "checks.h"
#include "span.h"

NN_TASK_OF(embedding_task, nn_embedding_args, a, task) {
  const size_t bytes = (size_t)(a->dim * nn_dtype_bytes(a->dtype));
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->dim), a->tokens, &count);
  for (int64_t t = first; t < first + count; t++) {
    memcpy((char *)a->y + (size_t)t * bytes, (const char *)a->table + (size_t)a->ids[t] * bytes, bytes);
  }
}

int32_t NN_KERNEL(embedding)(nncuda_ctx *ctx, const void *args) {
  nn_embedding_args a = *(const nn_embedding_args *)args;
  NN_TRY(nn_check_range(ctx, "ids", a.ids, a.tokens, 0, a.vocab - 1, ""));
  nn_parallel(ctx, nn_ceil_div(a.tokens, nn_rows_per_task(a.dim)), embedding_task, &a);
  return NNCUDA_SUCCESS;
}

/* A task owns some columns of the whole table and goes through all tokens in order, so that no two tasks add to the
 * same element and each element's sum has the order of the tokens. */
enum { COLUMNS = 64 };

NN_INLINE void scatter_columns(const nn_scatter_add_args *shared, int64_t task, int32_t dtype) {
  const nn_scatter_add_args a = *shared;
  const int64_t begin = task * COLUMNS, end = nn_min(begin + COLUMNS, a.dim);
  for (int64_t t = 0; t < a.tokens; t++) {
    float *row = a.table + a.ids[t] * a.dim;
    NN_EACH_VECTOR(
        begin, end, 0, 0,
        nn_put(row, i, lanes,
               vf_add(nn_get(row, i, lanes, NNCUDA_F32, MODE), nn_get(a.x, t * a.dim + i, lanes, dtype, MODE)),
               NNCUDA_F32, MODE));
  }
}

NN_TASK(scatter_add_task, nn_scatter_add_args, NN_SWITCH_DTYPE(job->dtype, scatter_columns(job, task, DT)))

int32_t NN_KERNEL(scatter_add)(nncuda_ctx *ctx, const void *args) {
  nn_scatter_add_args a = *(const nn_scatter_add_args *)args;
  NN_TRY(nn_check_range(ctx, "ids", a.ids, a.tokens, 0, a.vocab - 1, ""));
  nn_parallel(ctx, nn_ceil_div(a.dim, COLUMNS), scatter_add_task, &a);
  return NNCUDA_SUCCESS;
}

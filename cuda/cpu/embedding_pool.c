/* One vector for the rows of a text: their sum, in the order of the rows, brought to length 1. */
#include "abi/generated/embedding.h"

#include "span.h"

#include <math.h>

/* Columns a task, which goes through all rows: their part of the sum stays in the first cache. */
enum { COLUMNS = 256 };

/* Adds a vector of a row to a sum of two f32. Only additions: nothing can be contracted. */
NN_INLINE void add_vector(const float *row, float *nearest, float *rest, int64_t i, int64_t lanes, int32_t mode) {
  const vf x = nn_get(row, i, lanes, NNCUDA_F32, mode), sum = nn_get(nearest, i, lanes, NNCUDA_F32, mode);
  const vf s = vf_add(sum, x), added = vf_sub(s, sum);
  const vf error =
      vf_add(vf_add(vf_sub(sum, vf_sub(s, added)), vf_sub(x, added)), nn_get(rest, i, lanes, NNCUDA_F32, mode));
  const vf whole = vf_add(s, error);
  nn_put(nearest, i, lanes, whole, NNCUDA_F32, mode);
  nn_put(rest, i, lanes, vf_sub(error, vf_sub(whole, s)), NNCUDA_F32, mode);
}

NN_TASK_OF(pool_rows_task, nn_pool_rows_args, shared, task) {
  const nn_pool_rows_args a = *shared;
  const int64_t begin = task * COLUMNS, end = nn_min(begin + COLUMNS, a.dim);
  for (int64_t r = 0; r < a.rows; r++) {
    NN_EACH_VECTOR(begin, end, 0, 0, add_vector(a.x + r * a.dim, a.sum, a.sum + a.dim, i, lanes, MODE));
  }
}

int32_t NN_KERNEL(pool_rows)(nncuda_ctx *ctx, const void *args) {
  nn_pool_rows_args a = *(const nn_pool_rows_args *)args;
  nn_parallel(ctx, nn_ceil_div(a.dim, COLUMNS), pool_rows_task, &a);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(pool_unit)(nncuda_ctx *ctx, const void *args) {
  (void)ctx;
  const nn_pool_unit_args *a = args;
  double squares = 0.0; /* of f32: neither too large nor too small for an f64 */
  for (int64_t i = 0; i < a->dim; i++) {
    const double s = (double)a->sum[i] + (double)a->sum[a->dim + i];
    squares += s * s;
  }
  const double length = squares == 0.0 ? 1.0 : sqrt(squares);
  for (int64_t i = 0; i < a->dim; i++) {
    a->y[i] = (float)(((double)a->sum[i] + (double)a->sum[a->dim + i]) / length);
  }
  return NNCUDA_SUCCESS;
}

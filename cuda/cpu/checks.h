/* Checks of a call's data, before anything is written. */
#ifndef NN_CPU_CHECKS_H
#define NN_CPU_CHECKS_H

#include "kernel.h"

#define NN_CHECK_FUNCTION static __attribute__((noinline, unused))

/* Every value must be low .. high; `why` says what that is, or is "". */
NN_CHECK_FUNCTION int32_t nn_check_range(nncuda_ctx *ctx, const char *name, const int32_t *values, int64_t n,
                                         int64_t low, int64_t high, const char *why) {
  int32_t least = INT32_MAX, most = INT32_MIN;
  for (int64_t i = 0; i < n; i++) { /* without a way out, so that it becomes vector instructions */
    least = nn_min(values[i], least);
    most = nn_max(values[i], most);
  }
  if (n == 0 || (least >= low && most <= high)) {
    return NNCUDA_SUCCESS;
  }
  int64_t i = 0;
  while (values[i] >= low && values[i] <= high) {
    i++;
  }
  return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "%s[%lld] is %d; it must be %lld to %lld%s", name, (long long)i,
                 values[i], (long long)low, (long long)high, why);
}

/* Element `at` of indices [n, k] is out of range. */
NN_CHECK_FUNCTION int32_t nn_refuse_index(nncuda_ctx *ctx, const int32_t *indices, int64_t at, int64_t k, int64_t n) {
  return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "indices[%lld, %lld] is %d; it must be 0 to %lld", (long long)(at / k),
                 (long long)(at % k), indices[at], (long long)n - 1);
}

/* All of indices [rows, k] must be 0 .. n-1. */
NN_CHECK_FUNCTION int32_t nn_check_indices(nncuda_ctx *ctx, const int32_t *indices, int64_t rows, int64_t k,
                                           int64_t n) {
  for (int64_t i = 0; i < rows * k; i++) {
    if (indices[i] < 0 || indices[i] >= n) {
      return nn_refuse_index(ctx, indices, i, k, n);
    }
  }
  return NNCUDA_SUCCESS;
}

/* offsets[0] = 0, never falling, the last of `count` + 1 at most `most`, the number of `what`. */
NN_CHECK_FUNCTION int32_t nn_check_offsets(nncuda_ctx *ctx, const int32_t *offsets, int64_t count, int64_t most,
                                           const char *what) {
  if (offsets[0] != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "offsets[0] is %d; it must be 0", offsets[0]);
  }
  for (int64_t i = 0; i < count; i++) {
    const int32_t from = offsets[i], to = offsets[i + 1];
    if (to < from || to > most) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "offsets[%lld] is %d; it must be %d to %lld, the number of %s",
                     (long long)(i + 1), to, from, (long long)most, what);
    }
  }
  return NNCUDA_SUCCESS;
}

#endif

/* RMSNorm of one row, for the kernels whose results are to have the same bits. */
#ifndef NN_CPU_RMSNORM_ROW_H
#define NN_CPU_RMSNORM_ROW_H

#include "reduce.h"
#include "span.h"

/* One over the root of the mean square of `cols` elements from element `at` of x. */
NN_INLINE float nn_rstd(const void *x, int64_t at, int64_t cols, float eps, int32_t dtype) {
  return 1.0f / sqrtf(nn_dot(x, at, dtype, x, at, dtype, cols) / (float)cols + eps);
}

/* A vector of the norm before it is rounded to the dtype: element `at` + i of x with gain i. `rstd` is in every lane.
 */
NN_INLINE vf nn_norm_vector(const void *x, const void *weight, vf rstd, int64_t at, int64_t i, int64_t lanes,
                            int32_t dtype, int32_t mode) {
  return vf_mul(vf_mul(nn_get(x, at + i, lanes, dtype, mode), rstd), nn_get(weight, i, lanes, dtype, mode));
}

#endif

/* What the forms of AdamW share, whatever their moments are kept in: the factors of a step, and the update of a vector.
 */
#ifndef NN_CPU_OPTIMIZER_ADAMW_H
#define NN_CPU_OPTIMIZER_ADAMW_H

#include "span.h"

/* What is the same for every parameter, computed once in f64. */
typedef struct adamw_factors {
  int32_t step;
  float grad_scale, beta1, beta2, one_less_beta1, one_less_beta2;
  float m_scale, v_scale; /* the bias corrections 1/(1-beta1^t), 1/(1-beta2^t) */
  float root_scale;       /* the square root of v_scale */
  float lr, decay, eps;   /* decay: what weight decay leaves of a parameter */
} adamw_factors;

/* The factors from the arguments of any form of AdamW. False when there is nothing to do: the step is skipped, or its
 * number is wrong; *status says which. */
#define ADAMW_FACTORS(ctx, a, factors, status)                                                                         \
  adamw_factors_of(ctx, (a)->skip, (a)->step, (a)->grad_scale, (a)->lr, (a)->beta1, (a)->beta2, (a)->eps,              \
                   (a)->weight_decay, factors, status)

static inline int32_t adamw_factors_of(nncuda_ctx *ctx, const int32_t *skip, const int32_t *step,
                                       const float *grad_scale, const float *lr, float beta1, float beta2, float eps,
                                       float weight_decay, adamw_factors *f, int32_t *status) {
  *status = NNCUDA_SUCCESS;
  if (skip != NULL && skip[0] != 0) {
    return 0;
  }
  const int32_t t = step[0];
  if (t < 1) {
    *status = nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "step[0] is %d; it must be at least 1", t);
    return 0;
  }
  const double v_scale = 1.0 / (1.0 - pow((double)beta2, t));
  *f = (adamw_factors){
      .step = t,
      .grad_scale = grad_scale == NULL ? 1.0f : grad_scale[0],
      .beta1 = beta1,
      .beta2 = beta2,
      .one_less_beta1 = (float)(1.0 - (double)beta1),
      .one_less_beta2 = (float)(1.0 - (double)beta2),
      .m_scale = (float)(1.0 / (1.0 - pow((double)beta1, t))),
      .v_scale = (float)v_scale,
      .root_scale = (float)sqrt(v_scale),
      .lr = lr[0],
      .decay = (float)(1.0 - (double)lr[0] * (double)weight_decay),
      .eps = eps,
  };
  return 1;
}

NN_INLINE vf adamw_first(const adamw_factors *f, vf m, vf grad) {
  return vf_fma(vf_set1(f->beta1), m, vf_mul(vf_set1(f->one_less_beta1), grad));
}

NN_INLINE vf adamw_second(const adamw_factors *f, vf v, vf grad) {
  return vf_fma(vf_set1(f->beta2), v, vf_mul(vf_set1(f->one_less_beta2), vf_mul(grad, grad)));
}

/* `root` is what the first moment is divided by: the corrected root of the second, and eps. */
NN_INLINE vf adamw_param(const adamw_factors *f, vf param, vf decay, vf m, vf root) {
  return vf_sub(vf_mul(param, decay), vf_mul(vf_set1(f->lr), vf_div(vf_mul(m, vf_set1(f->m_scale)), root)));
}

#endif

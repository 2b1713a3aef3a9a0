/* Arguments of the optimizer kernels; bindings.h says what they mean. */
#ifndef NN_ABI_OPTIMIZER_H
#define NN_ABI_OPTIMIZER_H

#include <stdint.h>

typedef struct nn_adamw_step_args {
  const float *grad, *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param, *m, *v;
  void *param_copy;
  int64_t n, n_decay;
  float beta1, beta2, eps, weight_decay;
  int32_t dtype;
} nn_adamw_step_args;

typedef struct nn_adamw_step_bf16_args {
  const float *grad, *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param;
  void *m, *v, *param_copy;
  int64_t n, n_decay;
  float beta1, beta2, eps, weight_decay;
  int32_t dtype;
} nn_adamw_step_bf16_args;

typedef struct nn_adamw_step_f8_args {
  const float *grad, *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param;
  void *m;
  float *m_scale;
  void *r;
  float *r_scale;
  void *param_copy;
  int64_t n, n_decay;
  float beta1, beta2, eps, weight_decay;
  int32_t dtype;
} nn_adamw_step_f8_args;

typedef struct nn_zero_grad_args {
  void *grad;
  int64_t n;
  int32_t dtype;
} nn_zero_grad_args;

typedef struct nn_grad_norm_args {
  const void *grad;
  float *norm;
  int64_t n;
  int32_t dtype;
} nn_grad_norm_args;

typedef struct nn_grad_clip_args {
  const float *norm, *loss_scale;
  float *scale;
  void *grad;
  int64_t n;
  float max_norm;
  int32_t dtype;
} nn_grad_clip_args;

typedef struct nn_lr_schedule_args {
  const int32_t *skip;
  int32_t *step;
  float *lr;
  int64_t warmup, total;
  float max_lr, min_lr;
} nn_lr_schedule_args;

typedef struct nn_loss_scale_update_args {
  const float *norm;
  float *loss_scale;
  int32_t *good_steps, *skipped, *skip;
  float growth, backoff;
  int64_t interval;
} nn_loss_scale_update_args;

#endif

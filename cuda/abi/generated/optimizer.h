/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_OPTIMIZER_GENERATED_H
#define NN_ABI_OPTIMIZER_GENERATED_H

#include <stdint.h>

typedef struct nn_adamw_step_args {
  const float *grad;
  const float *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param;
  float *m;
  float *v;
  void *param_copy;
  int64_t n;
  int64_t n_decay;
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  int32_t dtype;
} nn_adamw_step_args;

typedef struct nn_adamw_step_bf16_args {
  const float *grad;
  const float *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param;
  void *m;
  void *v;
  void *param_copy;
  int64_t n;
  int64_t n_decay;
  int64_t first;
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  int32_t dtype;
} nn_adamw_step_bf16_args;

typedef struct nn_adamw_step_f8_args {
  const float *grad;
  const float *lr;
  const int32_t *step;
  const float *grad_scale;
  const int32_t *skip;
  float *param;
  void *m;
  float *m_scale;
  void *r;
  float *r_scale;
  void *param_copy;
  int64_t n;
  int64_t blocks;
  int64_t n_decay;
  int64_t first;
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  int32_t dtype;
} nn_adamw_step_f8_args;

typedef struct nn_zero_grad_args {
  void *grad;
  int64_t n;
  int32_t dtype;
} nn_zero_grad_args;

typedef struct nn_grad_norm_parameters {
  const void *grad;
  float *norm;
  int64_t n;
  int32_t dtype;
} nn_grad_norm_parameters;
enum { nn_grad_norm_parameters_count = 4 };

typedef struct nn_grad_clip_args {
  const float *norm;
  const float *loss_scale;
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
  int64_t warmup;
  int64_t total;
  float max_lr;
  float min_lr;
} nn_lr_schedule_args;

typedef struct nn_loss_scale_update_args {
  const float *norm;
  float *loss_scale;
  int32_t *good_steps;
  int32_t *skipped;
  int32_t *skip;
  float growth;
  float backoff;
  int64_t interval;
} nn_loss_scale_update_args;

#endif

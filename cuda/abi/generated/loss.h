/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_LOSS_GENERATED_H
#define NN_ABI_LOSS_GENERATED_H

#include <stdint.h>

typedef struct nn_cross_entropy_forward_args {
  const void *logits;
  const int32_t *targets;
  float *losses;
  float *lse;
  float *loss_sum;
  int32_t *count;
  int64_t rows;
  int64_t vocab;
  int32_t ignore_index;
  int32_t dtype;
} nn_cross_entropy_forward_args;

typedef struct nn_cross_entropy_backward_args {
  const void *logits;
  const int32_t *targets;
  const float *lse;
  const float *grad_scale;
  void *dlogits;
  int64_t rows;
  int64_t vocab;
  int32_t ignore_index;
  int32_t dtype;
} nn_cross_entropy_backward_args;

typedef struct nn_aux_loss_forward_args {
  const float *probs;
  const int32_t *counts;
  float *loss;
  int64_t tokens;
  int64_t experts;
  float alpha;
} nn_aux_loss_forward_args;

typedef struct nn_aux_loss_backward_args {
  const int32_t *counts;
  const float *grad_scale;
  float *dprobs;
  int64_t tokens;
  int64_t experts;
  float alpha;
} nn_aux_loss_backward_args;

typedef struct nn_weighted_mean_args {
  const float *x;
  const int32_t *weights;
  float *y;
  int64_t n;
  int64_t divisor;
} nn_weighted_mean_args;

#endif

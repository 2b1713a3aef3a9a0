/* Arguments of the loss kernels; bindings.h says what they mean. */
#ifndef NN_ABI_LOSS_H
#define NN_ABI_LOSS_H

#include <stdint.h>

typedef struct nn_cross_entropy_forward_args {
  const void *logits;
  const int32_t *targets;
  float *losses, *lse, *loss_sum;
  int32_t *count;
  int64_t rows, vocab;
  int32_t ignore_index, dtype;
} nn_cross_entropy_forward_args;

typedef struct nn_cross_entropy_backward_args {
  const void *logits;
  const int32_t *targets;
  const float *lse, *grad_scale;
  void *dlogits;
  int64_t rows, vocab;
  int32_t ignore_index, dtype;
} nn_cross_entropy_backward_args;

typedef struct nn_aux_loss_forward_args {
  const float *probs;
  const int32_t *counts;
  float *loss;
  int64_t tokens, experts;
  float alpha;
} nn_aux_loss_forward_args;

typedef struct nn_aux_loss_backward_args {
  const int32_t *counts;
  const float *grad_scale;
  float *dprobs;
  int64_t tokens, experts;
  float alpha;
} nn_aux_loss_backward_args;

typedef struct nn_weighted_mean_args {
  const float *x;
  const int32_t *weights;
  float *y;
  int64_t n, divisor;
} nn_weighted_mean_args;

#endif

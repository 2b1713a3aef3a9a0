/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_SOFTMAX_GENERATED_H
#define NN_ABI_SOFTMAX_GENERATED_H

#include <stdint.h>

typedef struct nn_softmax_args {
  const void *x;
  void *y;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
} nn_softmax_args;

typedef struct nn_softmax_backward_args {
  const void *dy;
  const void *y;
  void *dx;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
} nn_softmax_backward_args;

typedef struct nn_softmax_topk_args {
  const void *x;
  float *weights;
  int32_t *indices;
  float *probs;
  int64_t rows;
  int64_t cols;
  int64_t k;
  int32_t norm;
  int32_t dtype;
} nn_softmax_topk_args;

typedef struct nn_softmax_topk_backward_args {
  const float *dweights;
  const float *weights;
  const int32_t *indices;
  const float *probs;
  const float *dprobs;
  void *dx;
  int64_t rows;
  int64_t cols;
  int64_t k;
  int32_t norm;
  int32_t dtype;
} nn_softmax_topk_backward_args;

#endif

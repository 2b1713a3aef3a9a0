/* Arguments of the softmax kernels; bindings.h says what they mean. */
#ifndef NN_ABI_SOFTMAX_H
#define NN_ABI_SOFTMAX_H

#include <stdint.h>

/* Most experts a token that softmax_topk gives. */
enum { NN_TOPK_MAX = 64 };

typedef struct nn_softmax_args {
  const void *x;
  void *y;
  int64_t rows, cols;
  int32_t dtype;
} nn_softmax_args;

typedef struct nn_softmax_backward_args {
  const void *dy, *y;
  void *dx;
  int64_t rows, cols;
  int32_t dtype;
} nn_softmax_backward_args;

typedef struct nn_softmax_topk_args {
  const void *x;
  float *weights;
  int32_t *indices;
  float *probs;
  int64_t rows, cols, k;
  int32_t norm, dtype;
} nn_softmax_topk_args;

typedef struct nn_softmax_topk_backward_args {
  const float *dweights, *weights;
  const int32_t *indices;
  const float *probs, *dprobs;
  void *dx;
  int64_t rows, cols, k;
  int32_t norm, dtype;
} nn_softmax_topk_backward_args;

#endif

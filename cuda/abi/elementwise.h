/* Arguments of the elementwise kernels; bindings.h says what they mean. */
#ifndef NN_ABI_ELEMENTWISE_H
#define NN_ABI_ELEMENTWISE_H

#include <stdint.h>

typedef struct nn_silu_args {
  const void *x;
  void *y;
  int64_t n;
  int32_t dtype;
} nn_silu_args;

#endif

/* Arguments of the random kernels; bindings.h says what they mean. */
#ifndef NN_ABI_RANDOM_H
#define NN_ABI_RANDOM_H

#include <stdint.h>

typedef struct nn_random_bits_args {
  int32_t *y;
  int64_t n, seed, stream, offset;
} nn_random_bits_args;

typedef struct nn_uniform_args {
  void *y;
  int64_t n;
  float low, high;
  int64_t seed, stream, offset;
  int32_t dtype;
} nn_uniform_args;

typedef struct nn_normal_args {
  void *y;
  int64_t n;
  float mean, std;
  int64_t seed, stream, offset;
  int32_t dtype;
} nn_normal_args;

#endif

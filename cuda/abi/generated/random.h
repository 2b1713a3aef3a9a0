/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_RANDOM_GENERATED_H
#define NN_ABI_RANDOM_GENERATED_H

#include <stdint.h>

typedef struct nn_random_bits_args {
  int32_t *y;
  int64_t n;
  int64_t seed;
  int64_t stream;
  int64_t offset;
} nn_random_bits_args;

typedef struct nn_uniform_args {
  void *y;
  int64_t n;
  float low;
  float high;
  int64_t seed;
  int64_t stream;
  int64_t offset;
  int32_t dtype;
} nn_uniform_args;

typedef struct nn_normal_args {
  void *y;
  int64_t n;
  float mean;
  float std;
  int64_t seed;
  int64_t stream;
  int64_t offset;
  int32_t dtype;
} nn_normal_args;

#endif

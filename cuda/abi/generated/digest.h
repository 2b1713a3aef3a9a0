/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_DIGEST_GENERATED_H
#define NN_ABI_DIGEST_GENERATED_H

#include <stdint.h>

typedef struct nn_digest_args {
  const void *x;
  int64_t *sums;
  int64_t n;
  int64_t width;
  int64_t first;
} nn_digest_args;

#endif

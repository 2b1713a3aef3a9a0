/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_EMBEDDING_GENERATED_H
#define NN_ABI_EMBEDDING_GENERATED_H

#include <stdint.h>

typedef struct nn_embedding_args {
  const void *table;
  const int32_t *ids;
  void *y;
  int64_t tokens;
  int64_t vocab;
  int64_t dim;
  int32_t dtype;
} nn_embedding_args;

typedef struct nn_scatter_add_args {
  const void *x;
  const int32_t *ids;
  float *table;
  int64_t tokens;
  int64_t vocab;
  int64_t dim;
  int32_t dtype;
} nn_scatter_add_args;

typedef struct nn_pool_rows_args {
  const float *x;
  float *sum;
  int64_t rows;
  int64_t dim;
} nn_pool_rows_args;

typedef struct nn_pool_unit_args {
  const float *sum;
  float *y;
  int64_t dim;
} nn_pool_unit_args;

#endif

/* Arguments of the embedding kernels; bindings.h says what they mean. */
#ifndef NN_ABI_EMBEDDING_H
#define NN_ABI_EMBEDDING_H

#include <stdint.h>

typedef struct nn_embedding_args {
  const void *table;
  const int32_t *ids;
  void *y;
  int64_t tokens, vocab, dim;
  int32_t dtype;
} nn_embedding_args;

typedef struct nn_scatter_add_args {
  const void *x;
  const int32_t *ids;
  float *table;
  int64_t tokens, vocab, dim;
  int32_t dtype;
} nn_scatter_add_args;

#endif

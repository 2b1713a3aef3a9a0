/* Arguments of the moves; bindings.h says what they mean. */
#ifndef NN_RUNTIME_MEMORY_H
#define NN_RUNTIME_MEMORY_H

#include "call.h"

#include <stdint.h>

typedef struct nn_memset_args {
  void *pointer;
  int64_t bytes;
  int32_t value;
} nn_memset_args;

typedef struct nn_memcpy_args {
  void *destination;
  const void *source;
  int64_t bytes;
  int32_t kind;
  int32_t wait; /* whether host memory must be done with on return */
} nn_memcpy_args;

/* Declares what both forms of memcpy take. */
void nn_declare_copy(nn_call *call, void *destination, const void *source, int64_t bytes, int32_t kind);

#endif

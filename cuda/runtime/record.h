/* A checked call, on its way from the entry point to the kernel. */
#ifndef NN_RUNTIME_RECORD_H
#define NN_RUNTIME_RECORD_H

#include "engine.h"

#include <stddef.h>
#include <stdint.h>

enum { NN_MAX_TENSORS = 16, NN_MAX_DIMS = 4 };

/* How a call uses a tensor. OPTIONAL may be added, UNREAD where this call only writes what others also read, and PARTS
 * where it uses some of it, and the rest may not even be memory: nobody looks at such a tensor's elements. */
enum {
  NN_ROLE_IN = 1,
  NN_ROLE_OUT = 2,
  NN_ROLE_INOUT = 3,
  NN_ROLE_ACC = 7,
  NN_ROLE_OPTIONAL = 8,
  NN_ROLE_UNREAD = 16,
  NN_ROLE_PARTS = 32
};

/* Sets of dtypes. */
#define NN_FLOATS (1u << NNCUDA_F32 | 1u << NNCUDA_F16 | 1u << NNCUDA_BF16)
static inline uint32_t nn_dtype_bit(int32_t dtype) { return dtype >= 0 && dtype < 32 ? 1u << dtype : 0; }

/* dtypes that only tensors inside the ABI have: seeds, codes. Not in bindings.h since no dtype parameter takes them. */
enum { NN_I64 = 1000, NN_U8 = 1001 };

/* Bytes of an element; 0 for an unknown dtype. */
int64_t nn_dtype_size(int32_t dtype);

typedef struct nn_tensor {
  const char *name;
  const void *data; /* null for an optional tensor that was not given */
  int32_t dtype;
  int32_t role;
  int32_t ndim;
  int64_t dims[NN_MAX_DIMS];
  int64_t ld; /* elements between entries of dims[0] */
  /* As bytes: `rows` runs of `width` bytes, `stride` apart. A dense tensor is one run. */
  int64_t rows, width, stride;
} nn_tensor;

typedef struct nn_record {
  nn_op op;
  int32_t tensors;
  const nn_tensor *tensor;
  double flops;
  double bytes; /* read and written in tensors with NN_ROLE_PARTS */
  const void *args;
  size_t args_bytes;
} nn_record;

/* The exported name of an op. */
const char *nn_op_name(nn_op op);

#endif

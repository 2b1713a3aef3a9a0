/*
 * One kernel call: what an entry point declares, and the one door that it goes through.
 *
 * An entry point declares its sizes, options and tensors by name; the first thing that is wrong sticks, becomes the
 * status and the sentence of nncuda_last_error, and everything after it is skipped. What was declared also serves the
 * profiler (bytes, operations), the trace (shapes, values) and the check that outputs overlap nothing they must not.
 * The entry points of kernels are generated (abi/generated), for instance:
 *
 *   int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype) {
 *     nn_call call;
 *     nn_call_begin(&call, ctx, NN_OP_silu);
 *     nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
 *     nn_call_size(&call, "n", n);
 *     nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, NULL, 0, NN_SHAPE("[n]", n));
 *     nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, NULL, 0, NN_SHAPE("[n]", n));
 *     nn_call_alias(&call, "y", "x");
 *     const nn_silu_args args = {x, y, n, dtype};
 *     check_silu(&call, &args);
 *     return nn_call_launch(&call, &args, sizeof args);
 *   }
 */
#ifndef NN_RUNTIME_CALL_H
#define NN_RUNTIME_CALL_H

#include "record.h"

#include <stddef.h>
#include <stdint.h>

enum { NN_MAX_ALIASES = 8 };

/* For dimensions that are a product or a sum, which must not wrap before they are checked: too large becomes
 * INT64_MAX. */
static inline int64_t nn_mul(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}
static inline int64_t nn_add(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_add_overflow(a, b, &c) ? INT64_MAX : c;
}

typedef struct nn_call {
  nncuda_ctx *ctx;
  nn_op op;
  int32_t status;  /* the first error, or NNCUDA_SUCCESS */
  int32_t entered; /* the context is ours until the launch */
  int32_t empty;   /* a size is zero: succeed without doing anything */
  int32_t tensors;
  int32_t aliases;
  double flops;
  double bytes; /* of a record */
  nn_tensor tensor[NN_MAX_TENSORS];
  struct {
    const char *output, *input;
  } alias[NN_MAX_ALIASES];
} nn_call;

/* Enters the context (a second thread gets NNCUDA_ERROR_BUSY) and clears its last error. */
void nn_call_begin(nn_call *call, nncuda_ctx *ctx, nn_op op);
void nn_call_size(nn_call *call, const char *name, int64_t value);
/* A size that does not count, and may be zero, unless `used`. */
void nn_call_size_if(nn_call *call, const char *name, int64_t value, int32_t used);
void nn_call_dtype(nn_call *call, const char *name, int32_t dtype, uint32_t allowed);
void nn_call_flag(nn_call *call, const char *name, int32_t value);
/* The leading dimension `ld` has a name, or null for a dense tensor. What follows it is NN_SHAPE(words, dimensions). */
void nn_call_tensor(nn_call *call, int32_t role, const char *name, const void *data, int32_t dtype, const char *ld_name,
                    int64_t ld, const char *shape, const int64_t *dims, int32_t ndim);
#define NN_SHAPE(words, ...)                                                                                           \
  words, (const int64_t[]){__VA_ARGS__}, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
/* Adds UNREAD to a tensor's role. */
void nn_call_unread(nn_call *call, const char *name);
void nn_call_alias(nn_call *call, const char *output, const char *input);
/* Fails the call with a sentence (the function's name is put before it) when `condition` does not hold. */
void nn_call_require(nn_call *call, int32_t condition, int32_t status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks the pointers; whether there is something to run. nn_call_launch begins with it. */
int32_t nn_call_check(nn_call *call);
/* Runs, records (while a graph is captured) or refuses the call, leaves the context, returns the status. */
int32_t nn_call_launch(nn_call *call, const void *args, size_t args_bytes);

#endif

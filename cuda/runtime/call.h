/*
 * One kernel call: what entry points declare, and the one door that it goes through.
 *
 * An entry declares its sizes, options and tensors by name; the first thing that is wrong sticks, becomes the status
 * and the sentence of nncuda_last_error, and everything after it is skipped. What was declared also serves the profiler
 * (bytes, operations), the trace (shapes, values) and the check that outputs overlap nothing they must not.
 *
 *   int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype) {
 *     NN_BEGIN(silu);                        // declares `call`; fails on a bad context
 *     NN_DTYPE(dtype, NN_FLOATS);
 *     NN_SIZE(n);
 *     NN_IN(x, dtype, n);
 *     NN_OUT(y, dtype, n);
 *     NN_ALIAS(y, x);
 *     NN_FLOPS(5.0 * (double)n);
 *     return NN_LAUNCH(nn_silu_args, .x = x, .y = y, .n = n, .dtype = dtype);
 *   }
 */
#ifndef NN_RUNTIME_CALL_H
#define NN_RUNTIME_CALL_H

#include "bindings.h"
#include "engine.h"

#include <stddef.h>
#include <stdint.h>

enum { NN_MAX_TENSORS = 16, NN_MAX_DIMS = 4, NN_MAX_ALIASES = 8 };

/* How a call uses a tensor. OPTIONAL may be added. */
enum { NN_ROLE_IN = 1, NN_ROLE_OUT = 2, NN_ROLE_INOUT = 3, NN_ROLE_ACC = 7, NN_ROLE_OPTIONAL = 8 };

/* Sets of dtypes, for NN_DTYPE. */
#define NN_FLOATS (1u << NNCUDA_F32 | 1u << NNCUDA_F16 | 1u << NNCUDA_BF16)
#define NN_NUMBERS (NN_FLOATS | 1u << NNCUDA_I32 | 1u << NNCUDA_I8)

/* dtypes that only tensors inside the ABI have: seeds, codes. Not in bindings.h since no dtype parameter takes them. */
enum { NN_I64 = 1000, NN_U8 = 1001 };

/* For dimensions that are a product or a sum, which must not wrap before they are checked: too large becomes INT64_MAX.
 *   NN_IN(row_slot, NNCUDA_I32, nn_mul(tokens, k)); */
static inline int64_t nn_mul(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}
static inline int64_t nn_add(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_add_overflow(a, b, &c) ? INT64_MAX : c;
}

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

typedef struct nn_call {
  nncuda_ctx *ctx;
  nn_op op;
  int32_t status;  /* the first error, or NNCUDA_SUCCESS */
  int32_t entered; /* the context is ours until the launch */
  int32_t empty;   /* a size is zero: succeed without doing anything */
  int32_t tensors;
  int32_t aliases;
  double flops;
  nn_tensor tensor[NN_MAX_TENSORS];
  struct {
    const char *output, *input;
  } alias[NN_MAX_ALIASES];
} nn_call;

/* Enters the context (a second thread gets NNCUDA_ERROR_BUSY) and clears its last error. */
void nn_call_begin(nn_call *call, nncuda_ctx *ctx, nn_op op);
void nn_call_size(nn_call *call, const char *name, int64_t value);
void nn_call_dtype(nn_call *call, const char *name, int32_t dtype, uint32_t allowed);
void nn_call_flag(nn_call *call, const char *name, int32_t value);
/* `shape` and `ld_name` are the words of the call, for messages; ld is 0 for a dense tensor. */
void nn_call_tensor(nn_call *call, int32_t role, const char *name, const void *data, int32_t dtype, const char *ld_name,
                    int64_t ld, const char *shape, const int64_t *dims, int32_t ndim);
void nn_call_alias(nn_call *call, const char *output, const char *input);
/* Fails the call with a sentence (the function's name is put before it) when `condition` does not hold. */
void nn_call_require(nn_call *call, int32_t condition, int32_t status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks the pointers; whether there is something to run. nn_call_launch begins with it. */
int32_t nn_call_check(nn_call *call);
/* Runs, records (while a graph is captured) or refuses the call, leaves the context, returns the status. */
int32_t nn_call_launch(nn_call *call, const void *args, size_t args_bytes);

#define NN_BEGIN(op_)                                                                                                  \
  nn_call call;                                                                                                        \
  nn_call_begin(&call, ctx, NN_OP_##op_)
#define NN_SIZE(n) nn_call_size(&call, #n, n)
#define NN_DTYPE(d, allowed) nn_call_dtype(&call, #d, d, allowed)
#define NN_FLAG(f) nn_call_flag(&call, #f, f)
#define NN_DIMS(...) (const int64_t[]){__VA_ARGS__}, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define NN_TENSOR(role, p, dtype, ld, ...)                                                                             \
  nn_call_tensor(&call, role, #p, p, dtype, #ld, ld, #__VA_ARGS__, NN_DIMS(__VA_ARGS__))
/* The dense forms; NN_TENSOR takes a leading dimension (0 for dense). */
#define NN_IN(p, dtype, ...) NN_TENSOR(NN_ROLE_IN, p, dtype, 0, __VA_ARGS__)
#define NN_OUT(p, dtype, ...) NN_TENSOR(NN_ROLE_OUT, p, dtype, 0, __VA_ARGS__)
#define NN_INOUT(p, dtype, ...) NN_TENSOR(NN_ROLE_INOUT, p, dtype, 0, __VA_ARGS__)
#define NN_ACC(p, dtype, ...) NN_TENSOR(NN_ROLE_ACC, p, dtype, 0, __VA_ARGS__)
#define NN_IN_OPT(p, dtype, ...) NN_TENSOR(NN_ROLE_IN | NN_ROLE_OPTIONAL, p, dtype, 0, __VA_ARGS__)
#define NN_OUT_OPT(p, dtype, ...) NN_TENSOR(NN_ROLE_OUT | NN_ROLE_OPTIONAL, p, dtype, 0, __VA_ARGS__)
#define NN_ALIAS(output, input) nn_call_alias(&call, #output, #input)
#define NN_REQUIRE(condition, status, ...) nn_call_require(&call, condition, status, __VA_ARGS__)
#define NN_FLOPS(f) (call.flops = (f))
#define NN_LAUNCH(type, ...) nn_call_launch(&call, &(const type){__VA_ARGS__}, sizeof(type))

#endif

/*
 * Traces look at a context's calls. There are three kinds: lines (trace.c), the search for the first value that is not
 * finite (nonfinite.c) and the shadow run (shadow.c). This is what they share.
 */
#ifndef NN_RUNTIME_TRACE_H
#define NN_RUNTIME_TRACE_H

#include "context.h"
#include "record.h"

#include <stddef.h>
#include <stdint.h>

/* A kind of trace. `state` comes from the function that begins it. */
struct nn_tracer {
  /* Runs the call (nn_run) and looks at it. */
  int32_t (*run)(nncuda_ctx *ctx, void *state, const nn_record *record);
  /* What lies there is no longer what calls made of it: allocated, given back or copied to. Null for nothing. */
  void (*forget)(void *state, const void *data, size_t bytes);
  void (*write)(const void *state, int64_t calls, nn_text *text);
  void (*end)(void *state); /* the trace sees no more calls; null for nothing */
  void (*release)(void *state);
  /* Whether memory that is allocated while it runs is zeroed: some kernels compute with rows that were never written,
   * such as those of no expert, and a trace should not find what happened to be in that memory. */
  int32_t clears;
};

/* Runs the call and shows it to the running trace. */
int32_t nn_trace_run(nncuda_ctx *ctx, const nn_record *record);
/* Tells the running trace, if any, of a change that is no call. */
void nn_trace_forget(nncuda_ctx *ctx, const void *data, size_t bytes);
void nn_trace_release(nncuda_ctx *ctx);

/* Makes `tracer` the running trace, and `state` its own. Fails, and releases the state, when one is running. */
int32_t nn_trace_start(nncuda_ctx *ctx, const nn_tracer *tracer, void *state);
/* Fails with a sentence if the context only measures, and so has no values. */
int32_t nn_trace_check(nncuda_ctx *ctx, const nncuda_ctx *looked_at, const char *name);

/* An element in a call. */
typedef struct nn_spot {
  int64_t call;
  char label[NN_LABEL_CAPACITY];
  nn_op op;
  nn_tensor tensor;
  int64_t element; /* its number, gaps between rows not counted */
} nn_spot;

nn_spot nn_spot_at(const nncuda_ctx *ctx, const nn_record *record, const nn_tensor *tensor, int64_t element);
/* Its members of a JSON object, from "call" to "index"; `more` is inserted after the argument's name. */
void nn_spot_write(const nn_spot *spot, const char *more, nn_text *text);

const char *nn_dtype_name(int32_t dtype);
static inline int32_t nn_dtype_is_float(int32_t dtype) { return dtype >= 0 && dtype < 32 && (NN_FLOATS >> dtype & 1u); }
/* Element i of a row of elements. */
double nn_value_at(const unsigned char *row, int64_t i, int32_t dtype);

/* Whether the tensor has any bytes in memory; how many it spans, gaps between rows included; elements in one of its
 * rows. */
static inline int32_t nn_tensor_present(const nn_tensor *tensor) { return tensor->data != NULL && tensor->rows != 0; }
static inline size_t nn_tensor_span(const nn_tensor *tensor) {
  return (size_t)((tensor->rows - 1) * tensor->stride + tensor->width);
}
static inline int64_t nn_tensor_columns(const nn_tensor *tensor) {
  return tensor->width / nn_dtype_size(tensor->dtype);
}

/* Whether the host may read the memory of the context in place. */
static inline int32_t nn_on_host(const nncuda_ctx *ctx) { return ctx->engine->read == NULL; }

/* A copy of the context's memory, for the host; free it. Null without memory, or when the device fails. */
unsigned char *nn_trace_copy(nncuda_ctx *ctx, const void *data, size_t bytes);
/* What the host may read: the memory itself, or a copy, which `copy` then is too; else that is null. Null as above. */
const unsigned char *nn_trace_look(nncuda_ctx *ctx, const void *data, size_t bytes, unsigned char **copy);

#endif

/* The one door: what a checked call consists of, and the ways it can go: run, recorded, measured, traced. */
#ifndef NN_RUNTIME_DISPATCH_H
#define NN_RUNTIME_DISPATCH_H

#include "call.h"
#include "trace.h"

typedef struct nn_record {
  nn_op op;
  int32_t tensors;
  const nn_tensor *tensor;
  double flops;
  const void *args;
  size_t args_bytes;
} nn_record;

/* The exported name of an op. */
const char *nn_op_name(nn_op op);

/* Records the call while a graph is captured, else runs it. */
int32_t nn_dispatch(nncuda_ctx *ctx, const nn_record *record);

/* Runs it: kernel and profile; nn_trace_run (trace.h) when it is to be traced. */
int32_t nn_run(nncuda_ctx *ctx, const nn_record *record);

/* The kernel alone, with its workspace: its bytes, and memory for so many. */
int32_t nn_run_kernel(nncuda_ctx *ctx, const nn_record *record);
size_t nn_workspace_bytes(nncuda_ctx *ctx, const nn_record *record);
int32_t nn_workspace_take(nncuda_ctx *ctx, size_t bytes);

/* graph.c */
int32_t nn_graph_append(nncuda_ctx *ctx, const nn_record *record);
void nn_graph_free(nncuda_ctx *ctx, nncuda_graph *graph);

/* profile.c: one measured call. Kept in an array that grows. */
typedef struct nn_measurement {
  nn_op op;
  int64_t begin, duration; /* nanoseconds; begin counts from the start of profiling. Two stamps while it runs */
  double bytes, flops;
} nn_measurement;

typedef struct nn_profile {
  int32_t running;
  int64_t begin, length; /* nanoseconds of the clock; how long it ran */
  nn_measurement *calls;
  size_t count, capacity;
  size_t lost; /* calls that found no memory to be noted in */
} nn_profile;

int64_t nn_clock(void); /* nanoseconds */
void nn_profile_add(nncuda_ctx *ctx, const nn_record *record, int64_t begin, int64_t end);
int32_t nn_profile_stop(nncuda_ctx *ctx);     /* the stamps of the calls become times */
void nn_profile_release(nn_profile *profile); /* not while it runs */

#endif

/* Running a checked call. */
#ifndef NN_RUNTIME_RUN_H
#define NN_RUNTIME_RUN_H

#include "record.h"

/* Runs the kernel, under the profiler if it is on; traced calls go through nn_trace_run (trace.h). */
int32_t nn_run(nncuda_ctx *ctx, const nn_record *record);

/* Runs the kernel alone, with its workspace; the bytes that a call's workspace needs. */
int32_t nn_run_kernel(nncuda_ctx *ctx, const nn_record *record);
size_t nn_workspace_bytes(nncuda_ctx *ctx, const nn_record *record);
int32_t nn_workspace_take(nncuda_ctx *ctx, size_t bytes);

#endif

/* Running a checked call. */
#ifndef NN_RUNTIME_RUN_H
#define NN_RUNTIME_RUN_H

#include "record.h"

/* Kernel and profile; nn_trace_run (trace.h) when it is to be traced. */
int32_t nn_run(nncuda_ctx *ctx, const nn_record *record);

/* The kernel alone, with its workspace: its bytes, and memory for so many. */
int32_t nn_run_kernel(nncuda_ctx *ctx, const nn_record *record);
size_t nn_workspace_bytes(nncuda_ctx *ctx, const nn_record *record);
int32_t nn_workspace_take(nncuda_ctx *ctx, size_t bytes);

#endif

#include "dispatch.h"

#include "context.h"
#include "graph.h"
#include "run.h"
#include "trace.h"

int32_t nn_dispatch(nncuda_ctx *ctx, const nn_record *record) {
  if (ctx->kernel[record->op] == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "this engine does not have the kernel");
  }
  if (ctx->capture != NULL) {
    return nn_graph_append(ctx, record);
  }
  return ctx->trace.running ? nn_trace_run(ctx, record) : nn_run(ctx, record);
}

#include "context.h"

#include <stdio.h>
#include <string.h>

int32_t nn_ctx_enter(nncuda_ctx *ctx, const char *function) {
  if (ctx == NULL || ctx->magic != NN_CTX_MAGIC) {
    return NNCUDA_ERROR_INVALID_CONTEXT;
  }
  if (__atomic_exchange_n(&ctx->busy, 1, __ATOMIC_ACQUIRE) != 0) {
    return NNCUDA_ERROR_BUSY;
  }
  ctx->function = function;
  ctx->error[0] = '\0';
  nn_ctx_resume(ctx);
  return NNCUDA_SUCCESS;
}

void nn_ctx_resume(nncuda_ctx *ctx) {
  if (ctx->engine->enter != NULL) {
    ctx->engine->enter(ctx);
  }
}

void nn_ctx_suspend(nncuda_ctx *ctx) {
  if (ctx->engine->leave != NULL) {
    ctx->engine->leave(ctx);
  }
}

int32_t nn_ctx_leave(nncuda_ctx *ctx, int32_t status) {
  if (status != NNCUDA_SUCCESS && ctx->error[0] == '\0') {
    nn_fail(ctx, status, "%s", nncuda_status_string(status));
  }
  nn_ctx_suspend(ctx);
  __atomic_store_n(&ctx->busy, 0, __ATOMIC_RELEASE);
  return status;
}

int32_t nn_fail_list(nncuda_ctx *ctx, int32_t status, const char *format, va_list list) {
  if (ctx->error[0] != '\0') {
    return status; /* the first error is the cause, later ones may follow from it */
  }
  int begin = 0;
  if (strncmp(format, "cuda_", 5) != 0 && strncmp(format, "nncuda_", 7) != 0) {
    begin = snprintf(ctx->error, sizeof ctx->error, "%s: ", ctx->function);
  }
  vsnprintf(ctx->error + begin, sizeof ctx->error - (size_t)begin, format, list);
  return status;
}

int32_t nn_fail(nncuda_ctx *ctx, int32_t status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  nn_fail_list(ctx, status, format, list);
  va_end(list);
  return status;
}

const char *nncuda_last_error(nncuda_ctx *ctx) {
  if (ctx == NULL) {
    return "the context is null";
  }
  if (ctx->magic != NN_CTX_MAGIC) {
    return "the pointer is not a context of this library";
  }
  /* Its text belongs to the thread inside; this is the answer to a call that returned NNCUDA_ERROR_BUSY. */
  return __atomic_load_n(&ctx->busy, __ATOMIC_ACQUIRE) ? "another thread is inside a call on this context" : ctx->error;
}

nn_workspace *nn_workspace_of(nncuda_ctx *ctx) { return &ctx->workspace; }

int32_t nn_fail_capturing(nncuda_ctx *ctx) {
  return nn_fail(ctx, NNCUDA_ERROR_CAPTURING, "the context is capturing a graph; call nncuda_graph_end first");
}

void nn_ctx_update_peak(nncuda_ctx *ctx) {
  const size_t scratch = ctx->arena.capacity + ctx->graph_bytes;
  const int64_t now = (int64_t)(ctx->pool.used + scratch);
  const int64_t held = ctx->pool.source->lazy ? now : (int64_t)(ctx->pool.capacity + scratch);
  ctx->peak = now > ctx->peak ? now : ctx->peak;
  ctx->held = held > ctx->held ? held : ctx->held;
}

int32_t nn_handle_add(nncuda_ctx *ctx, const void *handle, int32_t kind) {
  if (!nn_table_reserve(&ctx->handles)) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for another handle");
  }
  nn_table_put(&ctx->handles, handle, (void *)(intptr_t)kind);
  return NNCUDA_SUCCESS;
}

int32_t nn_handle_check(nncuda_ctx *ctx, const void *handle, int32_t kind, const char *name) {
  if (handle == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_CONTEXT, "%s is null", name);
  }
  if ((intptr_t)nn_table_get(&ctx->handles, handle) != kind) {
    static const char *const kinds[] = {"", "a stream", "an event", "a graph", "a communicator"};
    return nn_fail(ctx, NNCUDA_ERROR_WRONG_DEVICE, "%s is %p; it must be %s of this context that was not destroyed",
                   name, handle, kinds[kind]);
  }
  return NNCUDA_SUCCESS;
}

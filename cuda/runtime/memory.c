#include "memory.h"

#include "call.h"
#include "context.h"
#include "trace.h"

static int32_t check_allocation(nncuda_ctx *ctx, int64_t bytes, void **pointer) {
  if (pointer == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "pointer is null; it must say where to put the address");
  }
  *pointer = NULL;
  return bytes >= 0 ? NNCUDA_SUCCESS
                    : nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "bytes is %lld; it must be at least 0", (long long)bytes);
}

/* What follows an attempt to take memory from a pool: the error, or the new peak. */
static int32_t account(nncuda_ctx *ctx, int64_t bytes, void *memory) {
  if (memory == NULL) {
    int64_t free_bytes = 0, total_bytes = 0;
    ctx->engine->memory_info(ctx, &free_bytes, &total_bytes);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "bytes is %lld; of %lld bytes in all %lld are free",
                   (long long)bytes, (long long)total_bytes, (long long)free_bytes);
  }
  nn_ctx_update_peak(ctx);
  nn_trace_forget(ctx, memory, (size_t)bytes);
  return NNCUDA_SUCCESS;
}

/* Zeroes memory of the device that was just allocated; without success it is no longer there. */
static int32_t clear(nncuda_ctx *ctx, int64_t bytes, void **pointer) {
  int32_t status = ctx->kernel[NN_OP_memset](ctx, &(nn_memset_args){*pointer, bytes, 0});
  if (status == NNCUDA_SUCCESS) { /* a copy on another stream would not wait for it */
    status = ctx->engine->synchronize(ctx);
  }
  if (status != NNCUDA_SUCCESS) {
    nn_pool_give(&ctx->pool, nn_pool_find(&ctx->pool, *pointer));
    *pointer = NULL;
  }
  return status;
}

static int32_t allocate(nncuda_ctx *ctx, int64_t bytes, void **pointer, int32_t host) {
  int32_t status = check_allocation(ctx, bytes, pointer);
  if (status != NNCUDA_SUCCESS || bytes == 0) {
    return status;
  }
  *pointer = nn_pool_take(host ? &ctx->host_pool : &ctx->pool, (size_t)bytes);
  status = account(ctx, bytes, *pointer);
  const int32_t clears = !host && ctx->trace.running && ctx->trace.tracer->clears;
  return status == NNCUDA_SUCCESS && clears ? clear(ctx, bytes, pointer) : status;
}

static int32_t check_ranges(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count) {
  if (count < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "count is %lld; it must be at least 0", (long long)count);
  }
  if (ranges == NULL && count > 0) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "ranges is null; it must point to %lld ranges", (long long)count);
  }
  int64_t least = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t begin = ranges[2 * i], end = ranges[2 * i + 1];
    if (begin < least || end < begin || end > bytes) {
      return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                     "range %lld is %lld to %lld; it must lie within %lld to %lld, between the range before it and the "
                     "last byte",
                     (long long)i, (long long)begin, (long long)end, (long long)least, (long long)bytes);
    }
    least = end;
  }
  return NNCUDA_SUCCESS;
}

static int32_t allocate_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count, void **pointer) {
  int32_t status = check_allocation(ctx, bytes, pointer);
  if (status == NNCUDA_SUCCESS) {
    status = check_ranges(ctx, bytes, ranges, count);
  }
  if (status != NNCUDA_SUCCESS || bytes == 0) {
    return status;
  }
  *pointer = nn_pool_take_parts(&ctx->pool, (size_t)bytes, ranges, count);
  return account(ctx, bytes, *pointer);
}

static int32_t give_back(nncuda_ctx *ctx, void *pointer, int32_t host) {
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  if (pointer == NULL) {
    return NNCUDA_SUCCESS;
  }
  nn_pool *pool = host ? &ctx->host_pool : &ctx->pool;
  nn_block *block = nn_pool_find(pool, pointer);
  if (block == NULL && nn_pool_find(host ? &ctx->pool : &ctx->host_pool, pointer) != NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_WRONG_DEVICE, "pointer is %p, which is %s memory; free it with %s", pointer,
                   host ? "device" : "host", host ? "nncuda_free" : "nncuda_free_host");
  }
  if (block == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_WRONG_DEVICE,
                   "pointer is %p; it must come from %s of this context and not be freed already", pointer,
                   host ? "nncuda_malloc_host" : "nncuda_malloc");
  }
  nn_trace_forget(ctx, pointer, nn_block_span(block)); /* the system may give it to others */
  nn_pool_give(pool, block);
  return NNCUDA_SUCCESS;
}

int32_t nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, void **pointer) {
  NN_INSIDE(ctx, allocate(ctx, bytes, pointer, 0));
}

int32_t nncuda_malloc_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count, void **pointer) {
  NN_INSIDE(ctx, allocate_parts(ctx, bytes, ranges, count, pointer));
}

int32_t nncuda_free(nncuda_ctx *ctx, void *pointer) { NN_INSIDE(ctx, give_back(ctx, pointer, 0)); }

int32_t nncuda_malloc_host(nncuda_ctx *ctx, int64_t bytes, void **pointer) {
  NN_INSIDE(ctx, allocate(ctx, bytes, pointer, 1));
}

int32_t nncuda_free_host(nncuda_ctx *ctx, void *pointer) { NN_INSIDE(ctx, give_back(ctx, pointer, 1)); }

static int32_t memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  if (free_bytes == NULL || total_bytes == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "%s is null; it must say where to put the number",
                   free_bytes == NULL ? "free_bytes" : "total_bytes");
  }
  if (!ctx->engine->memory_info(ctx, free_bytes, total_bytes)) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "the system does not say how much memory it has");
  }
  return NNCUDA_SUCCESS;
}

int32_t nncuda_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  NN_INSIDE(ctx, memory_info(ctx, free_bytes, total_bytes));
}

int32_t nncuda_memset(nncuda_ctx *ctx, void *pointer, int32_t value, int64_t bytes) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_memset);
  nn_call_size(&call, "bytes", bytes);
  nn_call_require(&call, value >= 0 && value <= 255, NNCUDA_ERROR_INVALID_VALUE, "value is %d; it must be 0 to 255",
                  value);
  nn_call_tensor(&call, NN_ROLE_OUT, "pointer", pointer, NNCUDA_I8, NULL, 0, NN_SHAPE("[bytes]", bytes));
  return nn_call_launch(&call, &(nn_memset_args){pointer, bytes, value}, sizeof(nn_memset_args));
}

void nn_declare_copy(nn_call *call, void *destination, const void *source, int64_t bytes, int32_t kind) {
  nn_call_size(call, "bytes", bytes);
  nn_call_require(call, kind >= NNCUDA_HOST_TO_DEVICE && kind <= NNCUDA_DEVICE_TO_DEVICE, NNCUDA_ERROR_INVALID_VALUE,
                  "kind is %d; it must be NNCUDA_HOST_TO_DEVICE (1), NNCUDA_DEVICE_TO_HOST (2) or "
                  "NNCUDA_DEVICE_TO_DEVICE (3)",
                  kind);
  nn_call_require(call, kind == NNCUDA_DEVICE_TO_DEVICE || !call->entered || call->ctx->capture == NULL,
                  NNCUDA_ERROR_CAPTURING, "kind is %d; only NNCUDA_DEVICE_TO_DEVICE (3) may be captured", kind);
  nn_call_tensor(call, NN_ROLE_IN, "source", source, NNCUDA_I8, NULL, 0, NN_SHAPE("[bytes]", bytes));
  nn_call_tensor(call, NN_ROLE_OUT, "destination", destination, NNCUDA_I8, NULL, 0, NN_SHAPE("[bytes]", bytes));
}

int32_t nncuda_memcpy(nncuda_ctx *ctx, void *destination, const void *source, int64_t bytes, int32_t kind) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_memcpy);
  nn_declare_copy(&call, destination, source, bytes, kind);
  return nn_call_launch(&call, &(nn_memcpy_args){destination, source, bytes, kind, 1}, sizeof(nn_memcpy_args));
}

#include "context.h"

#include <stdlib.h>

enum { ALIGNMENT = 256 };

int32_t nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, void **pointer) {
  const int32_t status = nn_ctx_enter(ctx, __func__);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (pointer == NULL) {
    return nn_ctx_leave(ctx, nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "pointer is null"));
  }
  *pointer = NULL;
  if (bytes < 0) {
    return nn_ctx_leave(
        ctx, nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "bytes is %lld; it must be at least 0", (long long)bytes));
  }
  if (bytes > 0) {
    *pointer = aligned_alloc(ALIGNMENT, ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (*pointer == NULL) {
      return nn_ctx_leave(ctx, nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld bytes", (long long)bytes));
    }
  }
  return nn_ctx_leave(ctx, NNCUDA_SUCCESS);
}

int32_t nncuda_free(nncuda_ctx *ctx, void *pointer) {
  const int32_t status = nn_ctx_enter(ctx, __func__);
  if (status == NNCUDA_SUCCESS) {
    free(pointer);
    return nn_ctx_leave(ctx, NNCUDA_SUCCESS);
  }
  return status;
}

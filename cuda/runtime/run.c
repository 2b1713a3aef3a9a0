#include "run.h"

#include "context.h"
#include "profile.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* The caller's thread may round differently or flush subnormals (a library built with -ffast-math does that to the
 * whole process); a kernel must give the same bits all the same. Returns what to restore. */
static uint64_t float_control_enter(void) {
#if defined(__x86_64__)
  const uint32_t usual = 0x1f80, old = _mm_getcsr(); /* all exceptions masked, to nearest, subnormals kept */
  if ((old & ~0x3fu) != usual) {
    _mm_setcsr(usual);
  }
  return old;
#elif defined(__aarch64__)
  uint64_t old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  if (old != 0) {
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
  }
  return old;
#else
  return 0;
#endif
}

static void float_control_leave(uint64_t old) {
#if defined(__x86_64__)
  if ((old & ~(uint64_t)0x3f) != 0x1f80) {
    _mm_setcsr((uint32_t)old);
  }
#elif defined(__aarch64__)
  if (old != 0) {
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
  }
#else
  (void)old;
#endif
}

size_t nn_workspace_bytes(nncuda_ctx *ctx, const nn_record *record) {
  ctx->workspace =
      (nn_workspace){.machine = &ctx->machine, .capacity = SIZE_MAX, .alignment = ctx->engine->memory.alignment};
  if (ctx->layout[record->op] != NULL) {
    ctx->layout[record->op](record->args, &ctx->workspace);
  }
  return ctx->workspace.used;
}

int32_t nn_workspace_take(nncuda_ctx *ctx, size_t bytes) {
  void *memory = bytes == 0 ? NULL : nn_arena_take(&ctx->arena, bytes);
  if (memory == NULL && bytes != 0) {
    int64_t free_bytes = 0, total_bytes = 0;
    ctx->engine->memory_info(ctx, &free_bytes, &total_bytes);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY,
                   "no memory for a workspace of %zu bytes; of %lld bytes in all %lld are free", bytes,
                   (long long)total_bytes, (long long)free_bytes);
  }
  ctx->workspace.memory = memory;
  ctx->workspace.used = 0;
  ctx->workspace.capacity = bytes;
  return NNCUDA_SUCCESS;
}

/* Lays a call out again, now with memory, as its kernel would: that may take no more than was stated. */
static int32_t check_workspace(nncuda_ctx *ctx, const nn_record *record) {
  const size_t stated = ctx->workspace.capacity;
  ctx->workspace.capacity = SIZE_MAX;
  if (ctx->layout[record->op] != NULL) {
    ctx->layout[record->op](record->args, &ctx->workspace);
  }
  return ctx->workspace.used <= stated
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_INTERNAL, "takes a workspace of %zu bytes where it had stated %zu",
                       ctx->workspace.used, stated);
}

int32_t nn_run_kernel(nncuda_ctx *ctx, const nn_record *record) {
  const uint64_t float_control = float_control_enter();
  int32_t status = nn_workspace_take(ctx, nn_workspace_bytes(ctx, record));
  if (status == NNCUDA_SUCCESS && ctx->engine->measures) {
    status = check_workspace(ctx, record);
  }
  if (status == NNCUDA_SUCCESS) {
    status = ctx->kernel[record->op](ctx, record->args);
  }
  float_control_leave(float_control);
  return status;
}

int32_t nn_run(nncuda_ctx *ctx, const nn_record *record) {
  const int64_t begin = ctx->profile.running ? ctx->engine->stamp(ctx) : 0;
  const int32_t status = nn_run_kernel(ctx, record);
  if (ctx->profile.running) {
    nn_profile_add(ctx, record, begin, ctx->engine->stamp(ctx));
  }
  nn_ctx_update_peak(ctx);
  return status;
}

#include "dispatch.h"

#include "context.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define NN_NAME(op) "cuda_" #op,
static const char *const op_names[NN_OP_ALL] = {
    NN_OPS(NN_NAME)[NN_OP_memset] = "nncuda_memset",
    [NN_OP_memcpy] = "nncuda_memcpy",
};

const char *nn_op_name(nn_op op) { return op_names[op]; }

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

/* Finds the size of the call's workspace, and memory for it. */
static int32_t take_workspace(nncuda_ctx *ctx, const nn_record *record) {
  nn_workspace *workspace = &ctx->workspace;
  const nn_layout layout = ctx->layout[record->op];
  *workspace = (nn_workspace){.machine = &ctx->machine, .alignment = ctx->engine->memory.alignment};
  if (layout == NULL) {
    return NNCUDA_SUCCESS;
  }
  workspace->capacity = SIZE_MAX;
  layout(record->args, workspace);
  workspace->capacity = workspace->used;
  workspace->used = 0;
  if (workspace->capacity != 0) {
    workspace->memory = nn_scratch(ctx, workspace->capacity);
    if (workspace->memory == NULL) {
      return NNCUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  return NNCUDA_SUCCESS;
}

int32_t nn_run_kernel(nncuda_ctx *ctx, const nn_record *record) {
  const int32_t status = take_workspace(ctx, record);
  return status != NNCUDA_SUCCESS ? status : ctx->kernel[record->op](ctx, record->args);
}

int32_t nn_run(nncuda_ctx *ctx, const nn_record *record) {
  const int64_t begin = ctx->profile.running ? ctx->engine->stamp(ctx) : 0;
  const uint64_t float_control = float_control_enter();
  const int32_t status = nn_run_kernel(ctx, record);
  float_control_leave(float_control);
  if (ctx->profile.running) {
    nn_profile_add(ctx, record, begin, ctx->engine->stamp(ctx));
  }
  nn_ctx_update_peak(ctx);
  nn_arena_reset(&ctx->arena);
  if (ctx->trace.running) {
    nn_trace_add(ctx, record, status);
  }
  return status;
}

int32_t nn_dispatch(nncuda_ctx *ctx, const nn_record *record) {
  if (ctx->kernel[record->op] == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "this engine does not have the kernel");
  }
  return ctx->capture != NULL ? nn_graph_append(ctx, record) : nn_run(ctx, record);
}

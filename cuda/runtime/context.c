#include "context.h"

#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MAGIC = 0x6e6e637564614354u;

const nn_engine *nn_engine_find(int32_t device) {
#if NNCUDA_CUDA
  if (device == NNCUDA_DEVICE_CUDA) {
    return &nn_gpu_engine;
  }
#endif
  return device == NNCUDA_DEVICE_CPU ? &nn_cpu_engine : NULL;
}

int32_t nn_ctx_enter(nncuda_ctx *ctx, const char *function) {
  if (ctx == NULL || ctx->magic != MAGIC) {
    return NNCUDA_ERROR_INVALID_CONTEXT;
  }
  if (__atomic_exchange_n(&ctx->busy, 1, __ATOMIC_ACQUIRE) != 0) {
    return NNCUDA_ERROR_BUSY;
  }
  ctx->function = function;
  ctx->error[0] = '\0';
  if (ctx->engine->enter != NULL) {
    ctx->engine->enter(ctx);
  }
  return NNCUDA_SUCCESS;
}

int32_t nn_ctx_leave(nncuda_ctx *ctx, int32_t status) {
  if (status != NNCUDA_SUCCESS && ctx->error[0] == '\0') {
    nn_fail(ctx, status, "%s", nncuda_status_string(status));
  }
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
  if (ctx->magic != MAGIC) {
    return "the pointer is not a context of this library";
  }
  /* Its text belongs to the thread inside; this is the answer to a call that returned NNCUDA_ERROR_BUSY. */
  return __atomic_load_n(&ctx->busy, __ATOMIC_ACQUIRE) ? "another thread is inside a call on this context" : ctx->error;
}

nn_workspace *nn_workspace_of(nncuda_ctx *ctx) { return &ctx->workspace; }

static int32_t make(const nn_engine *engine, int32_t index, const nn_machine *machine, nncuda_ctx **ctx) {
  nncuda_ctx *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  made->engine = engine;
  made->index = index;
  made->machine = *machine;
  made->arena = (nn_arena){.ctx = made, .source = &engine->memory};
  made->pool = (nn_pool){.ctx = made, .source = &engine->memory};
  made->host_pool = (nn_pool){.ctx = made, .source = &engine->host_memory};
  engine->fill(machine->isa, made->kernel, made->layout);
  const int32_t status = engine->open == NULL ? NNCUDA_SUCCESS : engine->open(made);
  if (status != NNCUDA_SUCCESS) {
    free(made);
    return status;
  }
  made->magic = MAGIC;
  *ctx = made;
  return NNCUDA_SUCCESS;
}

/* The checks that both ways to make a context begin with. */
static int32_t check_device(int32_t device, nncuda_ctx **ctx) {
  if (ctx == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  *ctx = NULL;
  return device == NNCUDA_DEVICE_CPU || device == NNCUDA_DEVICE_CUDA ? NNCUDA_SUCCESS : NNCUDA_ERROR_INVALID_VALUE;
}

int32_t nncuda_ctx_create(int32_t device, int32_t index, nncuda_ctx **ctx) {
  const int32_t status = check_device(device, ctx);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  const nn_engine *engine = nn_engine_find(device);
  if (engine == NULL || index < 0 || index >= engine->count()) {
    return NNCUDA_ERROR_NO_DEVICE;
  }
  const nn_machine machine = {.isa = engine->widest_isa(index),
                              .threads = engine->threads == NULL ? 0 : engine->threads()};
  return make(engine, index, &machine, ctx);
}

int32_t nncuda_ctx_create_measuring(int32_t device, int32_t isa, int32_t threads, int32_t multiprocessors,
                                    nncuda_ctx **ctx) {
  int32_t status = check_device(device, ctx);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  const int32_t on_cpu = device == NNCUDA_DEVICE_CPU;
  const nn_engine *engine = on_cpu ? &nn_measuring_cpu : &nn_measuring_gpu, *real = nn_engine_find(device);
  nn_machine machine = {.isa = isa, .threads = threads, .sms = multiprocessors};
  if (isa == -1) { /* this machine's */
    if (real == NULL || real->count() == 0) {
      return NNCUDA_ERROR_NO_DEVICE;
    }
    machine.isa = real->widest_isa(0);
  }
  if (threads == 0 && on_cpu) {
    machine.threads = engine->threads();
  }
  if (multiprocessors == 0 && !on_cpu) {
    machine.sms = nn_measuring_sms(machine.isa);
  }
  status = nn_measuring_check(device, &machine);
  return status != NNCUDA_SUCCESS ? status : make(engine, 0, &machine, ctx);
}

int32_t nncuda_ctx_destroy(nncuda_ctx *ctx) {
  if (ctx == NULL) {
    return NNCUDA_SUCCESS;
  }
  const int32_t status = nn_ctx_enter(ctx, __func__);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (__atomic_load_n(&ctx->shadowed, __ATOMIC_ACQUIRE) != 0) {
    return nn_ctx_leave(ctx, nn_fail(ctx, NNCUDA_ERROR_STATE,
                                     "the context is the reference of a shadow run; call nncuda_trace_end on the "
                                     "other context first"));
  }
  if (ctx->profile.running) {
    nn_profile_stop(ctx);
  }
  ctx->engine->synchronize(ctx);
  if (ctx->engine->threads != NULL) {
    ctx->engine->end_threads(ctx);
  }
  for (size_t i = 0; i < ctx->handles.capacity; i++) {
    if (ctx->handles.entries[i].value == (void *)(intptr_t)NN_HANDLE_GRAPH) {
      nn_graph_free(ctx, (nncuda_graph *)(uintptr_t)ctx->handles.entries[i].key);
    }
  }
  nn_profile_release(&ctx->profile);
  nn_trace_release(ctx);
  nn_pool_release(&ctx->pool);
  nn_pool_release(&ctx->host_pool);
  nn_arena_release(&ctx->arena);
  if (ctx->engine->close != NULL) {
    ctx->engine->close(ctx);
  }
  nn_table_release(&ctx->handles);
  ctx->magic = 0;
  free(ctx);
  return NNCUDA_SUCCESS;
}

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
    static const char *const kinds[] = {"", "a stream", "an event", "a graph"};
    return nn_fail(ctx, NNCUDA_ERROR_WRONG_DEVICE, "%s is %p; it must be %s of this context that was not destroyed",
                   name, handle, kinds[kind]);
  }
  return NNCUDA_SUCCESS;
}

static int32_t synchronize(nncuda_ctx *ctx) {
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  return ctx->engine->synchronize(ctx);
}

int32_t nncuda_ctx_synchronize(nncuda_ctx *ctx) { NN_INSIDE(ctx, synchronize(ctx)); }

static int32_t fail_attribute(nncuda_ctx *ctx, int32_t attribute) {
  return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is %d; it must be one of NNCUDA_CTX_*, 0 to %d", attribute,
                 NNCUDA_CTX_BYTES_HELD);
}

static int32_t get_attribute(nncuda_ctx *ctx, int32_t attribute, int64_t *value) {
  if (value == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "value is null; it must say where to put the attribute");
  }
  switch (attribute) {
  case NNCUDA_CTX_THREADS:
    *value = ctx->machine.threads;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_ISA:
    *value = ctx->machine.isa;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_DEVICE:
    *value = ctx->engine->device;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_DEVICE_INDEX:
    *value = ctx->index;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_BYTES_USED:
    *value = (int64_t)ctx->pool.used;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_BYTES_PEAK:
    *value = ctx->peak;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_BYTES_HELD:
    *value = ctx->held;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_BYTES_POOLED:
    *value = (int64_t)(ctx->pool.pooled + ctx->host_pool.pooled);
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_BYTES_ARENA:
    *value = (int64_t)(ctx->arena.capacity + ctx->graph_bytes);
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_TF32:
    *value = ctx->machine.tf32;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_MEASURING:
    *value = ctx->engine->measures;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_MULTIPROCESSORS:
    *value = ctx->machine.sms;
    return NNCUDA_SUCCESS;
  default:
    return fail_attribute(ctx, attribute);
  }
}

int32_t nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value) {
  NN_INSIDE(ctx, get_attribute(ctx, attribute, value));
}

static int32_t set_threads(nncuda_ctx *ctx, int64_t value) {
  if (ctx->engine->threads == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "attribute is NNCUDA_CTX_THREADS (0), which only the CPU engine has");
  }
  if (value < 1 || value > NN_MAX_THREADS) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; NNCUDA_CTX_THREADS must be 1 to %d",
                   (long long)value, NN_MAX_THREADS);
  }
  if (value != ctx->machine.threads) {
    ctx->engine->end_threads(ctx);
    ctx->machine.threads = (int32_t)value;
  }
  return NNCUDA_SUCCESS;
}

static int32_t set_isa(nncuda_ctx *ctx, int64_t value) {
  if (ctx->engine->threads == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is NNCUDA_CTX_ISA (1), which is read-only on a GPU");
  }
  const int32_t widest = ctx->engine->widest_isa(ctx->index);
  if (value < 0 || value > widest) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; NNCUDA_CTX_ISA must be 0 to %d on this processor",
                   (long long)value, widest);
  }
  ctx->machine.isa = (int32_t)value;
  ctx->engine->fill(ctx->machine.isa, ctx->kernel, ctx->layout);
  return NNCUDA_SUCCESS;
}

static int32_t set_attribute(nncuda_ctx *ctx, int32_t attribute, int64_t value) {
  switch (attribute) {
  case NNCUDA_CTX_THREADS:
    return set_threads(ctx, value);
  case NNCUDA_CTX_ISA:
    return set_isa(ctx, value);
  case NNCUDA_CTX_BYTES_PEAK:
  case NNCUDA_CTX_BYTES_POOLED:
    if (value != 0) {
      return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; attribute %d may only be set to 0",
                     (long long)value, attribute);
    }
    if (attribute == NNCUDA_CTX_BYTES_POOLED) {
      nn_pool_trim(&ctx->pool, 0);
      nn_pool_trim(&ctx->host_pool, 0);
    } else {
      ctx->peak = ctx->held = 0;
      nn_ctx_update_peak(ctx);
    }
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_TF32:
    if (value != 0 && value != 1) {
      return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "value is %lld; NNCUDA_CTX_TF32 must be 0 or 1",
                     (long long)value);
    }
    ctx->machine.tf32 = (int32_t)value;
    return NNCUDA_SUCCESS;
  case NNCUDA_CTX_DEVICE:
  case NNCUDA_CTX_DEVICE_INDEX:
  case NNCUDA_CTX_BYTES_USED:
  case NNCUDA_CTX_BYTES_ARENA:
  case NNCUDA_CTX_MEASURING:
  case NNCUDA_CTX_MULTIPROCESSORS:
  case NNCUDA_CTX_BYTES_HELD:
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "attribute is %d, which is read-only", attribute);
  default:
    return fail_attribute(ctx, attribute);
  }
}

int32_t nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value) {
  NN_INSIDE(ctx, set_attribute(ctx, attribute, value));
}

#include "context.h"
#include "graph.h"
#include "measure.h"
#include "profile.h"
#include "trace.h"

#include <stdlib.h>

const nn_engine *nn_engine_find(int32_t device) {
#if NNCUDA_CUDA
  if (device == NNCUDA_DEVICE_CUDA) {
    return &nn_gpu_engine;
  }
#endif
  return device == NNCUDA_DEVICE_CPU ? &nn_cpu_engine : NULL;
}

static int32_t make(const nn_engine *engine, int32_t index, const nn_machine *machine, nncuda_ctx **ctx) {
  nncuda_ctx *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  made->engine = engine;
  made->index = index;
  made->machine = *machine;
  made->nodes = engine->threads == NULL ? 0 : 1;
  made->arena = (nn_arena){.ctx = made, .source = &engine->memory};
  made->pool = (nn_pool){.ctx = made, .source = &engine->memory};
  made->host_pool = (nn_pool){.ctx = made, .source = &engine->host_memory};
  engine->fill(machine->isa, made->kernel, made->layout);
  const int32_t status = engine->open == NULL ? NNCUDA_SUCCESS : engine->open(made);
  if (status != NNCUDA_SUCCESS) {
    free(made);
    return status;
  }
  made->magic = NN_CTX_MAGIC;
  *ctx = made;
  return NNCUDA_SUCCESS;
}

/* The checks that both ways to make a context share. */
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
    if ((intptr_t)ctx->handles.entries[i].value == NN_HANDLE_GRAPH) {
      nn_graph_free(ctx, (nncuda_graph *)(uintptr_t)ctx->handles.entries[i].key);
    }
  }
  if (ctx->release_comms != NULL) { /* which a graph may use */
    ctx->release_comms(ctx);
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

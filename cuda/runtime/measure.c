#define _GNU_SOURCE
#include "measure.h"

#include "context.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LEAST_CAPABILITY = 70, MOST_CAPABILITY = 999, MOST_SMS = 1 << 16 };

/* ---- machines ---- */

/* V100, T4, A100, A40, L40S, H100 SXM, B200: NVIDIA's data sheets. What is newer counts as the last of them. */
int32_t nn_measuring_sms(int32_t capability) {
  static const struct {
    int32_t capability, sms;
  } known[] = {{70, 80}, {75, 40}, {80, 108}, {86, 84}, {89, 142}, {90, 132}, {100, 148}};
  int32_t sms = known[0].sms;
  for (size_t i = 0; i < sizeof known / sizeof *known && known[i].capability <= capability; i++) {
    sms = known[i].sms;
  }
  return sms;
}

int32_t nn_measuring_check(int32_t device, const nn_machine *machine) {
  const int32_t threads = machine->threads, sms = machine->sms, isa = machine->isa;
  const int32_t possible =
      device == NNCUDA_DEVICE_CPU
          ? nn_isa_within(isa, NN_ISA_LAST) && threads >= 1 && threads <= NN_MAX_THREADS && sms == 0
          : isa >= LEAST_CAPABILITY && isa <= MOST_CAPABILITY && threads == 0 && sms >= 1 && sms <= MOST_SMS;
  return possible ? NNCUDA_SUCCESS : NNCUDA_ERROR_INVALID_VALUE;
}

static int32_t count(void) { return 1; }

static int32_t widest_cpu(int32_t index) {
  (void)index;
  return nn_cpu_engine.isas - 1;
}

static int32_t widest_gpu(int32_t index) {
  (void)index;
  return MOST_CAPABILITY;
}

static int32_t threads(void) { return nn_cpu_engine.threads(); }

static void end_threads(nncuda_ctx *ctx) { (void)ctx; } /* there are none */

/* ---- memory ---- */

/* Addresses that belong to this context alone and cannot be read: they cost no memory. */
static void *take(nncuda_ctx *ctx, size_t bytes) {
  (void)ctx;
  void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void give(nncuda_ctx *ctx, void *memory, size_t bytes) {
  (void)ctx;
  munmap(memory, bytes);
}

static void *take_parts(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t parts) {
  (void)ranges, (void)parts;
  return take(ctx, bytes);
}

static void give_parts(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t parts) {
  (void)ranges, (void)parts;
  give(ctx, memory, bytes);
}

static void *take_host(nncuda_ctx *ctx, size_t bytes) { return nn_cpu_engine.host_memory.take(ctx, bytes); }

static void give_host(nncuda_ctx *ctx, void *memory, size_t bytes) {
  nn_cpu_engine.host_memory.give(ctx, memory, bytes);
}

static int32_t this_machine(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  return nn_cpu_engine.memory_info(ctx, free_bytes, total_bytes);
}

static int32_t not_known(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  (void)ctx, (void)free_bytes, (void)total_bytes;
  return 0;
}

static int32_t reaches(nncuda_ctx *ctx, const void *pointer) { return nn_pool_holds(&ctx->pool, pointer); }

/* Copies from the device give zeros, so that a program continues as with a real result. */
static void copy(nncuda_ctx *ctx, void *destination, size_t bytes, int32_t kind) {
  if (kind == NNCUDA_DEVICE_TO_HOST && !nn_pool_holds(&ctx->pool, destination)) {
    memset(destination, 0, bytes);
  }
}

/* ---- kernels ---- */

static int32_t run_nothing(nncuda_ctx *ctx, const void *args) {
  (void)ctx, (void)args;
  return NNCUDA_SUCCESS;
}

static int32_t run_memcpy(nncuda_ctx *ctx, const void *args) {
  const nn_memcpy_args *a = args;
  copy(ctx, a->destination, (size_t)a->bytes, a->kind);
  return NNCUDA_SUCCESS;
}

/* What runs here: copies, and collectives, which only count what they would send and call other kernels. */
static nn_kernel measuring(int32_t op, nn_kernel of_cpu) {
  const int32_t collective = op >= NN_OP_comm_broadcast;
  return op == NN_OP_memcpy ? run_memcpy : collective ? of_cpu : run_nothing;
}

static void fill_cpu(int32_t isa, nn_kernel *kernel, nn_layout *layout) {
  nn_cpu_engine.fill(isa, kernel, layout);
  for (int32_t op = 0; op < NN_OP_ALL; op++) {
    kernel[op] = kernel[op] == NULL ? NULL : measuring(op, kernel[op]);
  }
}

static void fill_gpu(int32_t isa, nn_kernel *kernel, nn_layout *layout) {
  (void)isa;
  nn_layout of_cpu[NN_OP_ALL];
  nn_cpu_engine.fill(0, kernel, of_cpu);
  memcpy(layout, nn_gpu_workspaces, sizeof nn_gpu_workspaces);
  for (int32_t op = 0; op < NN_OP_ALL; op++) {
    kernel[op] = measuring(op, kernel[op]);
  }
}

static int32_t synchronize(nncuda_ctx *ctx) {
  (void)ctx;
  return NNCUDA_SUCCESS;
}

/* ---- streams and events: everything has happened as soon as it is asked for, and took no time ---- */

struct nncuda_stream {
  char nothing;
};

struct nncuda_event {
  int32_t recorded;
};

static int32_t stream_create(nncuda_ctx *ctx, nncuda_stream **stream) {
  *stream = calloc(1, sizeof **stream);
  return *stream != NULL ? NNCUDA_SUCCESS : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a stream");
}

static void stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) {
  (void)ctx;
  free(stream);
}

static int32_t stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  (void)ctx, (void)stream;
  return NNCUDA_SUCCESS;
}

static int32_t stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  (void)ctx, (void)stream, (void)event;
  return NNCUDA_SUCCESS;
}

static int32_t stream_copy(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, size_t bytes,
                           int32_t kind) {
  (void)stream, (void)source;
  copy(ctx, destination, bytes, kind);
  return NNCUDA_SUCCESS;
}

static int32_t event_create(nncuda_ctx *ctx, nncuda_event **event) {
  *event = calloc(1, sizeof **event);
  return *event != NULL ? NNCUDA_SUCCESS : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for an event");
}

static void event_destroy(nncuda_ctx *ctx, nncuda_event *event) {
  (void)ctx;
  free(event);
}

static int32_t event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  (void)ctx, (void)stream;
  event->recorded = 1;
  return NNCUDA_SUCCESS;
}

static int32_t event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  (void)ctx, (void)event;
  return NNCUDA_SUCCESS;
}

static int32_t event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  (void)ctx, (void)event;
  *happened = 1;
  return NNCUDA_SUCCESS;
}

static int32_t event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  if (!start->recorded || !end->recorded) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "%s has not happened; record it and wait for it first",
                   start->recorded ? "end" : "start");
  }
  *milliseconds = 0.0f;
  return NNCUDA_SUCCESS;
}

static const nn_stream_functions streams = {stream_create,     stream_destroy, stream_synchronize, stream_wait_event,
                                            stream_copy,       event_create,   event_destroy,      event_record,
                                            event_synchronize, event_query,    event_elapsed};

/* Streams and events that were not destroyed. */
static void close(nncuda_ctx *ctx) {
  for (size_t i = 0; i < ctx->handles.capacity; i++) {
    const nn_table_entry *entry = &ctx->handles.entries[i];
    const intptr_t kind = (intptr_t)entry->value;
    if (kind == NN_HANDLE_STREAM || kind == NN_HANDLE_EVENT) {
      free((void *)(uintptr_t)entry->key);
    }
  }
}

/* ---- graphs: what the GPU keeps of one is the workspace ---- */

static int32_t capture_end(nncuda_ctx *ctx, void **executable) {
  *executable = ctx;
  return NNCUDA_SUCCESS;
}

static int32_t capture_launch(nncuda_ctx *ctx, void *executable) {
  (void)ctx, (void)executable;
  return NNCUDA_SUCCESS;
}

static void capture_destroy(nncuda_ctx *ctx, void *executable) { (void)ctx, (void)executable; }

static const nn_capture capture = {synchronize, capture_end, capture_launch, capture_destroy};

/* ---- time, of which there is none ---- */

static int64_t stamp(nncuda_ctx *ctx) {
  (void)ctx;
  return 0;
}

static int64_t elapsed(nncuda_ctx *ctx, int64_t from, int64_t to) {
  (void)ctx, (void)from, (void)to;
  return 0;
}

static void forget(nncuda_ctx *ctx, int64_t time) { (void)ctx, (void)time; }

const nn_engine nn_measuring_cpu = {.device = NNCUDA_DEVICE_CPU,
                                    .count = count,
                                    .widest_isa = widest_cpu,
                                    .fill = fill_cpu,
                                    .measures = 1,
                                    .threads = threads,
                                    .end_threads = end_threads,
                                    .close = close,
                                    .memory = {.take = take,
                                               .give = give,
                                               .alignment = 64,
                                               .lazy = 1,
                                               .take_parts = take_parts,
                                               .give_parts = give_parts,
                                               .grain = 1},
                                    .host_memory = {.take = take_host, .give = give_host, .visible = 1, .lazy = 1},
                                    .memory_info = this_machine,
                                    .synchronize = synchronize,
                                    .streams = &streams,
                                    .stamp = stamp,
                                    .elapsed = elapsed,
                                    .forget = forget};

const nn_engine nn_measuring_gpu = {.device = NNCUDA_DEVICE_CUDA,
                                    .count = count,
                                    .widest_isa = widest_gpu,
                                    .fill = fill_gpu,
                                    .measures = 1,
                                    .close = close,
                                    .memory = {.take = take,
                                               .give = give,
                                               .alignment = 256,
                                               .take_parts = take_parts,
                                               .give_parts = give_parts,
                                               .grain = NN_GPU_GRAIN},
                                    .host_memory = {.take = take_host, .give = give_host, .visible = 1},
                                    .memory_info = not_known,
                                    .reaches = reaches,
                                    .synchronize = synchronize,
                                    .streams = &streams,
                                    .capture = &capture,
                                    .stamp = stamp,
                                    .elapsed = elapsed,
                                    .forget = forget};

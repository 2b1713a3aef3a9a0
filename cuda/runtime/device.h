/*
 * What an engine does besides running kernels: memory, streams and events, graphs, times. The ABI checks arguments and
 * handles; what it calls here has only the work left to do.
 */
#ifndef NN_RUNTIME_DEVICE_H
#define NN_RUNTIME_DEVICE_H

#include "engine.h"

#include <stddef.h>
#include <stdint.h>

/* Of all that a system gives. */
enum { NN_MEMORY_ALIGNMENT = 256 };

/* Memory in parts on a GPU comes in multiples of this, which all GPUs so far allow (cuMemGetAllocationGranularity). */
enum { NN_GPU_GRAIN = 2 << 20 };

/* One kind of memory, for a pool or an arena. */
typedef struct nn_memory {
  void *(*take)(nncuda_ctx *ctx,
                size_t bytes); /* aligned to NN_MEMORY_ALIGNMENT; null when there is none. `bytes` > 0 */
  void (*give)(nncuda_ctx *ctx, void *memory, size_t bytes);
  size_t alignment; /* of the pieces of an arena */
  int32_t visible;  /* the host may touch it */
  int32_t lazy;     /* pages cost nothing until they are touched */
  /* `bytes` addresses, aligned likewise, of which [ranges[2*i], ranges[2*i + 1]) are zeroed memory: ascending multiples
   * of `grain`, none of which touch. Null as above. `give_parts` gets what `take_parts` got. */
  void *(*take_parts)(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t count);
  void (*give_parts)(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t count);
  int64_t grain; /* of memory in parts; 1 where a source rounds by itself, for nothing */
} nn_memory;

/* Streams and events. A null stream is the context's own. */
typedef struct nn_stream_functions {
  int32_t (*stream_create)(nncuda_ctx *ctx, nncuda_stream **stream);
  void (*stream_destroy)(nncuda_ctx *ctx, nncuda_stream *stream); /* waits for it first */
  int32_t (*stream_synchronize)(nncuda_ctx *ctx, nncuda_stream *stream);
  int32_t (*stream_wait_event)(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);
  int32_t (*stream_copy)(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, size_t bytes,
                         int32_t kind); /* not the own stream */
  int32_t (*event_create)(nncuda_ctx *ctx, nncuda_event **event);
  void (*event_destroy)(nncuda_ctx *ctx, nncuda_event *event);
  int32_t (*event_record)(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);
  int32_t (*event_synchronize)(nncuda_ctx *ctx, nncuda_event *event);
  int32_t (*event_query)(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened);
  int32_t (*event_elapsed)(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds);
} nn_stream_functions;

/* Graphs that the device replays by itself. Without it a launch runs the recorded calls one by one. */
typedef struct nn_capture {
  int32_t (*begin)(nncuda_ctx *ctx);                  /* kernels are noted from here on, not run */
  int32_t (*end)(nncuda_ctx *ctx, void **executable); /* null on failure; must be called after begin in any case */
  int32_t (*launch)(nncuda_ctx *ctx, void *executable);
  void (*destroy)(nncuda_ctx *ctx, void *executable);
} nn_capture;

/* The instruction sets of the processors that this library is for: the baseline, and these. */
#if defined(__x86_64__)
enum { NN_ISA_FIRST = NNCUDA_ISA_AVX2, NN_ISA_LAST = NNCUDA_ISA_AMX };
#elif defined(__aarch64__)
enum { NN_ISA_FIRST = NNCUDA_ISA_NEON, NN_ISA_LAST = NNCUDA_ISA_I8MM };
#else
enum { NN_ISA_FIRST = NNCUDA_ISA_BASELINE, NN_ISA_LAST = NNCUDA_ISA_BASELINE };
#endif

/* Whether `isa` is one of them, and not above `widest`. */
static inline int32_t nn_isa_within(int64_t isa, int32_t widest) {
  return isa == NNCUDA_ISA_BASELINE || (isa >= NN_ISA_FIRST && isa <= widest);
}

/* One kind of device. A context takes its kernels from one engine. */
typedef struct nn_engine {
  int32_t device; /* NNCUDA_DEVICE_* */
  int32_t (*count)(void);
  void (*describe)(int32_t index, char *text, size_t capacity);
  /* Widest instruction set that this machine and its system let us use; asks the system for it where it must. */
  int32_t (*widest_isa)(int32_t index);
  /* Fills kernel[NN_OP_ALL] with the widest form of each at or below `isa`, null where there is none, and
   * layout[NN_OP_ALL] with how it lays out its workspace, null where it has none. */
  void (*fill)(int32_t isa, nn_kernel *kernel, nn_layout *layout);
  int32_t measures;         /* nothing runs, and nobody may read its memory (measure.h) */
  int32_t isas;             /* one more than the last instruction set that it has code for; 0 on a GPU */
  int32_t (*threads)(void); /* how many threads of the host a new context has; null: the engine works with none */
  void (*end_threads)(
      nncuda_ctx *ctx); /* null with `threads`. The next call that has work for them starts them again */
  /* Makes and frees what a context has of the device, ctx->device. Null for nothing. */
  int32_t (*open)(nncuda_ctx *ctx);
  void (*close)(nncuda_ctx *ctx);
  /* Before and after what a thread does on the context: makes its device the thread's, and again what was the thread's
   * before. Each leave answers the last enter; a second one changes nothing. Null for nothing. */
  void (*enter)(nncuda_ctx *ctx);
  void (*leave)(nncuda_ctx *ctx);
  nn_memory memory, host_memory;
  int32_t (*memory_info)(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes); /* false: not known */
  /* Whether kernels may touch what lies there; null for any memory of the process. */
  int32_t (*reaches)(nncuda_ctx *ctx, const void *pointer);
  int32_t (*synchronize)(nncuda_ctx *ctx); /* all streams; the first error that the device met */
  /* Device to host, after all work; null where the host may simply look. */
  int32_t (*read)(nncuda_ctx *ctx, void *to, const void *from, size_t bytes);
  const nn_stream_functions *streams;
  const nn_capture *capture; /* or null */
  /* A point in the order of the own stream (0: there was no memory for one), and the nanoseconds between two of them
   * once the stream is past both. Each must be forgotten. */
  int64_t (*stamp)(nncuda_ctx *ctx);
  int64_t (*elapsed)(nncuda_ctx *ctx, int64_t from, int64_t to);
  void (*forget)(nncuda_ctx *ctx, int64_t stamp);
  /* The own stream as libraries of the device's maker know it; null where there are none. */
  void *(*native_stream)(nncuda_ctx *ctx);
} nn_engine;

/* Memory nodes (NUMA) over which the CPU engine's threads can be spread: those of which this process may use a
 * processor; 1 also where the system does not say. */
int32_t nn_nodes_count(void);

extern const nn_engine nn_cpu_engine;
#if NNCUDA_CUDA
extern const nn_engine nn_gpu_engine;
#endif

/* How the kernels of the GPU engine lay out their workspaces; every build has it, with that engine or without. */
extern const nn_layout nn_gpu_workspaces[NN_OP_ALL];

/* The engine of a device, or null when this library was built without it. */
const nn_engine *nn_engine_find(int32_t device);

#endif

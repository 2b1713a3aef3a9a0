/*
 * What a context holds, and how a function enters and leaves it. Entry points and engines see this header; kernels do
 * not.
 */
#ifndef NN_RUNTIME_CONTEXT_H
#define NN_RUNTIME_CONTEXT_H

#include "arena.h"
#include "device.h"
#include "engine.h"
#include "interface.h"
#include "pool.h"
#include "table.h"
#include "text.h"

#include <stdarg.h>
#include <stdint.h>

enum { NN_MAX_THREADS = 256, NN_ERROR_CAPACITY = 768, NN_LABEL_CAPACITY = 128 };

/* profile.c: one measured call. Kept in an array that grows. */
typedef struct nn_measurement {
  nn_op op;
  int64_t begin, duration; /* nanoseconds; begin counts from the start of profiling. Two stamps while it runs */
  double bytes, flops;
} nn_measurement;

typedef struct nn_profile {
  int32_t running;
  int64_t begin, length; /* nanoseconds of the clock; how long it ran */
  nn_measurement *calls;
  size_t count, capacity;
  size_t lost; /* calls that were not noted for want of memory */
} nn_profile;

/* trace.c: the running trace, its kind (trace.h) and what it has found. */
typedef struct nn_tracer nn_tracer;

typedef struct nn_trace {
  int32_t running;
  int64_t calls; /* so far; those that fail count */
  char label[NN_LABEL_CAPACITY];
  nn_text text;
  const nn_tracer *tracer; /* null when nothing was traced yet */
  void *state;
} nn_trace;

struct nncuda_ctx {
  uint64_t magic; /* distinguishes a context from other memory */
  int32_t busy;   /* 1 while a thread is inside a call; atomic */
  const nn_engine *engine;
  int32_t index;
  nn_machine machine;
  int32_t nodes; /* over which worker threads are spread: NNCUDA_CTX_NODES */
  nn_kernel kernel[NN_OP_ALL];
  nn_layout layout[NN_OP_ALL];
  const char *function; /* the function that is running, for messages */
  char error[NN_ERROR_CAPACITY];
  struct nn_workers *workers; /* of the CPU engine; null until a call has work for them */
  nn_arena arena;
  nn_workspace workspace;                 /* of the running call */
  nn_pool pool, host_pool;                /* of nncuda_malloc and nncuda_malloc_host */
  void *device;                           /* what the engine keeps for this context, or null */
  size_t graph_bytes;                     /* scratch memory of the graphs */
  int64_t peak;                           /* the most that buffers and scratch together ever were, in bytes */
  int64_t held;                           /* the same in pages of the device */
  nn_table handles;                       /* streams, events, graphs and communicators -> their NN_HANDLE_* */
  void (*release_comms)(nncuda_ctx *ctx); /* set by the first communicator */
  int32_t (*comm_wait)(nncuda_ctx *ctx);  /* null, or waits for the own stream as long as the peers answer */
  nncuda_graph *capture;                  /* what is being captured, or null */
  nn_profile profile;
  nn_trace trace;
  int32_t shadowed; /* shadow runs that have this context as their reference; atomic */
};

/* The first word of a context that was made and not destroyed. */
#define NN_CTX_MAGIC UINT64_C(0x6e6e637564614354)

/* Enters the context for `function` (its exported name): INVALID_CONTEXT or BUSY when that is not possible, in which
 * case the context was not touched. Clears the last error. */
int32_t nn_ctx_enter(nncuda_ctx *ctx, const char *function);

/* Gives the thread back the device that it had before the context was entered; the context stays taken. For what is
 * done on another context meanwhile. */
void nn_ctx_suspend(nncuda_ctx *ctx);

/* Takes the context's device again, after nn_ctx_suspend. */
void nn_ctx_resume(nncuda_ctx *ctx);

/* Leaves it; returns `status`, for `return nn_ctx_leave(ctx, ...)`. */
int32_t nn_ctx_leave(nncuda_ctx *ctx, int32_t status);

/* The body of a function that is not a kernel: `return` what `result` gives, evaluated inside the context. */
#define NN_INSIDE(ctx, result)                                                                                         \
  const int32_t entered_ = nn_ctx_enter(ctx, __func__);                                                                \
  return entered_ != NNCUDA_SUCCESS ? entered_ : nn_ctx_leave(ctx, result)

/* nn_fail with the arguments as a list. */
int32_t nn_fail_list(nncuda_ctx *ctx, int32_t status, const char *format, va_list list);

/* Fails with NNCUDA_ERROR_CAPTURING. */
int32_t nn_fail_capturing(nncuda_ctx *ctx);

void nn_ctx_update_peak(nncuda_ctx *ctx);

/* Streams, events, graphs and communicators: a handle is known by its address, so that foreign ones are never followed.
 * A graph may have calls on a communicator that was destroyed: its address is not used again. */
enum {
  NN_HANDLE_STREAM = 1,
  NN_HANDLE_EVENT = 2,
  NN_HANDLE_GRAPH = 3,
  NN_HANDLE_COMM = 4,
  NN_HANDLE_COMM_DESTROYED = 5
};
int32_t nn_handle_add(nncuda_ctx *ctx, const void *handle, int32_t kind);
int32_t nn_handle_check(nncuda_ctx *ctx, const void *handle, int32_t kind, const char *name);

#endif

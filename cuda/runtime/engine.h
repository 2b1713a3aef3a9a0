/*
 * What an engine gives (a table of kernels) and what its kernels get from the context (threads, workspace, errors).
 * Kernels see this header and their family's arguments, abi/<family>.h, nothing else of the runtime.
 */
#ifndef NN_RUNTIME_ENGINE_H
#define NN_RUNTIME_ENGINE_H

#include "interface.h"
#include "numbers/sizes.h"
#include "ops.h" /* NN_OPS(X) lists every cuda_<kernel> */
#include "poison.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NN_OP_ENUM(name) NN_OP_##name,
/* After the kernels of the header: the moves of nncuda_memset and nncuda_memcpy and the collectives, which are
 * dispatched likewise. */
typedef enum nn_op {
  NN_OPS(NN_OP_ENUM) NN_OP_COUNT,
  NN_OP_memset = NN_OP_COUNT,
  NN_OP_memcpy,
  NN_OP_comm_broadcast,
  NN_OP_comm_all_gather,
  NN_OP_comm_all_reduce,
  NN_OP_comm_reduce_scatter,
  NN_OP_comm_reduce_scatter_begin,
  NN_OP_comm_reduce_scatter_end,
  NN_OP_comm_move,
  NN_OP_comm_grad_norm,
  NN_OP_comm_dispatch,
  NN_OP_comm_collect,
  NN_OP_comm_dispatch_begin,
  NN_OP_comm_dispatch_end,
  NN_OP_comm_collect_begin,
  NN_OP_comm_collect_end,
  NN_OP_ALL
} nn_op;
#undef NN_OP_ENUM

/* A kernel takes its family's argument struct (abi/<family>.h), checked already, and returns a status. */
typedef int32_t (*nn_kernel)(nncuda_ctx *ctx, const void *args);

/* What a workspace may depend on besides the arguments. */
typedef struct nn_machine {
  int32_t isa;       /* NNCUDA_ISA_*; of a GPU its compute capability, 90 for 9.0 */
  int32_t threads;   /* of the CPU engine; 0 on a GPU */
  int32_t sms;       /* multiprocessors of the GPU; 0 on the CPU */
  int32_t tf32;      /* f32 products may round their factors to tf32 */
  int32_t two_parts; /* attention's backward pass multiplies in two parts, however long a sequence is */
} nn_machine;

/*
 * The workspace of a call: memory that its kernel has until it returns, uninitialised. A kernel that needs one lays it
 * out in a function of its own, piece by piece with nn_workspace_piece. That function runs twice: before the call,
 * without memory, which gives the size, and in the kernel, for the pieces. So a kernel takes exactly what it states; a
 * context that measures, where no kernel runs, makes sure of it (run.c). The layout depends on the sizes and options of
 * the call and on the machine, never on data: where data decides, it is the most that the sizes allow. Nor does it
 * depend on which pointers are alike, since pieces have none while the size is being found; nor look into its pieces,
 * which in a context that measures are addresses without memory.
 */
typedef struct nn_workspace {
  const nn_machine *machine;
  unsigned char *memory;            /* null while the size is being found */
  size_t used, capacity, alignment; /* bytes; `alignment` is that of each piece */
} nn_workspace;

typedef void (*nn_layout)(const void *args, nn_workspace *workspace);

/* The next piece. Null while the size is being found. */
NN_PLAIN static inline void *nn_workspace_piece(nn_workspace *workspace, size_t bytes) {
  const size_t most = SIZE_MAX / 2, grain = workspace->alignment;
  void *const piece = workspace->memory == NULL ? NULL : workspace->memory + workspace->used;
  /* No memory holds `most` bytes: sums that would wrap stop there. The sanitizer sees a gap behind each piece. */
  size_t step = bytes < most ? (bytes + grain - 1) & ~(grain - 1) : most;
  step += NN_ADDRESS_SANITIZER ? grain : 0;
  workspace->used = step < most - workspace->used ? workspace->used + step : most;
  if (workspace->used > workspace->capacity) {
    __builtin_trap(); /* more than the kernel stated */
  }
  if (piece != NULL) {
    nn_unpoison(piece, bytes);
  }
  return piece;
}

/* The workspace of the running call. */
nn_workspace *nn_workspace_of(nncuda_ctx *ctx);

/* Another kernel of the CPU engine as a part of the one that runs: what it would do by itself. Its pieces of the
 * workspace follow those that were taken, so the kernel's own layout lays the parts out in the same order. */
int32_t nn_part_run(nncuda_ctx *ctx, nn_op op, const void *args);
void nn_part_lay_out(nn_op op, const void *args, nn_workspace *workspace);

/* Sets the context's last error and returns `status`, so that a kernel can `return nn_fail(...)`. */
int32_t nn_fail(nncuda_ctx *ctx, int32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Runs task(arg, i, worker) for i in 0 .. tasks-1, on any worker (0 .. threads-1) and in any order, and returns when
 * all are done. What a task computes may depend on i alone. */
typedef void (*nn_task)(void *arg, int64_t i, int32_t worker);
void nn_parallel(nncuda_ctx *ctx, int64_t tasks, nn_task task, void *arg);

#ifdef __cplusplus
}
#endif

#endif

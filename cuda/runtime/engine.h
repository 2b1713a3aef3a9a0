/*
 * What an engine gives (a table of kernels) and what its kernels get from the context (threads, scratch, errors).
 * Kernels see this header and their family's arguments, abi/<family>.h, nothing else of the runtime.
 */
#ifndef NN_RUNTIME_ENGINE_H
#define NN_RUNTIME_ENGINE_H

#include "interface.h"
#include "ops.h" /* NN_OPS(X) lists every cuda_<kernel> */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NN_OP_ENUM(name) NN_OP_##name,
/* Behind the kernels of the header: the moves of nncuda_memset and nncuda_memcpy, which go through the same door. */
typedef enum nn_op { NN_OPS(NN_OP_ENUM) NN_OP_COUNT, NN_OP_memset = NN_OP_COUNT, NN_OP_memcpy, NN_OP_ALL } nn_op;
#undef NN_OP_ENUM

/* A kernel takes its family's argument struct (abi/<family>.h), checked already, and returns a status. */
typedef int32_t (*nn_kernel)(nncuda_ctx *ctx, const void *args);

/* Sets the context's last error and returns `status`, so that a kernel can `return nn_fail(...)`. */
int32_t nn_fail(nncuda_ctx *ctx, int32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Scratch memory, 64-byte aligned, uninitialised, valid until the running kernel returns. Null when there is no memory
 * left; the error is set already: `return NNCUDA_ERROR_OUT_OF_MEMORY`. Only the thread that runs the kernel may call
 * it. */
void *nn_scratch(nncuda_ctx *ctx, size_t bytes);

/* Threads that nn_parallel may use, so that scratch can be cut per worker. Must not decide how sums are cut. */
int32_t nn_threads(nncuda_ctx *ctx);

/* Runs task(arg, i, worker) for i in 0 .. tasks-1, on any worker (0 .. nn_threads-1) and in any order, and returns when
 * all are done. What a task computes may depend on i alone. */
typedef void (*nn_task)(void *arg, int64_t i, int32_t worker);
void nn_parallel(nncuda_ctx *ctx, int64_t tasks, nn_task task, void *arg);

#ifdef __cplusplus
}
#endif

#endif

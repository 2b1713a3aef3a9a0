/* Collectives: what they are run with, and how engines enter them into their tables. */
#ifndef NN_COMM_COLLECTIVE_H
#define NN_COMM_COLLECTIVE_H

#include "runtime/engine.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nn_comm_args {
  nncuda_comm *comm;
  void *x;
  int64_t n, grain, root;
} nn_comm_args;

/* The layouts of those that have a workspace. */
void nn_comm_all_reduce_workspace(const void *args, nn_workspace *workspace);
void nn_comm_reduce_scatter_workspace(const void *args, nn_workspace *workspace);
void nn_comm_grad_norm_workspace(const void *args, nn_workspace *workspace);

/* Of reduce.c. */
int32_t nn_comm_reduce_scatter(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_reduce_scatter_begin(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_reduce_scatter_end(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_grad_norm(nncuda_ctx *ctx, const void *args);

/* Of experts.c. */
int32_t nn_comm_dispatch(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_collect(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_dispatch_begin(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_dispatch_end(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_collect_begin(nncuda_ctx *ctx, const void *args);
int32_t nn_comm_collect_end(nncuda_ctx *ctx, const void *args);

/* Enters the collectives, which are the same on every engine. */
void nn_comm_fill(nn_kernel *kernel, nn_layout *layout);

#ifdef __cplusplus
}
#endif

#endif

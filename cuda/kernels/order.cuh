/* Streams, events, graphs and times of the GPU engine. */
#ifndef NN_KERNELS_ORDER_CUH
#define NN_KERNELS_ORDER_CUH

#include "kernels/engine.cuh"

extern const nn_order nn_gpu_order;
extern const nn_capture nn_gpu_capture;

/* Waits for all streams of the context; the first error that its device met. */
int32_t nn_order_wait(nncuda_ctx *ctx);
/* Frees streams and events. */
void nn_order_close(nncuda_ctx *ctx);

int64_t nn_order_stamp(nncuda_ctx *ctx);
int64_t nn_order_elapsed(nncuda_ctx *ctx, int64_t from, int64_t to);
void nn_order_forget(nncuda_ctx *ctx, int64_t stamp);

#endif

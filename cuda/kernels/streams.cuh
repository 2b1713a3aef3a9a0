/* Streams, events, graphs and times of the GPU engine. */
#ifndef NN_KERNELS_STREAMS_CUH
#define NN_KERNELS_STREAMS_CUH

#include "kernels/engine.cuh"

extern const nn_stream_functions nn_gpu_streams;
extern const nn_capture nn_gpu_capture;

/* Waits for all streams of the context; the first error that its device met. */
int32_t nn_streams_wait(nncuda_ctx *ctx);
/* Waits for all streams of the context, and leaves errors and faults to the next that asks for them. */
void nn_streams_drain(nncuda_ctx *ctx);
/* Frees streams and events. */
void nn_streams_close(nncuda_ctx *ctx);

int64_t nn_stamp(nncuda_ctx *ctx);
int64_t nn_stamp_elapsed(nncuda_ctx *ctx, int64_t from, int64_t to);
void nn_stamp_forget(nncuda_ctx *ctx, int64_t stamp);

#endif

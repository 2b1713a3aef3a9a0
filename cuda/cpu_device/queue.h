/* Streams and events of the CPU engine: a stream is a thread that works off a queue. */
#ifndef NN_CPU_DEVICE_QUEUE_H
#define NN_CPU_DEVICE_QUEUE_H

#include "runtime/device.h"

extern const nn_stream_functions nn_queues;

/* Waits until every stream has done all that was given to it. */
int32_t nn_queues_wait(nncuda_ctx *ctx);
/* Waits, ends the threads, frees streams and events. */
void nn_queues_close(nncuda_ctx *ctx);

#endif

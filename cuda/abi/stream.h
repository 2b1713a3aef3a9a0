/* Streams and events of a context. */
#ifndef NN_ABI_STREAM_H
#define NN_ABI_STREAM_H

#include "bindings.h"

#include <stdint.h>

typedef struct nn_streams nn_streams;

/* Waits until every stream has done all that was given to it. Null is fine. */
void nn_streams_wait(nn_streams *streams);
/* Waits, ends the threads, frees streams and events. Null is fine. */
void nn_streams_stop(nn_streams *streams);

#endif

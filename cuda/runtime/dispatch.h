/* All kernel calls go through here, and from here to a graph, a trace or the kernel. */
#ifndef NN_RUNTIME_DISPATCH_H
#define NN_RUNTIME_DISPATCH_H

#include "record.h"

/* Records the call while a graph is captured, else runs it. */
int32_t nn_dispatch(nncuda_ctx *ctx, const nn_record *record);

#endif

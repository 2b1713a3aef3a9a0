/* The calls of a captured graph. */
#ifndef NN_RUNTIME_GRAPH_H
#define NN_RUNTIME_GRAPH_H

#include "record.h"

int32_t nn_graph_append(nncuda_ctx *ctx, const nn_record *record);
void nn_graph_free(nncuda_ctx *ctx, nncuda_graph *graph);

#endif

#include "context.h"
#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

/* A recorded call, followed in the same allocation by its tensors and its arguments. */
typedef struct node {
  struct node *next;
  nn_record record;
  _Alignas(16) unsigned char data[];
} node;

struct nncuda_graph {
  node *first, *last;
  int64_t nodes;
};

int32_t nn_graph_append(nncuda_ctx *ctx, const nn_record *record) {
  nncuda_graph *graph = ctx->capture;
  const size_t tensor_bytes = ((size_t)record->tensors * sizeof(nn_tensor) + 15) / 16 * 16;
  node *added = malloc(sizeof *added + tensor_bytes + record->args_bytes);
  if (added == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory to record the call");
  }
  added->next = NULL;
  added->record = *record;
  memcpy(added->data, record->tensor, (size_t)record->tensors * sizeof(nn_tensor));
  memcpy(added->data + tensor_bytes, record->args, record->args_bytes);
  added->record.tensor = (const nn_tensor *)(const void *)added->data;
  added->record.args = added->data + tensor_bytes;
  if (graph->last == NULL) {
    graph->first = added;
  } else {
    graph->last->next = added;
  }
  graph->last = added;
  graph->nodes++;
  return NNCUDA_SUCCESS;
}

void nn_graph_free(nncuda_graph *graph) {
  while (graph != NULL && graph->first != NULL) {
    node *gone = graph->first;
    graph->first = gone->next;
    free(gone);
  }
  free(graph);
}

static int32_t begin(nncuda_ctx *ctx) {
  if (ctx->capture != NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "a graph is being captured already; call nncuda_graph_end first");
  }
  ctx->capture = calloc(1, sizeof *ctx->capture);
  return ctx->capture == NULL ? nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a graph") : NNCUDA_SUCCESS;
}

static int32_t end(nncuda_ctx *ctx, nncuda_graph **graph) {
  if (graph == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "graph is null; it must say where to put the graph");
  }
  *graph = NULL;
  if (ctx->capture == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "no graph is being captured; call nncuda_graph_begin first");
  }
  const int32_t status = nn_handle_add(ctx, ctx->capture, NN_HANDLE_GRAPH);
  if (status == NNCUDA_SUCCESS) {
    *graph = ctx->capture;
    ctx->capture = NULL;
  }
  return status;
}

static int32_t launch(nncuda_ctx *ctx, nncuda_graph *graph) {
  int32_t status = nn_handle_check(ctx, graph, NN_HANDLE_GRAPH, "graph");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  for (const node *n = graph->first; n != NULL && status == NNCUDA_SUCCESS; n = n->next) {
    ctx->function = nn_op_name(n->record.op); /* errors name the call inside the graph */
    status = nn_run(ctx, &n->record);
  }
  return status;
}

static int32_t size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes) {
  const int32_t status = nn_handle_check(ctx, graph, NN_HANDLE_GRAPH, "graph");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (nodes == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "nodes is null; it must say where to put the number");
  }
  *nodes = graph->nodes;
  return NNCUDA_SUCCESS;
}

static int32_t destroy(nncuda_ctx *ctx, nncuda_graph *graph) {
  if (graph == NULL) {
    return NNCUDA_SUCCESS;
  }
  const int32_t status = nn_handle_check(ctx, graph, NN_HANDLE_GRAPH, "graph");
  if (status == NNCUDA_SUCCESS) {
    nn_table_remove(&ctx->handles, graph);
    nn_graph_free(graph);
  }
  return status;
}

int32_t nncuda_graph_begin(nncuda_ctx *ctx) { NN_INSIDE(ctx, begin(ctx)); }

int32_t nncuda_graph_end(nncuda_ctx *ctx, nncuda_graph **graph) { NN_INSIDE(ctx, end(ctx, graph)); }

int32_t nncuda_graph_launch(nncuda_ctx *ctx, nncuda_graph *graph) { NN_INSIDE(ctx, launch(ctx, graph)); }

int32_t nncuda_graph_size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes) {
  NN_INSIDE(ctx, size(ctx, graph, nodes));
}

int32_t nncuda_graph_destroy(nncuda_ctx *ctx, nncuda_graph *graph) { NN_INSIDE(ctx, destroy(ctx, graph)); }

#include "graph.h"

#include "context.h"
#include "run.h"
#include "trace.h"

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
  void *executable; /* what the device replays by itself, or null */
  nn_arena arena;   /* the workspaces of its calls */
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

void nn_graph_free(nncuda_ctx *ctx, nncuda_graph *graph) {
  if (graph != NULL) {
    if (graph->executable != NULL) {
      ctx->engine->capture->destroy(ctx, graph->executable);
    }
    ctx->graph_bytes -= graph->arena.capacity;
    nn_arena_release(&graph->arena);
  }
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
  nncuda_graph *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a graph");
  }
  made->arena = (nn_arena){.ctx = ctx, .source = &ctx->engine->memory};
  /* Allocated here, so that ending a capture needs no memory: if that failed, the context would never stop capturing.
   */
  const int32_t status = nn_handle_add(ctx, made, NN_HANDLE_GRAPH);
  if (status != NNCUDA_SUCCESS) {
    free(made);
    return status;
  }
  ctx->capture = made;
  return NNCUDA_SUCCESS;
}

/* Runs the calls one by one. Errors name the call inside the graph. */
static int32_t run_nodes(nncuda_ctx *ctx, const nncuda_graph *graph, int32_t (*run)(nncuda_ctx *, const nn_record *)) {
  int32_t status = NNCUDA_SUCCESS;
  for (const node *n = graph->first; n != NULL && status == NNCUDA_SUCCESS; n = n->next) {
    ctx->function = nn_op_name(n->record.op);
    status = run(ctx, &n->record);
  }
  return status;
}

/* The calls of a graph have no label: what is set now may be of anything else. */
static int32_t trace_nodes(nncuda_ctx *ctx, const nncuda_graph *graph) {
  char label[NN_LABEL_CAPACITY];
  memcpy(label, ctx->trace.label, sizeof label);
  memset(ctx->trace.label, 0, sizeof label);
  const int32_t status = run_nodes(ctx, graph, nn_trace_run);
  memcpy(ctx->trace.label, label, sizeof label);
  return status;
}

/* Lets the device record the calls, each with the graph's own arena. */
static int32_t note_nodes(nncuda_ctx *ctx, nncuda_graph *graph) {
  const nn_capture *capture = ctx->engine->capture;
  int32_t status = capture->begin(ctx);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = run_nodes(ctx, graph, nn_run_kernel);
  const int32_t ended = capture->end(ctx, &graph->executable);
  return status != NNCUDA_SUCCESS ? status : ended;
}

static int32_t instantiate(nncuda_ctx *ctx, nncuda_graph *graph) {
  if (ctx->engine->capture == NULL || graph->nodes == 0) {
    return NNCUDA_SUCCESS;
  }
  size_t most = 0;
  for (const node *n = graph->first; n != NULL; n = n->next) {
    const size_t bytes = nn_workspace_bytes(ctx, &n->record);
    most = bytes > most ? bytes : most;
  }
  const nn_arena own = ctx->arena;
  ctx->arena = graph->arena;
  /* All at once: the memory that calls were recorded with must not be replaced later. */
  int32_t status = nn_workspace_take(ctx, most);
  if (status == NNCUDA_SUCCESS) {
    status = note_nodes(ctx, graph);
  }
  graph->arena = ctx->arena;
  ctx->arena = own;
  ctx->graph_bytes += graph->arena.capacity;
  nn_ctx_update_peak(ctx);
  return status;
}

static int32_t end(nncuda_ctx *ctx, nncuda_graph **graph) {
  if (graph == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "graph is null; it must say where to put the graph");
  }
  *graph = NULL;
  if (ctx->capture == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "no graph is being captured; call nncuda_graph_begin first");
  }
  nncuda_graph *made = ctx->capture;
  ctx->capture = NULL;
  const int32_t status = instantiate(ctx, made);
  if (status != NNCUDA_SUCCESS) {
    nn_table_remove(&ctx->handles, made);
    nn_graph_free(ctx, made);
    return status;
  }
  *graph = made;
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
  if (graph->executable != NULL && !ctx->profile.running && !ctx->trace.running) {
    return ctx->engine->capture->launch(ctx, graph->executable);
  }
  return ctx->trace.running ? trace_nodes(ctx, graph) : run_nodes(ctx, graph, nn_run);
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
    nn_graph_free(ctx, graph);
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

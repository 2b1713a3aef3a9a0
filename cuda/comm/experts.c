/* The exchange of rows between ranks that have experts each: in one call, and the entry points of all its forms. */
#include "collective.h"
#include "runtime/call.h"
#include "traffic.h"

/* From x to y, or back. */
static int32_t exchange_rows(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t, int32_t back) {
  t->count = 0;
  for (int64_t step = 1; step < a->comm->ranks; step++) {
    nn_traffic_post_step(a, t, step, back);
  }
  const int32_t status = nn_comm_exchange(ctx, a->comm, t->messages, t->count);
  return status != NNCUDA_SUCCESS ? status : nn_traffic_copy_kept(ctx, a, t, back);
}

int32_t nn_comm_dispatch(nncuda_ctx *ctx, const void *args) {
  const nn_experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm); /* a graph may outlive it */
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : nn_traffic_count(a, a->own + 1);
  }
  nn_traffic t;
  status = nn_traffic_open(ctx, a, &t);
  status = status == NNCUDA_SUCCESS ? nn_traffic_read_offsets(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? nn_traffic_learn_slots(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? exchange_rows(ctx, a, &t, 0) : status;
  nn_traffic_close(&t);
  return status;
}

int32_t nn_comm_collect(nncuda_ctx *ctx, const void *args) {
  const nn_experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : nn_traffic_count(a, 0);
  }
  nn_traffic t;
  status = nn_traffic_open(ctx, a, &t);
  status = status == NNCUDA_SUCCESS ? nn_traffic_read_offsets(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? nn_traffic_read_slots(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? nn_traffic_check_kept(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? exchange_rows(ctx, a, &t, 1) : status;
  nn_traffic_close(&t);
  return status;
}

/* ---- entry points ---- */

/* Enters a call and checks the sizes that all of these have. */
static nn_call enter(nncuda_ctx *ctx, nn_op op, const nn_experts_args *a, int64_t ranks) {
  nn_call call;
  nn_call_begin(&call, ctx, op);
  if (call.status == NNCUDA_SUCCESS) {
    call.status = nn_comm_check(ctx, a->comm);
  }
  nn_call_size_if(&call, "rows", a->rows, 0); /* a rank without rows takes part as well */
  nn_call_size(&call, "slot_rows", a->slot_rows);
  nn_call_size(&call, "row_bytes", a->row_bytes);
  nn_call_size(&call, "ranks", ranks);
  nn_call_require(&call, call.status != NNCUDA_SUCCESS || ranks == a->comm->ranks, NNCUDA_ERROR_INVALID_SIZE,
                  "ranks is %lld; it must be the number of ranks of the communicator", (long long)ranks);
  nn_call_require(&call, !call.entered || ctx->capture == NULL || ctx->engine->device != NNCUDA_DEVICE_CUDA,
                  NNCUDA_ERROR_CAPTURING, "on a GPU the host waits for the offsets, so the call cannot be captured");
  return call;
}

static void declare_x(nn_call *call, const nn_experts_args *a, int32_t role) {
  nn_call_tensor(call, a->rows > 0 ? role : role | NN_ROLE_OPTIONAL, "x", a->x, NN_U8, NULL, 0,
                 NN_SHAPE("[rows, row_bytes]", a->rows, a->row_bytes));
}

static void declare_y(nn_call *call, const nn_experts_args *a, int32_t role, int64_t ranks) {
  nn_call_tensor(call, role, "y", a->y, NN_U8, NULL, 0,
                 NN_SHAPE("[ranks, slot_rows, row_bytes]", ranks, a->slot_rows, a->row_bytes));
}

static void declare_offsets(nn_call *call, const nn_experts_args *a, int64_t ranks) {
  nn_call_size(call, "own", a->own);
  nn_call_tensor(call, a->rows > 0 ? NN_ROLE_IN : NN_ROLE_IN | NN_ROLE_OPTIONAL, "offsets", a->offsets, NNCUDA_I32,
                 NULL, 0, NN_SHAPE("[ranks*own+1]", nn_add(nn_mul(ranks, a->own), 1)));
}

static void declare_y_offsets(nn_call *call, const nn_experts_args *a, int32_t role, int64_t ranks) {
  nn_call_tensor(call, role, "y_offsets", a->y_offsets, NNCUDA_I32, NULL, 0,
                 NN_SHAPE("[ranks, own+1]", ranks, nn_add(a->own, 1)));
}

/* Of a call that moves x and y: nobody looks at what travels, so both are declared as parts. */
static void count_moved(nn_call *call, const nn_experts_args *a, int64_t ranks) {
  if (call->status == NNCUDA_SUCCESS) {
    call->bytes += (double)a->row_bytes * ((double)a->rows + (double)ranks * (double)a->slot_rows);
  }
}

static void require_source(nn_call *call, const nn_experts_args *a) {
  nn_call_require(call, call->status != NNCUDA_SUCCESS || (a->source >= 0 && a->source < a->comm->ranks),
                  NNCUDA_ERROR_INVALID_VALUE, "source is %lld; it must be a rank of the communicator",
                  (long long)a->source);
}

static int32_t launch(nncuda_ctx *ctx, nn_op op, nn_experts_args a, int64_t ranks) {
  const int32_t back = op == NN_OP_comm_collect, of_y = back ? NN_ROLE_IN : NN_ROLE_OUT;
  nn_call call = enter(ctx, op, &a, ranks);
  declare_x(&call, &a, back ? NN_ROLE_OUT : NN_ROLE_IN);
  declare_offsets(&call, &a, ranks);
  declare_y(&call, &a, of_y, ranks);
  declare_y_offsets(&call, &a, of_y, ranks);
  return nn_call_launch(&call, &a, sizeof a);
}

int32_t nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y,
                             int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks,
                             int64_t own) {
  const nn_experts_args args = {.comm = comm,
                                .x = (void *)(uintptr_t)x,
                                .y = y,
                                .offsets = (int32_t *)(uintptr_t)offsets,
                                .y_offsets = y_offsets,
                                .rows = rows,
                                .slot_rows = slot_rows,
                                .row_bytes = row_bytes,
                                .own = own};
  return launch(ctx, NN_OP_comm_dispatch, args, ranks);
}

int32_t nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, const int32_t *y_offsets, void *x,
                            const int32_t *offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks,
                            int64_t own) {
  const nn_experts_args args = {.comm = comm,
                                .x = x,
                                .y = (void *)(uintptr_t)y,
                                .offsets = (int32_t *)(uintptr_t)offsets,
                                .y_offsets = (int32_t *)(uintptr_t)y_offsets,
                                .rows = rows,
                                .slot_rows = slot_rows,
                                .row_bytes = row_bytes,
                                .own = own};
  return launch(ctx, NN_OP_comm_collect, args, ranks);
}

int32_t nncuda_comm_dispatch_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y,
                                   int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes,
                                   int64_t ranks, int64_t own, int32_t known) {
  const nn_experts_args args = {.comm = comm,
                                .x = (void *)(uintptr_t)x,
                                .y = y,
                                .offsets = (int32_t *)(uintptr_t)offsets,
                                .y_offsets = y_offsets,
                                .rows = rows,
                                .slot_rows = slot_rows,
                                .row_bytes = row_bytes,
                                .own = own,
                                .known = known};
  nn_call call = enter(ctx, NN_OP_comm_dispatch_begin, &args, ranks);
  nn_call_require(&call, known == 0 || known == 1, NNCUDA_ERROR_INVALID_VALUE, "known is %d; it must be 0 or 1", known);
  declare_x(&call, &args, NN_ROLE_IN | NN_ROLE_PARTS);
  declare_offsets(&call, &args, ranks);
  declare_y(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS, ranks);
  declare_y_offsets(&call, &args, known ? NN_ROLE_IN : NN_ROLE_OUT, ranks);
  count_moved(&call, &args, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

int32_t nncuda_comm_dispatch_end(nncuda_ctx *ctx, nncuda_comm *comm, void *y, int64_t slot_rows, int64_t row_bytes,
                                 int64_t ranks, int64_t source) {
  const nn_experts_args args = {.comm = comm, .y = y, .slot_rows = slot_rows, .row_bytes = row_bytes, .source = source};
  nn_call call = enter(ctx, NN_OP_comm_dispatch_end, &args, ranks);
  require_source(&call, &args);
  declare_y(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

int32_t nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows,
                                  int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source) {
  const nn_experts_args args = {.comm = comm,
                                .x = x,
                                .y = (void *)(uintptr_t)y,
                                .rows = rows,
                                .slot_rows = slot_rows,
                                .row_bytes = row_bytes,
                                .source = source};
  nn_call call = enter(ctx, NN_OP_comm_collect_begin, &args, ranks);
  require_source(&call, &args);
  declare_x(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS);
  declare_y(&call, &args, NN_ROLE_IN | NN_ROLE_PARTS, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

int32_t nncuda_comm_collect_end(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows,
                                int64_t slot_rows, int64_t row_bytes, int64_t ranks) {
  const nn_experts_args args = {
      .comm = comm, .x = x, .y = (void *)(uintptr_t)y, .rows = rows, .slot_rows = slot_rows, .row_bytes = row_bytes};
  nn_call call = enter(ctx, NN_OP_comm_collect_end, &args, ranks);
  declare_x(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS);
  declare_y(&call, &args, NN_ROLE_IN | NN_ROLE_PARTS, ranks);
  count_moved(&call, &args, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

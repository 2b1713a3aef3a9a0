/*
 * The ragged exchange of rows between ranks that have experts each. How many rows go where is data, so the host reads
 * it when the call runs: first ranks tell each other how many rows each expert gets, then exactly these travel, one
 * message from each rank to each other.
 */
#include "collective.h"
#include "comm.h"
#include "runtime/call.h"
#include "runtime/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct experts_args {
  nncuda_comm *comm;
  void *x, *y;
  int32_t *offsets, *y_offsets; /* offsets: null for a rank without rows */
  int64_t rows, slot_rows, row_bytes, own;
} experts_args;

/* What the host knows of a call, and its messages. */
typedef struct traffic {
  int32_t *offsets; /* [ranks*own+1], of x */
  int32_t *sent;    /* [ranks, own+1], the same for each rank, from 0 on */
  int32_t *slots;   /* [ranks, own+1], of y */
  nn_message *messages;
  int64_t count;
} traffic;

static void close_traffic(traffic *t) {
  free(t->offsets);
  free(t->sent);
  free(t->slots);
  free(t->messages);
}

static int32_t open_traffic(nncuda_ctx *ctx, const experts_args *a, traffic *t) {
  const size_t ranks = (size_t)a->comm->ranks, table = ranks * (size_t)(a->own + 1);
  *t = (traffic){.offsets = calloc(ranks * (size_t)a->own + 1, sizeof *t->offsets),
                 .sent = calloc(table, sizeof *t->sent),
                 .slots = calloc(table, sizeof *t->slots),
                 .messages = calloc(2 * ranks, sizeof *t->messages)};
  return t->offsets != NULL && t->sent != NULL && t->slots != NULL && t->messages != NULL
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for the rows of %zu experts", table - ranks);
}

static int32_t copy(nncuda_ctx *ctx, void *to, const void *from, int64_t bytes, int32_t kind) {
  return bytes == 0 ? NNCUDA_SUCCESS : ctx->kernel[NN_OP_memcpy](ctx, &(nn_memcpy_args){to, from, bytes, kind, 1});
}

static void post(traffic *t, int64_t peer, void *data, int64_t bytes, int32_t send) {
  if (bytes > 0) {
    t->messages[t->count++] = (nn_message){peer, data, (size_t)bytes, send};
  }
}

/* offsets[0] = 0, never falling, the last of `count` + 1 at most `most`. `name` ends before the index. */
static int32_t check(nncuda_ctx *ctx, const char *name, const int32_t *offsets, int64_t count, int64_t most) {
  if (offsets[0] != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "%s0] is %d; it must be 0", name, offsets[0]);
  }
  for (int64_t i = 1; i <= count; i++) {
    if (offsets[i] < offsets[i - 1] || offsets[i] > most) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "%s%lld] is %d; it must be %d to %lld, the number of rows", name,
                     (long long)i, offsets[i], offsets[i - 1], (long long)most);
    }
  }
  return NNCUDA_SUCCESS;
}

static int32_t check_slots(nncuda_ctx *ctx, const experts_args *a, const traffic *t) {
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t r = 0; status == NNCUDA_SUCCESS && r < a->comm->ranks; r++) {
    char name[48];
    snprintf(name, sizeof name, "y_offsets[%lld, ", (long long)r);
    status = check(ctx, name, t->slots + r * (a->own + 1), a->own, a->slot_rows);
  }
  return status;
}

/* What one rank found wrong is told to those that would wait for its rows. */
static int32_t tell(nncuda_ctx *ctx, nncuda_comm *comm, int32_t status) {
  if (status == NNCUDA_ERROR_OUT_OF_RANGE && comm->ranks > 1) {
    nn_comm_abort(comm, ctx->error, (int64_t)strlen(ctx->error));
  }
  return status;
}

/* Learns and checks how many rows of x go to each expert. */
static int32_t read_offsets(nncuda_ctx *ctx, const experts_args *a, traffic *t) {
  const int64_t ranks = a->comm->ranks, own = a->own, experts = ranks * own;
  int32_t status =
      a->offsets == NULL ? NNCUDA_SUCCESS : copy(ctx, t->offsets, a->offsets, 4 * (experts + 1), NNCUDA_DEVICE_TO_HOST);
  if (status == NNCUDA_SUCCESS) {
    status = tell(ctx, a->comm, check(ctx, "offsets[", t->offsets, experts, a->rows));
  }
  for (int64_t r = 0; status == NNCUDA_SUCCESS && r < ranks; r++) {
    for (int64_t e = 0; e <= own; e++) {
      t->sent[r * (own + 1) + e] = t->offsets[r * own + e] - t->offsets[r * own];
    }
    const int32_t rows = t->sent[r * (own + 1) + own];
    if (rows > a->slot_rows) {
      status = tell(ctx, a->comm,
                    nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                            "the experts of rank %lld get %d rows; there must be at most slot_rows, which is %lld",
                            (long long)r, rows, (long long)a->slot_rows));
    }
  }
  return status;
}

/* Tells each rank how many rows its experts get, and learns that of the own ones. */
static int32_t exchange_offsets(nncuda_ctx *ctx, const experts_args *a, traffic *t) {
  const int64_t ranks = a->comm->ranks, rank = a->comm->rank, entries = a->own + 1;
  for (int64_t step = 1; step < ranks; step++) { /* not all to rank 0 first */
    const int64_t to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
    post(t, to, t->sent + to * entries, 4 * entries, 1);
    post(t, from, t->slots + from * entries, 4 * entries, 0);
  }
  memcpy(t->slots + rank * entries, t->sent + rank * entries, 4 * (size_t)entries);
  const int32_t status = nn_comm_exchange_host(ctx, a->comm, t->messages, t->count);
  return status != NNCUDA_SUCCESS ? status : tell(ctx, a->comm, check_slots(ctx, a, t));
}

/* The rows of x for the experts of a rank, and those of the own experts that came from a rank. */
static nn_message rows_of_x(const experts_args *a, const traffic *t, int64_t rank) {
  const int64_t begin = t->offsets[rank * a->own], end = t->offsets[(rank + 1) * a->own];
  char *const data = end == begin ? NULL : (char *)a->x + begin * a->row_bytes;
  return (nn_message){rank, data, (size_t)((end - begin) * a->row_bytes), 0};
}

static nn_message rows_of_y(const experts_args *a, const traffic *t, int64_t rank) {
  const int64_t rows = t->slots[rank * (a->own + 1) + a->own];
  return (nn_message){rank, (char *)a->y + rank * a->slot_rows * a->row_bytes, (size_t)(rows * a->row_bytes), 0};
}

/* What this rank kept is in y as often as in x, as what travels is: of that the transport says so. */
static int32_t check_kept(nncuda_ctx *ctx, const experts_args *a, const traffic *t) {
  const int64_t rank = a->comm->rank, x = (int64_t)rows_of_x(a, t, rank).bytes / a->row_bytes;
  const int32_t y = t->slots[rank * (a->own + 1) + a->own];
  return x == y ? NNCUDA_SUCCESS
                : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                          "y_offsets[%lld, %lld] is %d; it must be %lld, the rows of x for the own experts",
                          (long long)rank, (long long)a->own, y, (long long)x);
}

/* From x to y, or back. */
static int32_t exchange_rows(nncuda_ctx *ctx, const experts_args *a, traffic *t, int32_t back) {
  const int64_t ranks = a->comm->ranks, rank = a->comm->rank;
  t->count = 0;
  for (int64_t step = 1; step < ranks; step++) {
    const int64_t to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
    const nn_message out = back ? rows_of_y(a, t, to) : rows_of_x(a, t, to);
    const nn_message in = back ? rows_of_x(a, t, from) : rows_of_y(a, t, from);
    post(t, to, out.data, (int64_t)out.bytes, 1);
    post(t, from, in.data, (int64_t)in.bytes, 0);
  }
  const int32_t status = nn_comm_exchange(ctx, a->comm, t->messages, t->count);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  const nn_message x = rows_of_x(a, t, rank), y = rows_of_y(a, t, rank);
  return copy(ctx, back ? x.data : y.data, back ? y.data : x.data, (int64_t)x.bytes, NNCUDA_DEVICE_TO_DEVICE);
}

/* Of a context that measures: every rank has as many rows, and all experts get equally many. */
static int32_t count_rows(const experts_args *a, int64_t entries) {
  const int64_t ranks = a->comm->ranks;
  a->comm->sent += a->rows * (ranks - 1) / ranks * a->row_bytes + 4 * entries * (ranks - 1);
  return NNCUDA_SUCCESS;
}

int32_t nn_comm_dispatch(nncuda_ctx *ctx, const void *args) {
  const experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm); /* a graph may outlive it */
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : count_rows(a, a->own + 1);
  }
  traffic t;
  status = open_traffic(ctx, a, &t);
  status = status == NNCUDA_SUCCESS ? read_offsets(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? exchange_offsets(ctx, a, &t) : status;
  if (status == NNCUDA_SUCCESS) {
    status = copy(ctx, a->y_offsets, t.slots, 4 * a->comm->ranks * (a->own + 1), NNCUDA_HOST_TO_DEVICE);
  }
  status = status == NNCUDA_SUCCESS ? exchange_rows(ctx, a, &t, 0) : status;
  close_traffic(&t);
  return status;
}

int32_t nn_comm_collect(nncuda_ctx *ctx, const void *args) {
  const experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : count_rows(a, 0);
  }
  const int64_t table = a->comm->ranks * (a->own + 1);
  traffic t;
  status = open_traffic(ctx, a, &t);
  status = status == NNCUDA_SUCCESS ? read_offsets(ctx, a, &t) : status;
  if (status == NNCUDA_SUCCESS) {
    status = copy(ctx, t.slots, a->y_offsets, 4 * table, NNCUDA_DEVICE_TO_HOST);
  }
  status = status == NNCUDA_SUCCESS ? tell(ctx, a->comm, check_slots(ctx, a, &t)) : status;
  status = status == NNCUDA_SUCCESS ? tell(ctx, a->comm, check_kept(ctx, a, &t)) : status;
  status = status == NNCUDA_SUCCESS ? exchange_rows(ctx, a, &t, 1) : status;
  close_traffic(&t);
  return status;
}

/* ---- entry points ---- */

static int32_t launch(nncuda_ctx *ctx, nn_op op, experts_args a, int64_t ranks) {
  nn_call call;
  nn_call_begin(&call, ctx, op);
  if (call.status == NNCUDA_SUCCESS) {
    call.status = nn_comm_check(ctx, a.comm);
  }
  nn_call_size_if(&call, "rows", a.rows, 0); /* a rank without rows takes part as well */
  nn_call_size(&call, "slot_rows", a.slot_rows);
  nn_call_size(&call, "row_bytes", a.row_bytes);
  nn_call_size(&call, "ranks", ranks);
  nn_call_size(&call, "own", a.own);
  nn_call_require(&call, call.status != NNCUDA_SUCCESS || ranks == a.comm->ranks, NNCUDA_ERROR_INVALID_SIZE,
                  "ranks is %lld; it must be the number of ranks of the communicator", (long long)ranks);
  nn_call_require(&call, !call.entered || ctx->capture == NULL || ctx->engine->device != NNCUDA_DEVICE_CUDA,
                  NNCUDA_ERROR_CAPTURING, "on a GPU the host waits for the offsets, so the call cannot be captured");
  const int32_t back = op == NN_OP_comm_collect, optional = a.rows > 0 ? 0 : NN_ROLE_OPTIONAL;
  const int32_t of_x = (back ? NN_ROLE_OUT : NN_ROLE_IN) | optional, of_y = back ? NN_ROLE_IN : NN_ROLE_OUT;
  nn_call_tensor(&call, of_x, "x", a.x, NN_U8, NULL, 0, NN_SHAPE("[rows, row_bytes]", a.rows, a.row_bytes));
  nn_call_tensor(&call, NN_ROLE_IN | optional, "offsets", a.offsets, NNCUDA_I32, NULL, 0,
                 NN_SHAPE("[ranks*own+1]", nn_add(nn_mul(ranks, a.own), 1)));
  nn_call_tensor(&call, of_y, "y", a.y, NN_U8, NULL, 0,
                 NN_SHAPE("[ranks, slot_rows, row_bytes]", ranks, a.slot_rows, a.row_bytes));
  nn_call_tensor(&call, of_y, "y_offsets", a.y_offsets, NNCUDA_I32, NULL, 0,
                 NN_SHAPE("[ranks, own+1]", ranks, nn_add(a.own, 1)));
  return nn_call_launch(&call, &a, sizeof a);
}

int32_t nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y,
                             int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks,
                             int64_t own) {
  const experts_args args = {
      comm, (void *)(uintptr_t)x, y, (int32_t *)(uintptr_t)offsets, y_offsets, rows, slot_rows, row_bytes, own};
  return launch(ctx, NN_OP_comm_dispatch, args, ranks);
}

int32_t nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, const int32_t *y_offsets, void *x,
                            const int32_t *offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks,
                            int64_t own) {
  const experts_args args = {comm,
                             x,
                             (void *)(uintptr_t)y,
                             (int32_t *)(uintptr_t)offsets,
                             (int32_t *)(uintptr_t)y_offsets,
                             rows,
                             slot_rows,
                             row_bytes,
                             own};
  return launch(ctx, NN_OP_comm_collect, args, ranks);
}

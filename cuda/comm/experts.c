/*
 * The ragged exchange of rows between ranks that have experts each. How many rows go where is data, so the host reads
 * it when the call runs: first ranks tell each other how many rows each expert gets, then exactly these travel, one
 * message from each rank to each other.
 */
#include "background.h"
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
  int64_t source; /* of a half that is about one rank */
  int32_t known;  /* of dispatch_begin: y_offsets are there */
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
                            nn_comm_name(a->comm, r), rows, (long long)a->slot_rows));
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

/* Reads and checks how many rows of the own experts came from each rank. */
static int32_t read_slots(nncuda_ctx *ctx, const experts_args *a, traffic *t) {
  const int64_t table = a->comm->ranks * (a->own + 1);
  const int32_t status = copy(ctx, t->slots, a->y_offsets, 4 * table, NNCUDA_DEVICE_TO_HOST);
  return status != NNCUDA_SUCCESS ? status : tell(ctx, a->comm, check_slots(ctx, a, t));
}

/* Learns it from the ranks, and writes it to y_offsets. */
static int32_t learn_slots(nncuda_ctx *ctx, const experts_args *a, traffic *t) {
  const int64_t table = a->comm->ranks * (a->own + 1);
  const int32_t status = exchange_offsets(ctx, a, t);
  return status != NNCUDA_SUCCESS ? status : copy(ctx, a->y_offsets, t->slots, 4 * table, NNCUDA_HOST_TO_DEVICE);
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

/* What this rank keeps, from x to y, or back. */
static int32_t copy_kept(nncuda_ctx *ctx, const experts_args *a, const traffic *t, int32_t back) {
  const nn_message x = rows_of_x(a, t, a->comm->rank), y = rows_of_y(a, t, a->comm->rank);
  return copy(ctx, back ? x.data : y.data, back ? y.data : x.data, (int64_t)x.bytes, NNCUDA_DEVICE_TO_DEVICE);
}

/* What travels in a step, of `ranks` - 1: from x to the rank that many behind this one and from that many before it to
 * y; back, from y to where rows came from. */
static void post_step(const experts_args *a, traffic *t, int64_t step, int32_t back) {
  const int64_t ranks = a->comm->ranks, rank = a->comm->rank;
  const int64_t behind = (rank + step) % ranks, before = (rank - step + ranks) % ranks;
  const nn_message x = rows_of_x(a, t, behind), y = rows_of_y(a, t, before);
  post(t, x.peer, x.data, (int64_t)x.bytes, !back);
  post(t, y.peer, y.data, (int64_t)y.bytes, back);
}

/* From x to y, or back. */
static int32_t exchange_rows(nncuda_ctx *ctx, const experts_args *a, traffic *t, int32_t back) {
  t->count = 0;
  for (int64_t step = 1; step < a->comm->ranks; step++) {
    post_step(a, t, step, back);
  }
  const int32_t status = nn_comm_exchange(ctx, a->comm, t->messages, t->count);
  return status != NNCUDA_SUCCESS ? status : copy_kept(ctx, a, t, back);
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
  status = status == NNCUDA_SUCCESS ? learn_slots(ctx, a, &t) : status;
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
  traffic t;
  status = open_traffic(ctx, a, &t);
  status = status == NNCUDA_SUCCESS ? read_offsets(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? read_slots(ctx, a, &t) : status;
  status = status == NNCUDA_SUCCESS ? tell(ctx, a->comm, check_kept(ctx, a, &t)) : status;
  status = status == NNCUDA_SUCCESS ? exchange_rows(ctx, a, &t, 1) : status;
  close_traffic(&t);
  return status;
}

/* ---- the same beside what the context does meanwhile: step by step, so that rows of a rank can be used while those of
 * others travel. All ranks begin the same steps in the same order, which is all that a transport needs. ---- */

enum { MOST_WAYS = 4 };

/* Rows on their way to `y`: their steps begin behind `first` others. */
typedef struct way {
  const void *y;
  int64_t first;
} way;

struct nn_travel {
  traffic t; /* of the last dispatch */
  int64_t rows, slot_rows, own;
  int64_t begun, ended; /* steps, one after the other */
  way ways[MOST_WAYS];
  int64_t count;
  int64_t returned;    /* steps of the way back that have begun */
  unsigned char *done; /* [ranks]: of that step the rows may go back */
};

void nn_travel_close(nncuda_comm *comm) {
  if (comm->travel != NULL) {
    close_traffic(&comm->travel->t);
    free(comm->travel->done);
    free(comm->travel);
    comm->travel = NULL;
  }
}

static nn_travel *travel_of(nncuda_comm *comm) {
  if (comm->travel == NULL) {
    nn_travel *const made = calloc(1, sizeof *made);
    unsigned char *const done = calloc((size_t)comm->ranks, 1);
    if (made == NULL || done == NULL) {
      free(made);
      free(done);
      return NULL;
    }
    made->done = done;
    comm->travel = made;
  }
  return comm->travel;
}

/* Finds room for another dispatch, whose tables replace those of the last one. */
static int32_t open_travel(nncuda_ctx *ctx, const experts_args *a, nn_travel **found) {
  nn_travel *const b = travel_of(a->comm);
  if (b == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for the rows of %lld ranks", (long long)a->comm->ranks);
  }
  if (b->returned > 0 || (a->known ? b->count == MOST_WAYS : a->comm->under_way > 0)) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "rows of this communicator are under way; end them first");
  }
  b->count = a->known ? b->count : 0;
  close_traffic(&b->t);
  *found = b;
  return open_traffic(ctx, a, &b->t);
}

static int32_t begin_step(nncuda_ctx *ctx, const experts_args *a, nn_travel *b, int64_t step, int32_t back) {
  b->t.count = 0;
  post_step(a, &b->t, step, back);
  const int32_t status = nn_comm_exchange_begin(ctx, a->comm, b->t.messages, b->t.count);
  b->begun += status == NNCUDA_SUCCESS;
  return status;
}

static int32_t end_steps(nncuda_ctx *ctx, const experts_args *a, nn_travel *b, int64_t until) {
  int32_t status = NNCUDA_SUCCESS;
  while (status == NNCUDA_SUCCESS && b->ended < until) {
    status = nn_comm_exchange_end(ctx, a->comm);
    b->ended++;
  }
  return status;
}

int32_t nn_comm_dispatch_begin(nncuda_ctx *ctx, const void *args) {
  const experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : count_rows(a, a->known ? 0 : a->own + 1);
  }
  nn_travel *b = NULL;
  status = open_travel(ctx, a, &b);
  status = status == NNCUDA_SUCCESS ? read_offsets(ctx, a, &b->t) : status;
  if (status == NNCUDA_SUCCESS) {
    status = a->known ? read_slots(ctx, a, &b->t) : learn_slots(ctx, a, &b->t);
  }
  status = status == NNCUDA_SUCCESS ? tell(ctx, a->comm, check_kept(ctx, a, &b->t)) : status;
  if (status == NNCUDA_SUCCESS) {
    b->rows = a->rows;
    b->slot_rows = a->slot_rows;
    b->own = a->own;
    b->ways[b->count++] = (way){a->y, b->begun};
    status = copy_kept(ctx, a, &b->t, 0);
  }
  for (int64_t step = 1; status == NNCUDA_SUCCESS && step < a->comm->ranks; step++) {
    status = begin_step(ctx, a, b, step, 0);
  }
  return status;
}

/* In which step rows of a rank come. */
static int64_t step_of(const nncuda_comm *comm, int64_t source) {
  return (comm->rank - source + comm->ranks) % comm->ranks;
}

int32_t nn_comm_dispatch_end(nncuda_ctx *ctx, const void *args) {
  const experts_args *a = args;
  const int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status;
  }
  nn_travel *const b = a->comm->travel;
  for (int64_t i = b == NULL ? 0 : b->count; i > 0; i--) {
    if (b->ways[i - 1].y == a->y) {
      return end_steps(ctx, a, b, b->ways[i - 1].first + step_of(a->comm, a->source));
    }
  }
  return nn_fail(ctx, NNCUDA_ERROR_STATE, "no rows are under way to this y; nncuda_comm_dispatch_begin sends some");
}

/* Whether the way back is that of a dispatch. */
static int32_t check_return(nncuda_ctx *ctx, const experts_args *a) {
  const nn_travel *const b = a->comm->travel;
  if (b == NULL || b->count == 0) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "there are no rows to go back; nncuda_comm_dispatch_begin sends some");
  }
  return a->rows == b->rows && a->slot_rows == b->slot_rows
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE,
                       "rows and slot_rows are %lld and %lld; they must be those of nncuda_comm_dispatch_begin, %lld "
                       "and %lld",
                       (long long)a->rows, (long long)a->slot_rows, (long long)b->rows, (long long)b->slot_rows);
}

/* Begins the steps whose turn it is, as far as their rows may go back. A rank that sent none keeps nobody waiting. */
static int32_t begin_returns(nncuda_ctx *ctx, const experts_args *travelled) {
  experts_args a = *travelled;
  nn_travel *const b = a.comm->travel;
  int32_t status = NNCUDA_SUCCESS;
  a.own = b->own;
  while (status == NNCUDA_SUCCESS && b->returned + 1 < a.comm->ranks) {
    const int64_t step = b->returned + 1, source = (a.comm->rank - step + a.comm->ranks) % a.comm->ranks;
    if (!b->done[step] && b->t.slots[source * (b->own + 1) + b->own] > 0) {
      break;
    }
    status = begin_step(ctx, &a, b, step, 1);
    b->returned = step;
  }
  return status;
}

int32_t nn_comm_collect_begin(nncuda_ctx *ctx, const void *args) {
  const experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status;
  }
  status = check_return(ctx, a);
  if (status == NNCUDA_SUCCESS) {
    a->comm->travel->done[step_of(a->comm, a->source)] = 1;
    status = begin_returns(ctx, a);
  }
  return status;
}

int32_t nn_comm_collect_end(nncuda_ctx *ctx, const void *args) {
  experts_args a = *(const experts_args *)args;
  int32_t status = nn_comm_check(ctx, a.comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : count_rows(&a, 0);
  }
  status = check_return(ctx, &a);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_travel *const b = a.comm->travel;
  a.own = b->own;
  memset(b->done, 1, (size_t)a.comm->ranks);
  status = begin_returns(ctx, &a);
  status = status == NNCUDA_SUCCESS ? copy_kept(ctx, &a, &b->t, 1) : status;
  status = status == NNCUDA_SUCCESS ? end_steps(ctx, &a, b, b->begun) : status;
  memset(b->done, 0, (size_t)a.comm->ranks);
  b->returned = b->count = 0;
  return status;
}

/* ---- entry points ---- */

/* Enters a call and checks the sizes that all of these have. */
static nn_call enter(nncuda_ctx *ctx, nn_op op, const experts_args *a, int64_t ranks) {
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

static void declare_x(nn_call *call, const experts_args *a, int32_t role) {
  nn_call_tensor(call, a->rows > 0 ? role : role | NN_ROLE_OPTIONAL, "x", a->x, NN_U8, NULL, 0,
                 NN_SHAPE("[rows, row_bytes]", a->rows, a->row_bytes));
}

static void declare_y(nn_call *call, const experts_args *a, int32_t role, int64_t ranks) {
  nn_call_tensor(call, role, "y", a->y, NN_U8, NULL, 0,
                 NN_SHAPE("[ranks, slot_rows, row_bytes]", ranks, a->slot_rows, a->row_bytes));
}

static void declare_offsets(nn_call *call, const experts_args *a, int64_t ranks) {
  nn_call_size(call, "own", a->own);
  nn_call_tensor(call, a->rows > 0 ? NN_ROLE_IN : NN_ROLE_IN | NN_ROLE_OPTIONAL, "offsets", a->offsets, NNCUDA_I32,
                 NULL, 0, NN_SHAPE("[ranks*own+1]", nn_add(nn_mul(ranks, a->own), 1)));
}

static void declare_y_offsets(nn_call *call, const experts_args *a, int32_t role, int64_t ranks) {
  nn_call_tensor(call, role, "y_offsets", a->y_offsets, NNCUDA_I32, NULL, 0,
                 NN_SHAPE("[ranks, own+1]", ranks, nn_add(a->own, 1)));
}

/* Of a call that moves x and y: nobody looks at what travels, so both are declared as parts. */
static void count_moved(nn_call *call, const experts_args *a, int64_t ranks) {
  if (call->status == NNCUDA_SUCCESS) {
    call->bytes += (double)a->row_bytes * ((double)a->rows + (double)ranks * (double)a->slot_rows);
  }
}

static void require_source(nn_call *call, const experts_args *a) {
  nn_call_require(call, call->status != NNCUDA_SUCCESS || (a->source >= 0 && a->source < a->comm->ranks),
                  NNCUDA_ERROR_INVALID_VALUE, "source is %lld; it must be a rank of the communicator",
                  (long long)a->source);
}

static int32_t launch(nncuda_ctx *ctx, nn_op op, experts_args a, int64_t ranks) {
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
  const experts_args args = {.comm = comm,
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
  const experts_args args = {.comm = comm,
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
  const experts_args args = {.comm = comm,
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
  const experts_args args = {.comm = comm, .y = y, .slot_rows = slot_rows, .row_bytes = row_bytes, .source = source};
  nn_call call = enter(ctx, NN_OP_comm_dispatch_end, &args, ranks);
  require_source(&call, &args);
  declare_y(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

int32_t nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows,
                                  int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source) {
  const experts_args args = {.comm = comm,
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
  const experts_args args = {
      .comm = comm, .x = x, .y = (void *)(uintptr_t)y, .rows = rows, .slot_rows = slot_rows, .row_bytes = row_bytes};
  nn_call call = enter(ctx, NN_OP_comm_collect_end, &args, ranks);
  declare_x(&call, &args, NN_ROLE_OUT | NN_ROLE_PARTS);
  declare_y(&call, &args, NN_ROLE_IN | NN_ROLE_PARTS, ranks);
  count_moved(&call, &args, ranks);
  return nn_call_launch(&call, &args, sizeof args);
}

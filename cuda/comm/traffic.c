#include "traffic.h"

#include "runtime/call.h"
#include "runtime/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nn_traffic_close(nn_traffic *t) {
  free(t->offsets);
  free(t->sent);
  free(t->slots);
  free(t->messages);
}

int32_t nn_traffic_open(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t) {
  const size_t ranks = (size_t)a->comm->ranks, table = ranks * (size_t)(a->own + 1);
  *t = (nn_traffic){.offsets = calloc(ranks * (size_t)a->own + 1, sizeof *t->offsets),
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

static void post(nn_traffic *t, int64_t peer, void *data, int64_t bytes, int32_t send) {
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

static int32_t check_slots(nncuda_ctx *ctx, const nn_experts_args *a, const nn_traffic *t) {
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

int32_t nn_traffic_read_offsets(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t) {
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
static int32_t exchange_offsets(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t) {
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

int32_t nn_traffic_read_slots(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t) {
  const int64_t table = a->comm->ranks * (a->own + 1);
  const int32_t status = copy(ctx, t->slots, a->y_offsets, 4 * table, NNCUDA_DEVICE_TO_HOST);
  return status != NNCUDA_SUCCESS ? status : tell(ctx, a->comm, check_slots(ctx, a, t));
}

int32_t nn_traffic_learn_slots(nncuda_ctx *ctx, const nn_experts_args *a, nn_traffic *t) {
  const int64_t table = a->comm->ranks * (a->own + 1);
  const int32_t status = exchange_offsets(ctx, a, t);
  return status != NNCUDA_SUCCESS ? status : copy(ctx, a->y_offsets, t->slots, 4 * table, NNCUDA_HOST_TO_DEVICE);
}

/* The rows of x for the experts of a rank, and those of the own experts that came from a rank. */
static nn_message rows_of_x(const nn_experts_args *a, const nn_traffic *t, int64_t rank) {
  const int64_t begin = t->offsets[rank * a->own], end = t->offsets[(rank + 1) * a->own];
  char *const data = end == begin ? NULL : (char *)a->x + begin * a->row_bytes;
  return (nn_message){rank, data, (size_t)((end - begin) * a->row_bytes), 0};
}

static nn_message rows_of_y(const nn_experts_args *a, const nn_traffic *t, int64_t rank) {
  const int64_t rows = t->slots[rank * (a->own + 1) + a->own];
  return (nn_message){rank, (char *)a->y + rank * a->slot_rows * a->row_bytes, (size_t)(rows * a->row_bytes), 0};
}

int32_t nn_traffic_check_kept(nncuda_ctx *ctx, const nn_experts_args *a, const nn_traffic *t) {
  const int64_t rank = a->comm->rank, x = (int64_t)rows_of_x(a, t, rank).bytes / a->row_bytes;
  const int32_t y = t->slots[rank * (a->own + 1) + a->own];
  return x == y ? NNCUDA_SUCCESS
                : tell(ctx, a->comm,
                       nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                               "y_offsets[%lld, %lld] is %d; it must be %lld, the rows of x for the own experts",
                               (long long)rank, (long long)a->own, y, (long long)x));
}

int32_t nn_traffic_copy_kept(nncuda_ctx *ctx, const nn_experts_args *a, const nn_traffic *t, int32_t back) {
  const nn_message x = rows_of_x(a, t, a->comm->rank), y = rows_of_y(a, t, a->comm->rank);
  return copy(ctx, back ? x.data : y.data, back ? y.data : x.data, (int64_t)x.bytes, NNCUDA_DEVICE_TO_DEVICE);
}

void nn_traffic_post_step(const nn_experts_args *a, nn_traffic *t, int64_t step, int32_t back) {
  const int64_t ranks = a->comm->ranks, rank = a->comm->rank;
  const int64_t behind = (rank + step) % ranks, before = (rank - step + ranks) % ranks;
  const nn_message x = rows_of_x(a, t, behind), y = rows_of_y(a, t, before);
  post(t, x.peer, x.data, (int64_t)x.bytes, !back);
  post(t, y.peer, y.data, (int64_t)y.bytes, back);
}

int32_t nn_traffic_count(const nn_experts_args *a, int64_t entries) {
  const int64_t ranks = a->comm->ranks;
  a->comm->sent += a->rows * (ranks - 1) / ranks * a->row_bytes + 4 * entries * (ranks - 1);
  return NNCUDA_SUCCESS;
}

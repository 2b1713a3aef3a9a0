/*
 * Collectives, made of messages and of the engine's own kernels: who sends what to whom, and in which order arriving
 * sums are added, stands here once for all transports and engines.
 */
#include "collective.h"

#include "abi/generated/elementwise.h"
#include "outbox.h"
#include "runtime/memory.h"

#include <stdlib.h>

int32_t nn_outbox_open(nncuda_ctx *ctx, nn_outbox *box, int64_t most) {
  box->count = 0;
  box->messages = malloc((size_t)(most + 1) * sizeof *box->messages);
  return box->messages != NULL
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)most);
}

void nn_outbox_post(nn_outbox *box, int64_t peer, const void *data, int64_t bytes, int32_t send) {
  if (bytes > 0) {
    box->messages[box->count++] = (nn_message){peer, (void *)(uintptr_t)data, (size_t)bytes, send};
  }
}

int32_t nn_comm_copy(nncuda_ctx *ctx, void *to, const void *from, int64_t bytes) {
  const nn_memcpy_args args = {to, from, bytes, NNCUDA_DEVICE_TO_DEVICE, 0};
  return bytes == 0 ? NNCUDA_SUCCESS : ctx->kernel[NN_OP_memcpy](ctx, &args);
}

/* A kernel with no workspace, so that it may run within another one. */
int32_t nn_comm_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype) {
  return ctx->kernel[NN_OP_add](ctx, &(nn_add_args){a, b, y, n, dtype});
}

/* ---- broadcast: in a binomial tree over the ranks, counted from root ---- */

static int32_t broadcast(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  const int64_t ranks = a->comm->ranks, from_root = (a->comm->rank - a->root + ranks) % ranks;
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t have = 1; status == NNCUDA_SUCCESS && have < ranks; have *= 2) {
    const int64_t to = from_root + have;
    nn_message message = {.data = a->x, .bytes = (size_t)a->n};
    if (from_root < have && to < ranks) {
      message.peer = (to + a->root) % ranks;
      message.send = 1;
    } else if (from_root >= have && from_root < 2 * have) {
      message.peer = (from_root - have + a->root) % ranks;
    } else {
      continue;
    }
    status = nn_comm_exchange(ctx, a->comm, &message, 1);
  }
  return status;
}

/* ---- all_gather ---- */

static int32_t all_gather(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  return nn_comm_gather(ctx, a->comm, a->x, a->n, a->grain, 0);
}

/* ---- all_reduce: what all have, gathered and added by each ---- */

static void *all_reduce_lay_out(const nn_comm_args *a, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)nn_mul(a->comm->ranks, nn_mul(a->n, 4)));
}

void nn_comm_all_reduce_workspace(const void *args, nn_workspace *w) { all_reduce_lay_out(args, w); }

static int32_t all_reduce(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  const int64_t ranks = a->comm->ranks, bytes = a->n * 4;
  char *const all = all_reduce_lay_out(a, nn_workspace_of(ctx));
  int32_t status = nn_comm_copy(ctx, all + a->comm->rank * bytes, a->x, bytes);
  if (status == NNCUDA_SUCCESS) {
    status = nn_comm_gather(ctx, a->comm, all, ranks * bytes, bytes, 0);
  }
  if (status == NNCUDA_SUCCESS) {
    status = nn_comm_copy(ctx, a->x, all, bytes);
  }
  for (int64_t r = 1; status == NNCUDA_SUCCESS && r < ranks; r++) {
    status = nn_comm_add(ctx, a->x, all + r * bytes, a->x, a->n, NNCUDA_F32);
  }
  return status;
}

/* ---- move ---- */

typedef struct piece { /* that this rank sends or receives */
  int64_t begin, end, peer;
  int32_t send;
} piece;

typedef struct move_args {
  nncuda_comm *comm;
  unsigned char *x;
  int64_t count;
  piece pieces[];
} move_args;

static int32_t move(nncuda_ctx *ctx, const void *args) {
  const move_args *a = args;
  nn_outbox box;
  int32_t status = nn_outbox_open(ctx, &box, a->count);
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < a->count; i++) {
    const piece *p = &a->pieces[i];
    nn_outbox_post(&box, p->peer, a->x + p->begin, p->end - p->begin, p->send);
  }
  status = status == NNCUDA_SUCCESS ? nn_comm_exchange(ctx, a->comm, box.messages, box.count) : status;
  free(box.messages);
  return status;
}

/* ---- entry points ---- */

nn_call nn_comm_enter(nncuda_ctx *ctx, nn_op op, nncuda_comm *comm) {
  nn_call call;
  nn_call_begin(&call, ctx, op);
  if (call.status == NNCUDA_SUCCESS) {
    call.status = nn_comm_check(ctx, comm);
  }
  return call;
}

static void declare(nn_call *call, const char *name, const void *x, int32_t role, int32_t dtype, int64_t n,
                    const char *shape) {
  nn_call_tensor(call, role, name, x, dtype, NULL, 0, shape, (const int64_t[]){n}, 1);
}

static int32_t launch(nn_call *call, nn_comm_args args) { return nn_call_launch(call, &args, sizeof args); }

int32_t nncuda_comm_broadcast(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t root) {
  nn_call call = nn_comm_enter(ctx, NN_OP_comm_broadcast, comm);
  nn_call_size(&call, "bytes", bytes);
  if (call.status == NNCUDA_SUCCESS) {
    nn_call_require(&call, root >= 0 && root < comm->ranks, NNCUDA_ERROR_INVALID_VALUE,
                    "root is %lld; of %lld ranks it must be 0 to %lld", (long long)root, (long long)comm->ranks,
                    (long long)(comm->ranks - 1));
  }
  declare(&call, "x", x, NN_ROLE_INOUT, NN_U8, bytes, "[bytes]");
  return launch(&call, (nn_comm_args){.comm = comm, .x = x, .n = bytes, .root = root});
}

int32_t nncuda_comm_all_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain) {
  nn_call call = nn_comm_enter(ctx, NN_OP_comm_all_gather, comm);
  nn_call_size(&call, "bytes", bytes);
  nn_call_require(&call, grain >= 1, NNCUDA_ERROR_INVALID_VALUE, "grain is %lld; it must be at least 1",
                  (long long)grain);
  declare(&call, "x", x, NN_ROLE_INOUT, NN_U8, bytes, "[bytes]");
  return launch(&call, (nn_comm_args){.comm = comm, .x = x, .n = bytes, .grain = grain});
}

int32_t nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, float *x, int64_t n) {
  nn_call call = nn_comm_enter(ctx, NN_OP_comm_all_reduce, comm);
  nn_call_size(&call, "n", n);
  declare(&call, "x", x, NN_ROLE_INOUT, NNCUDA_F32, n, "[n]");
  return launch(&call, (nn_comm_args){.comm = comm, .x = x, .n = n});
}

static void check_moves(nn_call *call, const nncuda_comm *comm, int64_t bytes, const int64_t *moves, int64_t count) {
  nn_call_require(call, moves != NULL || count == 0, NNCUDA_ERROR_NULL_POINTER,
                  "moves is null; it must point to %lld moves", (long long)count);
  for (int64_t i = 0; call->status == NNCUDA_SUCCESS && i < count; i++) {
    const int64_t *const m = moves + 4 * i, last = comm->ranks - 1;
    nn_call_require(call, m[0] >= 0 && m[0] <= m[1] && m[1] <= bytes, NNCUDA_ERROR_INVALID_VALUE,
                    "move %lld is of the bytes %lld to %lld; it must lie within the %lld bytes of x", (long long)i,
                    (long long)m[0], (long long)m[1], (long long)bytes);
    nn_call_require(call, m[2] >= 0 && m[2] <= last && m[3] >= 0 && m[3] <= last, NNCUDA_ERROR_INVALID_VALUE,
                    "move %lld is from rank %lld to rank %lld; of %lld ranks they must be 0 to %lld", (long long)i,
                    (long long)m[2], (long long)m[3], (long long)comm->ranks, (long long)last);
  }
}

/* What of the moves is this rank's; null with a failed call without memory. Free it. */
static move_args *own_moves(nn_call *call, nncuda_comm *comm, void *x, const int64_t *moves, int64_t count) {
  move_args *own = malloc(sizeof *own + (size_t)count * sizeof *own->pieces);
  nn_call_require(call, own != NULL, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld moves", (long long)count);
  if (own == NULL) {
    return NULL;
  }
  own->comm = comm;
  own->x = x;
  own->count = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t *const m = moves + 4 * i, from = m[2], to = m[3];
    if (from != to && (from == comm->rank || to == comm->rank)) {
      const int32_t send = from == comm->rank;
      own->pieces[own->count++] = (piece){m[0], m[1], send ? to : from, send};
      call->bytes += (double)(m[1] - m[0]);
    }
  }
  return own;
}

int32_t nncuda_comm_move(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, const int64_t *moves,
                         int64_t count) {
  nn_call call = nn_comm_enter(ctx, NN_OP_comm_move, comm);
  nn_call_size(&call, "bytes", bytes);
  nn_call_size(&call, "count", count);
  declare(&call, "x", x, NN_ROLE_INOUT | NN_ROLE_PARTS, NN_U8, bytes, "[bytes]");
  if (call.status == NNCUDA_SUCCESS) {
    check_moves(&call, comm, bytes, moves, count);
  }
  move_args *const args = call.status == NNCUDA_SUCCESS ? own_moves(&call, comm, x, moves, count) : NULL;
  const size_t pieces = args == NULL ? 0 : (size_t)args->count;
  const int32_t status = nn_call_launch(&call, args, sizeof *args + pieces * sizeof *args->pieces);
  free(args);
  return status;
}

void nn_comm_fill(nn_kernel *kernel, nn_layout *layout) {
  kernel[NN_OP_comm_broadcast] = broadcast;
  kernel[NN_OP_comm_all_gather] = all_gather;
  kernel[NN_OP_comm_all_reduce] = all_reduce;
  kernel[NN_OP_comm_reduce_scatter] = nn_comm_reduce_scatter;
  kernel[NN_OP_comm_reduce_scatter_begin] = nn_comm_reduce_scatter_begin;
  kernel[NN_OP_comm_reduce_scatter_end] = nn_comm_reduce_scatter_end;
  kernel[NN_OP_comm_move] = move;
  kernel[NN_OP_comm_grad_norm] = nn_comm_grad_norm;
  kernel[NN_OP_comm_dispatch] = nn_comm_dispatch;
  kernel[NN_OP_comm_collect] = nn_comm_collect;
  kernel[NN_OP_comm_dispatch_begin] = nn_comm_dispatch_begin;
  kernel[NN_OP_comm_dispatch_end] = nn_comm_dispatch_end;
  kernel[NN_OP_comm_collect_begin] = nn_comm_collect_begin;
  kernel[NN_OP_comm_collect_end] = nn_comm_collect_end;
  layout[NN_OP_comm_broadcast] = layout[NN_OP_comm_all_gather] = layout[NN_OP_comm_move] = NULL;
  layout[NN_OP_comm_reduce_scatter_begin] = layout[NN_OP_comm_reduce_scatter_end] = NULL;
  layout[NN_OP_comm_dispatch] = layout[NN_OP_comm_dispatch_begin] = layout[NN_OP_comm_dispatch_end] = NULL;
  layout[NN_OP_comm_collect] = layout[NN_OP_comm_collect_begin] = layout[NN_OP_comm_collect_end] = NULL;
  layout[NN_OP_comm_all_reduce] = nn_comm_all_reduce_workspace;
  layout[NN_OP_comm_reduce_scatter] = nn_comm_reduce_scatter_workspace;
  layout[NN_OP_comm_grad_norm] = nn_comm_grad_norm_workspace;
}

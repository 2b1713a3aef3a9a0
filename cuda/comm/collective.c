/*
 * Collectives, made of messages and of the engine's own kernels: who sends what to whom, and in which order arriving
 * sums are added, stands here once for all transports and engines.
 */
#include "collective.h"

#include "abi/generated/elementwise.h"
#include "abi/optimizer.h"
#include "comm.h"
#include "numbers/sizes.h"
#include "runtime/call.h"
#include "runtime/memory.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>

/* A growing list of messages, on the host. */
typedef struct outbox {
  nn_message *messages;
  int64_t count;
} outbox;

static int32_t outbox_open(nncuda_ctx *ctx, outbox *box, int64_t most) {
  box->count = 0;
  box->messages = malloc((size_t)(most + 1) * sizeof *box->messages);
  return box->messages != NULL
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)most);
}

static void post(outbox *box, int64_t peer, const void *data, int64_t bytes, int32_t send) {
  if (bytes > 0) {
    box->messages[box->count++] = (nn_message){peer, (void *)(uintptr_t)data, (size_t)bytes, send};
  }
}

static int32_t copy(nncuda_ctx *ctx, void *to, const void *from, int64_t bytes) {
  const nn_memcpy_args args = {to, from, bytes, NNCUDA_DEVICE_TO_DEVICE, 0};
  return bytes == 0 ? NNCUDA_SUCCESS : ctx->kernel[NN_OP_memcpy](ctx, &args);
}

/* y = a + b. A kernel with no workspace, so that it may run within this one. */
static int32_t add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n) {
  return ctx->kernel[NN_OP_add](ctx, &(nn_add_args){a, b, y, n, NNCUDA_F32});
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
  return nn_take(w, (size_t)nn_mul(a->comm->ranks, nn_mul(a->n, 4)));
}

void nn_comm_all_reduce_workspace(const void *args, nn_workspace *w) { all_reduce_lay_out(args, w); }

static int32_t all_reduce(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  const int64_t ranks = a->comm->ranks, bytes = a->n * 4;
  char *const all = all_reduce_lay_out(a, nn_workspace_of(ctx));
  int32_t status = copy(ctx, all + a->comm->rank * bytes, a->x, bytes);
  if (status == NNCUDA_SUCCESS) {
    status = nn_comm_gather(ctx, a->comm, all, ranks * bytes, bytes, 0);
  }
  if (status == NNCUDA_SUCCESS) {
    status = copy(ctx, a->x, all, bytes);
  }
  for (int64_t r = 1; status == NNCUDA_SUCCESS && r < ranks; r++) {
    status = add(ctx, a->x, all + r * bytes, a->x, a->n);
  }
  return status;
}

/* ---- reduce_scatter ---- */

/* Room for what arrives of each sum of the other ranks at a time: as much as keeps transports busy, in all. */
enum { ROOM = 64 << 20, LEAST_PIECE = 1 << 12, MOST_PIECE = 1 << 18 };

static nn_range replicas_of(const nn_comm_args *a, int64_t rank) {
  return nn_shard(a->replicas, 1, a->comm->ranks, rank);
}

/* Sums of all other ranks. */
static int64_t arriving(const nn_comm_args *a) {
  int64_t sums = 0;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    sums += r == a->comm->rank ? 0 : nn_replica_parts(a->replicas, replicas_of(a, r));
  }
  return sums;
}

/* Elements that travel of each sum in one exchange; the same on all ranks. */
static int64_t piece_of(const nn_comm_args *a) {
  int64_t sums = 0;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    sums += nn_replica_parts(a->replicas, replicas_of(a, r));
  }
  const int64_t fits = ROOM / 4 / sums;
  return fits < LEAST_PIECE ? LEAST_PIECE : fits > MOST_PIECE ? MOST_PIECE : fits;
}

/* What takes part of a rank's shard; empty ones lie within the range, too. */
static nn_range shard_of(const nn_comm_args *a, int64_t rank) {
  const nn_range shard = nn_shard(a->n, a->grain, a->comm->ranks, rank);
  const int64_t begin = shard.begin < a->begin ? a->begin : shard.begin < a->end ? shard.begin : a->end;
  const int64_t end = shard.end < a->end ? shard.end : a->end;
  return (nn_range){begin, end < begin ? begin : end};
}

static int64_t longest_shard(const nn_comm_args *a) {
  int64_t longest = 0;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    const nn_range shard = shard_of(a, r);
    longest = shard.end - shard.begin > longest ? shard.end - shard.begin : longest;
  }
  return longest;
}

static float *reduce_scatter_lay_out(const nn_comm_args *a, nn_workspace *w) {
  const int64_t piece = piece_of(a), longest = longest_shard(a);
  return nn_take(w, (size_t)nn_mul(arriving(a), 4 * (piece < longest ? piece : longest)));
}

void nn_comm_reduce_scatter_workspace(const void *args, nn_workspace *w) { reduce_scatter_lay_out(args, w); }

typedef struct reduction {
  const nn_comm_args *a;
  float *room;   /* what arrives, sum by sum, in the order of the ranks */
  int64_t piece; /* elements between sums there */
  int64_t first; /* of this exchange, within every shard */
  const float **stack;
  outbox box;
} reduction;

/* Part `k` of this rank's own sums. */
static const float *own_part(const nn_comm_args *a, int64_t k) { return k < a->parts ? a->partials + k * a->n : a->x; }

/* Elements of a rank's shard in this exchange. */
static nn_range now(const reduction *job, int64_t rank) {
  nn_range shard = shard_of(job->a, rank);
  shard.begin = shard.begin + job->first < shard.end ? shard.begin + job->first : shard.end;
  shard.end = shard.begin + job->piece < shard.end ? shard.begin + job->piece : shard.end;
  return shard;
}

static int32_t exchange_sums(nncuda_ctx *ctx, reduction *job) {
  const nn_comm_args *a = job->a;
  const int64_t ranks = a->comm->ranks;
  const nn_range own = now(job, a->comm->rank);
  job->box.count = 0;
  float *slot = job->room;
  for (int64_t r = 0; r < ranks; r++) {
    if (r == a->comm->rank) {
      continue;
    }
    const nn_range theirs = now(job, r);
    for (int64_t k = 0; k <= a->parts; k++) {
      post(&job->box, r, own_part(a, k) + theirs.begin, 4 * (theirs.end - theirs.begin), 1);
    }
    for (int64_t k = nn_replica_parts(a->replicas, replicas_of(a, r)); k > 0; k--, slot += job->piece) {
      post(&job->box, r, slot, 4 * (own.end - own.begin), 0);
    }
  }
  return nn_comm_exchange(ctx, a->comm, job->box.messages, job->box.count);
}

/* Adds what is there in the order of the tree. Sums that are added were computed by different ranks, or one of them was
 * added before, so one of the two lies in the room, and takes the result. */
static int32_t add_sums(nncuda_ctx *ctx, reduction *job) {
  const nn_comm_args *a = job->a;
  const nn_range own = now(job, a->comm->rank);
  const int64_t n = own.end - own.begin;
  const float *const room_end = job->room + arriving(a) * job->piece;
  float *const result = (float *)a->x + own.begin, *slot = job->room;
  int64_t depth = 0;
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    const nn_range replicas = replicas_of(a, r);
    const int64_t parts = nn_replica_parts(a->replicas, replicas);
    for (int64_t k = 0; k < parts; k++) {
      const float *sum = slot;
      if (r == a->comm->rank) {
        sum = own_part(a, k) + own.begin;
      } else {
        slot += job->piece;
      }
      for (int64_t joins = nn_replica_joins(a->replicas, replicas, k); status == NNCUDA_SUCCESS && joins > 0; joins--) {
        const float *const left = job->stack[--depth];
        const int32_t last = depth == 0 && r == a->comm->ranks - 1 && k == parts - 1;
        const int32_t in_room = sum >= job->room && sum < room_end;
        float *const y = last ? result : (float *)(uintptr_t)(in_room ? sum : left);
        status = add(ctx, left, sum, y, n);
        sum = y;
      }
      job->stack[depth++] = sum;
    }
  }
  return status;
}

static int32_t reduce_scatter(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  if (a->comm->ranks == 1) {
    return NNCUDA_SUCCESS;
  }
  reduction job = {.a = a, .room = reduce_scatter_lay_out(a, nn_workspace_of(ctx)), .piece = piece_of(a)};
  const int64_t longest = longest_shard(a), sums = arriving(a);
  job.piece = job.piece < longest ? job.piece : longest;
  int32_t status = outbox_open(ctx, &job.box, sums + a->comm->ranks * (a->parts + 1));
  job.stack = malloc((size_t)(sums + a->parts + 1) * sizeof *job.stack);
  if (status == NNCUDA_SUCCESS && job.stack == NULL) {
    status = nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld sums", (long long)sums);
  }
  for (; status == NNCUDA_SUCCESS && job.first < longest; job.first += job.piece) {
    status = exchange_sums(ctx, &job);
    const nn_range own = now(&job, a->comm->rank);
    if (status == NNCUDA_SUCCESS && own.end > own.begin) {
      status = add_sums(ctx, &job);
    }
  }
  free(job.stack);
  free(job.box.messages);
  return status;
}

/* ---- grad_norm: the sums of squares of each rank's chunks, gathered, then added as one rank adds them ---- */

static int64_t chunk_of(const nncuda_ctx *ctx) {
  return ctx->engine->device == NNCUDA_DEVICE_CUDA ? NN_GRAD_CHUNK_GPU : NN_GRAD_CHUNK_CPU;
}

/* The finer chunks of the two engines, since a layout does not know which one it is for. */
static double *grad_norm_lay_out(const nn_comm_args *a, nn_workspace *w) {
  return nn_take(w, (size_t)nn_ceil_div(a->n, NN_GRAD_CHUNK_CPU) * sizeof(double));
}

void nn_comm_grad_norm_workspace(const void *args, nn_workspace *w) { grad_norm_lay_out(args, w); }

static int32_t grad_norm(nncuda_ctx *ctx, const void *args) {
  const nn_comm_args *a = args;
  const int64_t chunk = chunk_of(ctx), chunks = nn_ceil_div(a->n, chunk);
  const nn_range own = nn_shard(chunks, a->grain / chunk, a->comm->ranks, a->comm->rank);
  nn_grad_norm_args part = {.grad = a->x,
                            .n = a->n,
                            .dtype = NNCUDA_F32,
                            .squares = grad_norm_lay_out(a, nn_workspace_of(ctx)),
                            .first = own.begin,
                            .last = own.end};
  int32_t status = ctx->kernel[NN_OP_grad_norm](ctx, &part);
  if (status == NNCUDA_SUCCESS) {
    status = nn_comm_gather(ctx, a->comm, part.squares, 8 * chunks, 8 * (a->grain / chunk), 0);
  }
  part.first = part.last = 0;
  part.norm = a->norm;
  return status != NNCUDA_SUCCESS ? status : ctx->kernel[NN_OP_grad_norm](ctx, &part);
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
  outbox box;
  int32_t status = outbox_open(ctx, &box, a->count);
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < a->count; i++) {
    const piece *p = &a->pieces[i];
    post(&box, p->peer, a->x + p->begin, p->end - p->begin, p->send);
  }
  status = status == NNCUDA_SUCCESS ? nn_comm_exchange(ctx, a->comm, box.messages, box.count) : status;
  free(box.messages);
  return status;
}

/* ---- entry points ---- */

static nn_call enter(nncuda_ctx *ctx, nn_op op, nncuda_comm *comm) {
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
  nn_call call = enter(ctx, NN_OP_comm_broadcast, comm);
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
  nn_call call = enter(ctx, NN_OP_comm_all_gather, comm);
  nn_call_size(&call, "bytes", bytes);
  nn_call_require(&call, grain >= 1, NNCUDA_ERROR_INVALID_VALUE, "grain is %lld; it must be at least 1",
                  (long long)grain);
  declare(&call, "x", x, NN_ROLE_INOUT, NN_U8, bytes, "[bytes]");
  return launch(&call, (nn_comm_args){.comm = comm, .x = x, .n = bytes, .grain = grain});
}

int32_t nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, float *x, int64_t n) {
  nn_call call = enter(ctx, NN_OP_comm_all_reduce, comm);
  nn_call_size(&call, "n", n);
  declare(&call, "x", x, NN_ROLE_INOUT, NNCUDA_F32, n, "[n]");
  return launch(&call, (nn_comm_args){.comm = comm, .x = x, .n = n});
}

int32_t nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n,
                                   int64_t parts, int64_t grain, int64_t replicas, int64_t begin, int64_t end) {
  nn_call call = enter(ctx, NN_OP_comm_reduce_scatter, comm);
  nn_call_size(&call, "n", n);
  nn_call_size_if(&call, "parts", parts, 0); /* a rank with one sum takes part as well */
  nn_call_require(&call, grain >= 1, NNCUDA_ERROR_INVALID_VALUE, "grain is %lld; it must be at least 1",
                  (long long)grain);
  if (call.status == NNCUDA_SUCCESS) {
    nn_call_require(&call, replicas >= comm->ranks, NNCUDA_ERROR_INVALID_VALUE,
                    "replicas is %lld; it must be at least the ranks, which are %lld", (long long)replicas,
                    (long long)comm->ranks);
  }
  if (call.status == NNCUDA_SUCCESS) {
    const int64_t left = nn_replica_parts(replicas, nn_shard(replicas, 1, comm->ranks, comm->rank)) - 1;
    nn_call_require(&call, parts == left, NNCUDA_ERROR_INVALID_SIZE,
                    "parts is %lld; with the replicas of rank %lld of %lld it must be %lld", (long long)parts,
                    (long long)comm->rank, (long long)comm->ranks, (long long)left);
  }
  nn_call_require(&call, begin >= 0, NNCUDA_ERROR_INVALID_VALUE, "begin is %lld; it must be at least 0",
                  (long long)begin);
  nn_call_require(&call, call.empty || (end > begin && end <= n), NNCUDA_ERROR_INVALID_VALUE,
                  "end is %lld; it must be above begin, %lld, and at most n, %lld", (long long)end, (long long)begin,
                  (long long)n);
  /* Only what takes part is declared: the rest may not be memory. */
  const int32_t good = call.status == NNCUDA_SUCCESS && !call.empty;
  const int64_t first = good ? begin : 0, count = good ? end - begin : 0;
  nn_call_tensor(&call, parts > 0 ? NN_ROLE_IN : NN_ROLE_IN | NN_ROLE_OPTIONAL, "partials",
                 partials == NULL ? NULL : partials + first, NNCUDA_F32, "n", n,
                 NN_SHAPE("[parts, end-begin]", parts, count));
  declare(&call, "x", x == NULL ? NULL : x + first, NN_ROLE_INOUT, NNCUDA_F32, count, "[end-begin]");
  return launch(&call, (nn_comm_args){.comm = comm,
                                      .x = x,
                                      .partials = partials,
                                      .n = n,
                                      .parts = parts,
                                      .grain = grain,
                                      .replicas = replicas,
                                      .begin = begin,
                                      .end = end});
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
  nn_call call = enter(ctx, NN_OP_comm_move, comm);
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

int32_t nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, const float *grad, float *norm, int64_t n,
                              int64_t grain) {
  nn_call call = enter(ctx, NN_OP_comm_grad_norm, comm);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, grain >= NN_GRAD_CHUNK_GPU && grain % NN_GRAD_CHUNK_GPU == 0, NNCUDA_ERROR_INVALID_VALUE,
                  "grain is %lld; it must be a multiple of %d", (long long)grain, NN_GRAD_CHUNK_GPU);
  declare(&call, "grad", grad, NN_ROLE_IN, NNCUDA_F32, n, "[n]");
  declare(&call, "norm", norm, NN_ROLE_OUT, NNCUDA_F32, 1, "[1]");
  call.flops = 2.0 * (double)n;
  return launch(&call,
                (nn_comm_args){.comm = comm, .x = (void *)(uintptr_t)grad, .norm = norm, .n = n, .grain = grain});
}

void nn_comm_fill(nn_kernel *kernel, nn_layout *layout) {
  kernel[NN_OP_comm_broadcast] = broadcast;
  kernel[NN_OP_comm_all_gather] = all_gather;
  kernel[NN_OP_comm_all_reduce] = all_reduce;
  kernel[NN_OP_comm_reduce_scatter] = reduce_scatter;
  kernel[NN_OP_comm_move] = move;
  kernel[NN_OP_comm_grad_norm] = grad_norm;
  kernel[NN_OP_comm_dispatch] = nn_comm_dispatch;
  kernel[NN_OP_comm_collect] = nn_comm_collect;
  layout[NN_OP_comm_broadcast] = layout[NN_OP_comm_all_gather] = layout[NN_OP_comm_move] = NULL;
  layout[NN_OP_comm_dispatch] = layout[NN_OP_comm_collect] = NULL;
  layout[NN_OP_comm_all_reduce] = nn_comm_all_reduce_workspace;
  layout[NN_OP_comm_reduce_scatter] = nn_comm_reduce_scatter_workspace;
  layout[NN_OP_comm_grad_norm] = nn_comm_grad_norm_workspace;
}

/*
 * Sums over shards: reduce_scatter, which adds gradients up where they are needed, and their norm.
 */
#include "abi/generated/elementwise.h"
#include "abi/optimizer.h"
#include "background.h"
#include "collective.h"
#include "numbers/sizes.h"
#include "outbox.h"
#include "runtime/memory.h"
#include "shards.h"
#include "tree.h"

#include <stdlib.h>

typedef struct sharded_args {
  nncuda_comm *comm;
  float *x;              /* of grad_norm: the gradients */
  const float *partials; /* of reduce_scatter: [parts, n], or null */
  float *norm;           /* of grad_norm */
  int64_t n, parts, replicas;
  int32_t wire;
  float *room; /* of a reduce_scatter that has begun */
  int64_t room_size;
  int64_t count;
  nn_owned owned[]; /* rank by rank */
} sharded_args;

/* Entries of owned. */
typedef struct run {
  int64_t begin, end;
} run;

/* Of the rank `rank`, whose entries begin at `begin` or not before. */
static run run_of(const sharded_args *a, int64_t rank, int64_t begin) {
  while (begin < a->count && a->owned[begin].rank < rank) {
    begin++;
  }
  int64_t end = begin;
  while (end < a->count && a->owned[end].rank == rank) {
    end++;
  }
  return (run){begin, end};
}

/* ---- reduce_scatter ---- */

/* Room for what arrives of each sum of the other ranks at a time: as much as keeps transports busy, in all. */
enum { ROOM = 64 << 20, LEAST_PIECE = 1 << 12, MOST_PIECE = 1 << 18 };

static nn_range replicas_of(const sharded_args *a, int64_t rank) {
  return nn_shard(a->replicas, 1, a->comm->ranks, rank);
}

static int64_t sums_of(const sharded_args *a, int64_t rank) {
  return nn_replica_parts(a->replicas, replicas_of(a, rank));
}

static int64_t all_sums(const sharded_args *a) {
  int64_t sums = 0;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    sums += sums_of(a, r);
  }
  return sums;
}

/* Elements of the rank that has the most. */
static int64_t most_owned(const sharded_args *a) {
  int64_t most = 0;
  for (int64_t i = 0; i < a->count; i++) {
    const int64_t elements = a->owned[i].at + a->owned[i].end - a->owned[i].begin;
    most = elements > most ? elements : most;
  }
  return most;
}

static int64_t wire_bytes(const sharded_args *a) { return a->wire == NNCUDA_F32 ? 4 : 2; }

typedef struct reduction {
  const sharded_args *a;
  int64_t sums;  /* of the other ranks */
  int64_t piece; /* elements of a rank that travel of each sum in one exchange, at most; the same on all ranks */
  int64_t first; /* the first one in this exchange, within each rank's */
  run own;
  char *room;     /* [sums, piece] of the wire's type: what arrives, in the order of the ranks */
  char *rounded;  /* [ranks, parts + 1, piece]: own sums in the wire's type, where that is not f32 */
  float *widened; /* [piece]: a rounded sum in f32 */
  const char **stack;
  nn_outbox box;
} reduction;

/* What is done in one exchange takes it whole. */
static reduction reduce_scatter_lay_out(const sharded_args *a, int32_t whole, nn_workspace *w) {
  const int64_t all = all_sums(a), fits = ROOM / 4 / all, most = most_owned(a);
  const int64_t piece = fits < LEAST_PIECE ? LEAST_PIECE : fits > MOST_PIECE ? MOST_PIECE : fits;
  reduction job = {.a = a, .sums = all - a->parts - 1, .piece = piece < most && !whole ? piece : most};
  job.room = nn_workspace_piece(w, (size_t)nn_mul(job.sums, wire_bytes(a) * job.piece));
  if (a->wire != NNCUDA_F32) {
    job.rounded = nn_workspace_piece(w, (size_t)nn_mul(a->comm->ranks, nn_mul(a->parts + 1, 2 * job.piece)));
    job.widened = nn_workspace_piece(w, (size_t)(4 * job.piece));
  }
  return job;
}

void nn_comm_reduce_scatter_workspace(const void *args, nn_workspace *w) { reduce_scatter_lay_out(args, 0, w); }

/* What of an entry is in this exchange. */
typedef struct span {
  int64_t begin, count; /* elements of x */
  int64_t at;           /* the first one's place in the piece */
} span;

static span span_of(const reduction *job, const nn_owned *o) {
  const int64_t count = o->end - o->begin, last = job->first + job->piece - o->at;
  const int64_t from = job->first > o->at ? job->first - o->at : 0, to = last < count ? last : count;
  return (span){o->begin + from, to > from ? to - from : 0, o->at + from - job->first};
}

static int64_t elements_now(const reduction *job, run entries) {
  int64_t elements = 0;
  for (int64_t i = entries.begin; i < entries.end; i++) {
    elements += span_of(job, &job->a->owned[i]).count;
  }
  return elements;
}

/* Part `k` of this rank's own sums. */
static const float *own_part(const sharded_args *a, int64_t k) { return k < a->parts ? a->partials + k * a->n : a->x; }

static char *rounded_part(const reduction *job, int64_t rank, int64_t k) {
  return job->rounded + (rank * (job->a->parts + 1) + k) * 2 * job->piece;
}

static int32_t cast(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  return ctx->kernel[NN_OP_cast](ctx, &(nn_cast_args){x, y, n, dtype_x, dtype_y});
}

/* Own sums of what a rank gets: to be sent as they are, or rounded first. */
static int32_t post_sums(nncuda_ctx *ctx, reduction *job, int64_t rank, run theirs) {
  const sharded_args *a = job->a;
  const int32_t rounds = a->wire != NNCUDA_F32, sends = rank != a->comm->rank;
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t k = 0; k <= a->parts; k++) {
    for (int64_t i = theirs.begin; status == NNCUDA_SUCCESS && i < theirs.end; i++) {
      const span s = span_of(job, &a->owned[i]);
      const float *const sum = own_part(a, k) + s.begin;
      if (rounds && s.count > 0) {
        status = cast(ctx, sum, rounded_part(job, rank, k) + 2 * s.at, s.count, NNCUDA_F32, a->wire);
      } else if (!rounds && sends) {
        nn_outbox_post(&job->box, rank, sum, 4 * s.count, 1);
      }
    }
    if (rounds && sends) {
      nn_outbox_post(&job->box, rank, rounded_part(job, rank, k), 2 * elements_now(job, theirs), 1);
    }
  }
  return status;
}

/* A sum of another rank's, of what this rank gets. */
static void expect_sum(reduction *job, int64_t rank, char *slot) {
  if (job->a->wire != NNCUDA_F32) {
    nn_outbox_post(&job->box, rank, slot, 2 * elements_now(job, job->own), 0);
    return;
  }
  for (int64_t i = job->own.begin; i < job->own.end; i++) {
    const span s = span_of(job, &job->a->owned[i]);
    nn_outbox_post(&job->box, rank, slot + 4 * s.at, 4 * s.count, 0);
  }
}

/* What is exchanged of each sum at a time into the outbox. */
static int32_t post_exchange(nncuda_ctx *ctx, reduction *job) {
  const sharded_args *a = job->a;
  const int64_t slot_bytes = wire_bytes(a) * job->piece;
  char *slot = job->room;
  run theirs = {0, 0};
  int32_t status = NNCUDA_SUCCESS;
  job->box.count = 0;
  for (int64_t r = 0; status == NNCUDA_SUCCESS && r < a->comm->ranks; r++) {
    theirs = run_of(a, r, theirs.end);
    status = post_sums(ctx, job, r, theirs);
    for (int64_t k = r == a->comm->rank ? 0 : sums_of(a, r); k > 0; k--, slot += slot_bytes) {
      expect_sum(job, r, slot);
    }
  }
  return status;
}

/* The sum over all replicas, which is not rounded. */
static int32_t add_last(nncuda_ctx *ctx, const reduction *job, const char *left, const char *sum, span s) {
  const int32_t wire = job->a->wire;
  float *const result = job->a->x + s.begin;
  if (wire == NNCUDA_F32) {
    return nn_comm_add(ctx, left, sum, result, s.count, NNCUDA_F32);
  }
  int32_t status = cast(ctx, left, result, s.count, wire, NNCUDA_F32);
  status = status != NNCUDA_SUCCESS ? status : cast(ctx, sum, job->widened, s.count, wire, NNCUDA_F32);
  return status != NNCUDA_SUCCESS ? status : nn_comm_add(ctx, result, job->widened, result, s.count, NNCUDA_F32);
}

/* Adds what is there in the order of the tree. Sums that are added were computed by different ranks, or one of them was
 * added before, so one of the two lies in the room, and takes the result. */
static int32_t add_sums(nncuda_ctx *ctx, reduction *job, span s) {
  const sharded_args *a = job->a;
  const int64_t bytes = wire_bytes(a), slot_bytes = bytes * job->piece;
  const char *const room_end = job->room + job->sums * slot_bytes, *slot = job->room;
  int64_t depth = 0;
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t r = 0; r < a->comm->ranks; r++) {
    const nn_range replicas = replicas_of(a, r);
    const int64_t parts = nn_replica_parts(a->replicas, replicas);
    for (int64_t k = 0; k < parts; k++) {
      const char *sum = slot + bytes * s.at;
      if (r != a->comm->rank) {
        slot += slot_bytes;
      } else if (a->wire == NNCUDA_F32) {
        sum = (const char *)(own_part(a, k) + s.begin);
      } else {
        sum = rounded_part(job, r, k) + bytes * s.at;
      }
      for (int64_t joins = nn_replica_joins(a->replicas, replicas, k); status == NNCUDA_SUCCESS && joins > 0; joins--) {
        const char *const left = job->stack[--depth];
        if (depth == 0 && r == a->comm->ranks - 1 && k == parts - 1) {
          return add_last(ctx, job, left, sum, s);
        }
        char *const y = (char *)(uintptr_t)(sum >= job->room && sum < room_end ? sum : left);
        status = nn_comm_add(ctx, left, sum, y, s.count, a->wire);
        sum = y;
      }
      job->stack[depth++] = sum;
    }
  }
  return status;
}

/* Messages of an exchange, at most. */
static int64_t most_messages(const reduction *job) {
  const sharded_args *a = job->a;
  const int32_t rounds = a->wire != NNCUDA_F32;
  return (a->parts + 1) * (rounds ? a->comm->ranks : a->count) +
         job->sums * (rounds ? 1 : job->own.end - job->own.begin);
}

static int32_t open_reduction(nncuda_ctx *ctx, const sharded_args *a, reduction *job) {
  job->own = run_of(a, a->comm->rank, 0);
  const int32_t status = nn_outbox_open(ctx, &job->box, most_messages(job));
  job->stack = malloc((size_t)(job->sums + a->parts + 1) * sizeof *job->stack);
  return status == NNCUDA_SUCCESS && job->stack == NULL
             ? nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld sums", (long long)job->sums)
             : status;
}

static void close_reduction(reduction *job) {
  free(job->stack);
  free(job->box.messages);
}

static int32_t add_all(nncuda_ctx *ctx, reduction *job) {
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t i = job->own.begin; status == NNCUDA_SUCCESS && i < job->own.end; i++) {
    const span s = span_of(job, &job->a->owned[i]);
    status = s.count > 0 ? add_sums(ctx, job, s) : NNCUDA_SUCCESS;
  }
  return status;
}

int32_t nn_comm_reduce_scatter(nncuda_ctx *ctx, const void *args) {
  const sharded_args *a = args;
  if (a->comm->ranks == 1) {
    return NNCUDA_SUCCESS;
  }
  reduction job = reduce_scatter_lay_out(a, 0, nn_workspace_of(ctx));
  int32_t status = open_reduction(ctx, a, &job);
  const int64_t most = most_owned(a);
  for (; status == NNCUDA_SUCCESS && job.first < most; job.first += job.piece) {
    status = post_exchange(ctx, &job);
    status = status != NNCUDA_SUCCESS ? status : nn_comm_exchange(ctx, a->comm, job.box.messages, job.box.count);
    status = status != NNCUDA_SUCCESS ? status : add_all(ctx, &job);
  }
  close_reduction(&job);
  return status;
}

/* ---- the same in two calls: what is done between them is done beside the exchange ---- */

static reduction lay_out_in_room(const sharded_args *a) {
  nn_workspace room = {
      .memory = (unsigned char *)a->room, .capacity = 4 * (size_t)a->room_size, .alignment = NN_MEMORY_ALIGNMENT};
  return reduce_scatter_lay_out(a, 1, &room);
}

static int64_t room_size(const sharded_args *a) {
  nn_workspace room = {.capacity = SIZE_MAX, .alignment = NN_MEMORY_ALIGNMENT};
  if (a->comm->ranks > 1) {
    reduce_scatter_lay_out(a, 1, &room);
  }
  return (int64_t)(room.used / 4);
}

int32_t nn_comm_reduce_scatter_begin(nncuda_ctx *ctx, const void *args) {
  const sharded_args *a = args;
  if (a->comm->ranks == 1) {
    return NNCUDA_SUCCESS;
  }
  reduction job = lay_out_in_room(a);
  int32_t status = open_reduction(ctx, a, &job);
  status = status != NNCUDA_SUCCESS ? status : post_exchange(ctx, &job);
  status = status != NNCUDA_SUCCESS ? status : nn_comm_exchange_begin(ctx, a->comm, job.box.messages, job.box.count);
  close_reduction(&job);
  return status;
}

int32_t nn_comm_reduce_scatter_end(nncuda_ctx *ctx, const void *args) {
  const sharded_args *a = args;
  if (a->comm->ranks == 1) {
    return NNCUDA_SUCCESS;
  }
  reduction job = lay_out_in_room(a);
  int32_t status = nn_comm_exchange_end(ctx, a->comm);
  status = status != NNCUDA_SUCCESS ? status : open_reduction(ctx, a, &job);
  status = status != NNCUDA_SUCCESS ? status : add_all(ctx, &job);
  close_reduction(&job);
  return status;
}

/* ---- grad_norm: the sums of squares of each rank's chunks, gathered, then added as one rank adds them ---- */

typedef struct norm_job {
  const sharded_args *a;
  int64_t chunk;
  double *squares; /* of each chunk, in their order */
  double *by_rank; /* the same, rank by rank: what travels */
} norm_job;

static int64_t chunk_of(const nncuda_ctx *ctx) {
  return ctx->engine->device == NNCUDA_DEVICE_CUDA ? NN_GRAD_CHUNK_GPU : NN_GRAD_CHUNK_CPU;
}

/* Room for the finer chunks of the two engines, since a layout does not know which one it is for. */
static norm_job grad_norm_lay_out(const sharded_args *a, nn_workspace *w) {
  const size_t bytes = (size_t)nn_ceil_div(a->n, NN_GRAD_CHUNK_CPU) * sizeof(double);
  norm_job job = {.a = a, .squares = nn_workspace_piece(w, bytes)};
  job.by_rank = nn_workspace_piece(w, bytes);
  return job;
}

void nn_comm_grad_norm_workspace(const void *args, nn_workspace *w) { grad_norm_lay_out(args, w); }

static int64_t chunks_of(const norm_job *job, run entries) {
  int64_t chunks = 0;
  for (int64_t i = entries.begin; i < entries.end; i++) {
    chunks += nn_ceil_div(job->a->owned[i].end - job->a->owned[i].begin, job->chunk);
  }
  return chunks;
}

/* Sums of squares of this rank's entries, the first of which has the place `at` in by_rank. */
static int32_t square(nncuda_ctx *ctx, const norm_job *job, run own, int64_t at) {
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t i = own.begin; status == NNCUDA_SUCCESS && i < own.end; i++) {
    const int64_t first = job->a->owned[i].begin / job->chunk, count = chunks_of(job, (run){i, i + 1});
    const nn_grad_norm_args part = {.grad = job->a->x,
                                    .n = job->a->n,
                                    .dtype = NNCUDA_F32,
                                    .squares = job->squares,
                                    .first = first,
                                    .last = first + count};
    status = ctx->kernel[NN_OP_grad_norm](ctx, &part);
    status = status != NNCUDA_SUCCESS ? status : nn_comm_copy(ctx, job->by_rank + at, job->squares + first, 8 * count);
    at += count;
  }
  return status;
}

/* Those of each rank to all. */
static int32_t gather_squares(nncuda_ctx *ctx, const norm_job *job, run own, int64_t own_at) {
  const sharded_args *a = job->a;
  const int64_t own_bytes = 8 * chunks_of(job, own);
  nn_outbox box;
  int32_t status = nn_outbox_open(ctx, &box, 2 * a->comm->ranks);
  run theirs = {0, 0};
  for (int64_t r = 0, at = 0; status == NNCUDA_SUCCESS && r < a->comm->ranks; r++) {
    theirs = run_of(a, r, theirs.end);
    const int64_t chunks = chunks_of(job, theirs);
    if (r != a->comm->rank) {
      nn_outbox_post(&box, r, job->by_rank + own_at, own_bytes, 1);
      nn_outbox_post(&box, r, job->by_rank + at, 8 * chunks, 0);
    }
    at += chunks;
  }
  status = status != NNCUDA_SUCCESS ? status : nn_comm_exchange(ctx, a->comm, box.messages, box.count);
  free(box.messages);
  return status;
}

/* From by_rank to the order in which they are added. */
static int32_t sort_squares(nncuda_ctx *ctx, const norm_job *job) {
  const sharded_args *a = job->a;
  int32_t status = NNCUDA_SUCCESS;
  for (int64_t i = 0, at = 0; status == NNCUDA_SUCCESS && i < a->count; i++) {
    const int64_t count = chunks_of(job, (run){i, i + 1});
    if (a->owned[i].rank != a->comm->rank) {
      status = nn_comm_copy(ctx, job->squares + a->owned[i].begin / job->chunk, job->by_rank + at, 8 * count);
    }
    at += count;
  }
  return status;
}

int32_t nn_comm_grad_norm(nncuda_ctx *ctx, const void *args) {
  const sharded_args *a = args;
  norm_job job = grad_norm_lay_out(a, nn_workspace_of(ctx));
  job.chunk = chunk_of(ctx);
  const run own = run_of(a, a->comm->rank, 0);
  const int64_t own_at = chunks_of(&job, (run){0, own.begin});
  int32_t status = square(ctx, &job, own, own_at);
  status = status != NNCUDA_SUCCESS ? status : gather_squares(ctx, &job, own, own_at);
  status = status != NNCUDA_SUCCESS ? status : sort_squares(ctx, &job);
  const nn_grad_norm_args whole = {
      .grad = a->x, .norm = a->norm, .n = a->n, .dtype = NNCUDA_F32, .squares = job.squares};
  return status != NNCUDA_SUCCESS ? status : ctx->kernel[NN_OP_grad_norm](ctx, &whole);
}

/* ---- entry points ---- */

/* A copy of the arguments with the shards beside them; null with a failed call, or without memory. Free it. */
static sharded_args *with_shards(nn_call *call, sharded_args args, const int64_t *shards) {
  sharded_args *own = NULL;
  if (call->status == NNCUDA_SUCCESS) {
    own = malloc(sizeof args + (size_t)args.count * sizeof *args.owned);
    nn_call_require(call, own != NULL, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld shards", (long long)args.count);
  }
  if (own != NULL) {
    *own = args;
    nn_shards_by_rank(shards, args.count, own->owned);
  }
  return own;
}

static int32_t launch(nn_call *call, sharded_args args, const int64_t *shards) {
  sharded_args *const own = with_shards(call, args, shards);
  const int32_t status = nn_call_launch(call, own, sizeof args + (size_t)args.count * sizeof *args.owned);
  free(own);
  return status;
}

/* Enters a call with the arguments of reduce_scatter, and checks those that are not memory. */
static nn_call enter_reduction(nncuda_ctx *ctx, nn_op op, const sharded_args *a, const int64_t *shards) {
  nn_call call = nn_comm_enter(ctx, op, a->comm);
  nn_call_dtype(&call, "wire", a->wire, NN_FLOATS);
  nn_call_size(&call, "n", a->n);
  nn_call_size_if(&call, "parts", a->parts, 0); /* a rank with one sum takes part as well */
  nn_call_size(&call, "count", a->count);
  if (call.status == NNCUDA_SUCCESS) {
    nn_call_require(&call, a->replicas >= a->comm->ranks, NNCUDA_ERROR_INVALID_VALUE,
                    "replicas is %lld; it must be at least the ranks, which are %lld", (long long)a->replicas,
                    (long long)a->comm->ranks);
  }
  if (call.status == NNCUDA_SUCCESS) {
    const int64_t left = sums_of(a, a->comm->rank) - 1;
    nn_call_require(&call, a->parts == left, NNCUDA_ERROR_INVALID_SIZE,
                    "parts is %lld; with the replicas of rank %lld of %lld it must be %lld", (long long)a->parts,
                    (long long)a->comm->rank, (long long)a->comm->ranks, (long long)left);
  }
  if (call.status == NNCUDA_SUCCESS) {
    nn_shards_check(&call, a->n, a->comm->ranks, shards, a->count);
  }
  return call;
}

/* Only what takes part is declared: the rest may not be memory. Whether the bytes of it are `counted`. */
static void declare_sums(nn_call *call, const sharded_args *a, const int64_t *shards, int32_t counted) {
  const int32_t good = call->status == NNCUDA_SUCCESS && !call->empty;
  const int64_t first = good ? shards[0] : 0, taken = good ? shards[3 * a->count - 2] - first : 0;
  const int32_t gaps = good && (!counted || !nn_shards_joined(shards, a->count)) ? NN_ROLE_PARTS : 0;
  nn_call_tensor(call, (a->parts > 0 ? NN_ROLE_IN : NN_ROLE_IN | NN_ROLE_OPTIONAL) | gaps, "partials",
                 a->partials == NULL ? NULL : a->partials + first, NNCUDA_F32, "n", a->n,
                 NN_SHAPE("[parts, elements]", a->parts, taken));
  nn_call_tensor(call, NN_ROLE_INOUT | gaps, "x", a->x == NULL ? NULL : a->x + first, NNCUDA_F32, NULL, 0,
                 NN_SHAPE("[elements]", taken));
  for (int64_t i = 0; gaps && counted && i < a->count; i++) {
    call->bytes += 4.0 * (double)(a->parts + 2) * (double)(shards[3 * i + 1] - shards[3 * i]);
  }
}

static sharded_args of_sums(nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts,
                            int64_t replicas, int64_t count, int32_t wire) {
  return (sharded_args){.comm = comm,
                        .x = x,
                        .partials = partials,
                        .n = n,
                        .parts = parts,
                        .replicas = replicas,
                        .wire = wire,
                        .count = count};
}

int32_t nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n,
                                   int64_t parts, int64_t replicas, const int64_t *shards, int64_t count,
                                   int32_t wire) {
  const sharded_args args = of_sums(comm, partials, x, n, parts, replicas, count, wire);
  nn_call call = enter_reduction(ctx, NN_OP_comm_reduce_scatter, &args, shards);
  declare_sums(&call, &args, shards, 1);
  return launch(&call, args, shards);
}

int32_t nncuda_comm_reduce_scatter_room(nncuda_ctx *ctx, nncuda_comm *comm, int64_t n, int64_t parts, int64_t replicas,
                                        const int64_t *shards, int64_t count, int32_t wire, int64_t *size) {
  const sharded_args args = of_sums(comm, NULL, NULL, n, parts, replicas, count, wire);
  nn_call call = enter_reduction(ctx, NN_OP_comm_reduce_scatter_begin, &args, shards);
  nn_call_require(&call, size != NULL, NNCUDA_ERROR_NULL_POINTER, "size is null; it must say where to put the number");
  sharded_args *const own = call.empty ? NULL : with_shards(&call, args, shards);
  if (call.status == NNCUDA_SUCCESS) {
    *size = own == NULL ? 0 : room_size(own);
  }
  free(own);
  call.empty = 1; /* nothing is run */
  return nn_call_launch(&call, NULL, 0);
}

/* Either half; the bytes of both count with the second. */
static int32_t split_reduction(nncuda_ctx *ctx, nn_op op, sharded_args args, const int64_t *shards, float *room,
                               int64_t size) {
  args.room = room;
  args.room_size = size;
  nn_call call = enter_reduction(ctx, op, &args, shards);
  declare_sums(&call, &args, shards, op == NN_OP_comm_reduce_scatter_end);
  sharded_args *const own = call.empty ? NULL : with_shards(&call, args, shards);
  if (own != NULL) {
    const int64_t needed = room_size(own);
    nn_call_require(&call, args.room_size >= needed, NNCUDA_ERROR_INVALID_SIZE,
                    "room_size is %lld; these sums need %lld (nncuda_comm_reduce_scatter_room)",
                    (long long)args.room_size, (long long)needed);
  }
  nn_call_tensor(&call, NN_ROLE_INOUT | NN_ROLE_PARTS, "room", args.room, NNCUDA_F32, NULL, 0,
                 NN_SHAPE("[room_size]", size));
  const int32_t status = nn_call_launch(&call, own, sizeof args + (size_t)args.count * sizeof *args.owned);
  free(own);
  return status;
}

int32_t nncuda_comm_reduce_scatter_begin(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n,
                                         int64_t parts, int64_t replicas, const int64_t *shards, int64_t count,
                                         int32_t wire, float *room, int64_t room_size) {
  const sharded_args sums = of_sums(comm, partials, x, n, parts, replicas, count, wire);
  return split_reduction(ctx, NN_OP_comm_reduce_scatter_begin, sums, shards, room, room_size);
}

int32_t nncuda_comm_reduce_scatter_end(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n,
                                       int64_t parts, int64_t replicas, const int64_t *shards, int64_t count,
                                       int32_t wire, float *room, int64_t room_size) {
  const sharded_args sums = of_sums(comm, partials, x, n, parts, replicas, count, wire);
  return split_reduction(ctx, NN_OP_comm_reduce_scatter_end, sums, shards, room, room_size);
}

static void check_whole(nn_call *call, int64_t n, const int64_t *shards, int64_t count) {
  const int64_t first = count > 0 ? shards[0] : 0, end = count > 0 ? shards[3 * count - 2] : 0;
  nn_call_require(call, first == 0 && end == n && nn_shards_joined(shards, count), NNCUDA_ERROR_INVALID_VALUE,
                  "shards have gaps; they must be all of the %lld elements", (long long)n);
  for (int64_t i = 0; call->status == NNCUDA_SUCCESS && i < count; i++) {
    nn_call_require(call, shards[3 * i] % NN_GRAD_CHUNK_GPU == 0, NNCUDA_ERROR_INVALID_VALUE,
                    "shard %lld begins at element %lld; it must begin at a multiple of %d", (long long)i,
                    (long long)shards[3 * i], NN_GRAD_CHUNK_GPU);
  }
}

int32_t nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, const float *grad, float *norm, int64_t n,
                              const int64_t *shards, int64_t count) {
  nn_call call = nn_comm_enter(ctx, NN_OP_comm_grad_norm, comm);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "count", count);
  if (call.status == NNCUDA_SUCCESS) {
    nn_shards_check(&call, n, comm->ranks, shards, count);
  }
  if (call.status == NNCUDA_SUCCESS) {
    check_whole(&call, n, shards, count);
  }
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_PARTS, "grad", grad, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "norm", norm, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  for (int64_t i = 0; call.status == NNCUDA_SUCCESS && i < count; i++) {
    const int64_t elements = shards[3 * i + 2] == comm->rank ? shards[3 * i + 1] - shards[3 * i] : 0;
    call.bytes += 4.0 * (double)elements;
    call.flops += 2.0 * (double)elements;
  }
  return launch(
      &call, (sharded_args){.comm = comm, .x = (float *)(uintptr_t)grad, .norm = norm, .n = n, .count = count}, shards);
}

/* Communicators of some of a communicator's ranks: who its members are, asked of all or known to them. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

/* The checks that both ways to make a part share. */
static int32_t check_part(nncuda_ctx *ctx, const nncuda_comm *comm, nncuda_comm **part) {
  const int32_t status = nn_comm_check(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (part == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "part is null; it must say where to put the communicator");
  }
  *part = NULL;
  return NNCUDA_SUCCESS;
}

/* Makes the part of members[0 .. ranks-1], of which this rank is one. */
static int32_t make_part(nncuda_ctx *ctx, nncuda_comm *comm, const int64_t *members, int64_t ranks,
                         nncuda_comm **part) {
  nncuda_comm *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
  }
  *made = (nncuda_comm){.transport = comm->transport,
                        .ranks = ranks,
                        .timeout_ms = comm->timeout_ms,
                        .names = calloc((size_t)ranks, sizeof *made->names),
                        .parent = comm,
                        .next = comm->parts};
  int32_t status = made->names != NULL ? NNCUDA_SUCCESS
                                       : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY,
                                                 "no memory for a communicator of %lld ranks", (long long)ranks);
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < ranks; i++) {
    made->rank = members[i] == comm->rank ? i : made->rank;
    made->names[i] = nn_comm_name(comm, members[i]);
  }
  status = status == NNCUDA_SUCCESS ? comm->transport->split(ctx, comm, made, members) : status;
  if (status == NNCUDA_ERROR_PEER) {
    nn_comm_lose_family(made->failed ? made : comm);
  }
  if (status != NNCUDA_SUCCESS) {
    free(made->names);
    free(made);
    return status;
  }
  status = nn_comm_keep(ctx, made, part);
  if (status == NNCUDA_SUCCESS) {
    comm->parts = made;
  }
  return status;
}

/* ---- by color and key, which all ranks tell each other ---- */

typedef struct seat { /* of a rank in a split */
  int64_t color, key, rank;
} seat;

static int by_color_and_key(const void *a, const void *b) {
  const seat *x = a, *y = b;
  const int64_t left[] = {x->color, x->key, x->rank}, right[] = {y->color, y->key, y->rank};
  for (int i = 0; i < 3; i++) {
    if (left[i] != right[i]) {
      return left[i] < right[i] ? -1 : 1;
    }
  }
  return 0;
}

/* Makes the part of this rank from everyone's seats. */
static int32_t split_by(nncuda_ctx *ctx, nncuda_comm *comm, seat *seats, int64_t color, nncuda_comm **part) {
  qsort(seats, (size_t)comm->ranks, sizeof *seats, by_color_and_key);
  int64_t *members = malloc((size_t)comm->ranks * sizeof *members);
  if (members == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)comm->ranks);
  }
  int64_t ranks = 0;
  for (int64_t i = 0; i < comm->ranks; i++) {
    if (seats[i].color == color) {
      members[ranks++] = seats[i].rank;
    }
  }
  const int32_t status = make_part(ctx, comm, members, ranks, part);
  free(members);
  return status;
}

static int32_t split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key, nncuda_comm **part) {
  int32_t status = check_part(ctx, comm, part);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (color < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "color is %lld; it must be at least 0", (long long)color);
  }
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  seat *seats = calloc((size_t)comm->ranks, sizeof *seats);
  if (seats == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %lld ranks",
                   (long long)comm->ranks);
  }
  status = nn_comm_gather_host(ctx, comm, &(seat){color, key, comm->rank}, sizeof(seat), seats);
  if (status == NNCUDA_SUCCESS) {
    status = split_by(ctx, comm, seats, color, part);
  }
  free(seats);
  return status;
}

/* ---- parts that all of their members know ---- */

typedef struct row {
  int64_t first, step, count;
} row;

/* Meets the other members, within the time-out, and sees that they mean the same ranks. */
static int32_t meet(nncuda_ctx *ctx, nncuda_comm *comm, const row *own, const int64_t *members) {
  const size_t count = (size_t)own->count;
  nn_message *messages = malloc(2 * count * sizeof *messages);
  row *theirs = calloc(count, sizeof *theirs);
  int32_t status = NNCUDA_SUCCESS;
  if (messages == NULL || theirs == NULL) {
    status = nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)own->count);
  } else {
    int64_t posted = 0;
    for (size_t i = 0; i < count; i++) {
      if (members[i] != comm->rank) {
        messages[posted++] = (nn_message){members[i], (void *)(uintptr_t)own, sizeof *own, 1};
        messages[posted++] = (nn_message){members[i], &theirs[i], sizeof *theirs, 0};
      }
    }
    status = nn_comm_exchange_host(ctx, comm, messages, posted);
  }
  for (size_t i = 0; status == NNCUDA_SUCCESS && !ctx->engine->measures && i < count; i++) {
    if (members[i] != comm->rank && memcmp(&theirs[i], own, sizeof *own) != 0) {
      status = nn_comm_fail(ctx, comm,
                            "rank %lld makes a part of %lld ranks, %lld apart, from rank %lld on; rank %lld of %lld, "
                            "%lld apart, from rank %lld on",
                            (long long)members[i], (long long)theirs[i].count, (long long)theirs[i].step,
                            (long long)theirs[i].first, (long long)comm->rank, (long long)own->count,
                            (long long)own->step, (long long)own->first);
    }
  }
  if (status == NNCUDA_ERROR_PEER) {
    nn_comm_lose_family(comm);
  }
  free(theirs);
  free(messages);
  return status;
}

static int32_t check_row(nncuda_ctx *ctx, const nncuda_comm *comm, const row *r) {
  const int64_t ranks = comm->ranks;
  if (r->first < 0 || r->first >= ranks) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; of %lld ranks it must be 0 to %lld",
                   (long long)r->first, (long long)ranks, (long long)(ranks - 1));
  }
  if (r->step < 1) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "step is %lld; it must be at least 1", (long long)r->step);
  }
  const int64_t most = 1 + (ranks - 1 - r->first) / r->step;
  if (r->count < 1 || r->count > most) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "count is %lld; from rank %lld of %lld on, %lld apart, it must be 1 to %lld", (long long)r->count,
                   (long long)r->first, (long long)ranks, (long long)r->step, (long long)most);
  }
  const int64_t behind = comm->rank - r->first;
  return behind >= 0 && behind % r->step == 0 && behind / r->step < r->count
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                       "this is rank %lld, which is none of the %lld ranks, %lld apart, from rank %lld on",
                       (long long)comm->rank, (long long)r->count, (long long)r->step, (long long)r->first);
}

static int32_t part_of(nncuda_ctx *ctx, nncuda_comm *comm, const row *r, nncuda_comm **part) {
  int32_t status = check_part(ctx, comm, part);
  if (status == NNCUDA_SUCCESS) {
    status = check_row(ctx, comm, r);
  }
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  int64_t *members = malloc((size_t)r->count * sizeof *members);
  if (members == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)r->count);
  }
  for (int64_t i = 0; i < r->count; i++) {
    members[i] = r->first + i * r->step;
  }
  status = meet(ctx, comm, r, members);
  if (status == NNCUDA_SUCCESS) {
    status = make_part(ctx, comm, members, r->count, part);
  }
  free(members);
  return status;
}

int32_t nncuda_comm_split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key, nncuda_comm **part) {
  NN_INSIDE(ctx, split(ctx, comm, color, key, part));
}

int32_t nncuda_comm_part(nncuda_ctx *ctx, nncuda_comm *comm, int64_t first, int64_t step, int64_t count,
                         nncuda_comm **part) {
  NN_INSIDE(ctx, part_of(ctx, comm, &(row){first, step, count}, part));
}

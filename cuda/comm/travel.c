/*
 * The exchange of rows beside what the context does meanwhile: step by step, so that rows of a rank can be used while
 * those of others travel. All ranks begin the same steps in the same order, which is all that a transport needs.
 */
#include "background.h"
#include "collective.h"
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WAYS = 4 };

/* Rows on their way to `y`: their steps begin behind `first` others. */
typedef struct way {
  const void *y;
  int64_t first;
} way;

struct nn_travel {
  nn_traffic t; /* of the last dispatch */
  int64_t rows, slot_rows, own;
  int64_t begun, ended; /* steps, one after the other */
  way ways[MOST_WAYS];
  int64_t count;
  int64_t returned;    /* steps of the way back that have begun */
  unsigned char *done; /* [ranks]: of that step the rows may go back */
};

void nn_travel_close(nncuda_comm *comm) {
  if (comm->travel != NULL) {
    nn_traffic_close(&comm->travel->t);
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
static int32_t open_travel(nncuda_ctx *ctx, const nn_experts_args *a, nn_travel **found) {
  nn_travel *const b = travel_of(a->comm);
  if (b == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for the rows of %lld ranks", (long long)a->comm->ranks);
  }
  if (b->returned > 0 || (a->known ? b->count == MOST_WAYS : a->comm->under_way > 0)) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "rows of this communicator are under way; end them first");
  }
  b->count = a->known ? b->count : 0;
  nn_traffic_close(&b->t);
  *found = b;
  return nn_traffic_open(ctx, a, &b->t);
}

static int32_t begin_step(nncuda_ctx *ctx, const nn_experts_args *a, nn_travel *b, int64_t step, int32_t back) {
  b->t.count = 0;
  nn_traffic_post_step(a, &b->t, step, back);
  const int32_t status = nn_comm_exchange_begin(ctx, a->comm, b->t.messages, b->t.count);
  b->begun += status == NNCUDA_SUCCESS;
  return status;
}

static int32_t end_steps(nncuda_ctx *ctx, const nn_experts_args *a, nn_travel *b, int64_t until) {
  int32_t status = NNCUDA_SUCCESS;
  while (status == NNCUDA_SUCCESS && b->ended < until) {
    status = nn_comm_exchange_end(ctx, a->comm);
    b->ended++;
  }
  return status;
}

int32_t nn_comm_dispatch_begin(nncuda_ctx *ctx, const void *args) {
  const nn_experts_args *a = args;
  int32_t status = nn_comm_check(ctx, a->comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : nn_traffic_count(a, a->known ? 0 : a->own + 1);
  }
  nn_travel *b = NULL;
  status = open_travel(ctx, a, &b);
  status = status == NNCUDA_SUCCESS ? nn_traffic_read_offsets(ctx, a, &b->t) : status;
  if (status == NNCUDA_SUCCESS) {
    status = a->known ? nn_traffic_read_slots(ctx, a, &b->t) : nn_traffic_learn_slots(ctx, a, &b->t);
  }
  status = status == NNCUDA_SUCCESS ? nn_traffic_check_kept(ctx, a, &b->t) : status;
  if (status == NNCUDA_SUCCESS) {
    b->rows = a->rows;
    b->slot_rows = a->slot_rows;
    b->own = a->own;
    b->ways[b->count++] = (way){a->y, b->begun};
    status = nn_traffic_copy_kept(ctx, a, &b->t, 0);
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
  const nn_experts_args *a = args;
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
static int32_t check_return(nncuda_ctx *ctx, const nn_experts_args *a) {
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
static int32_t begin_returns(nncuda_ctx *ctx, const nn_experts_args *travelled) {
  nn_experts_args a = *travelled;
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
  const nn_experts_args *a = args;
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
  nn_experts_args a = *(const nn_experts_args *)args;
  int32_t status = nn_comm_check(ctx, a.comm);
  if (status != NNCUDA_SUCCESS || ctx->engine->measures) {
    return status != NNCUDA_SUCCESS ? status : nn_traffic_count(&a, 0);
  }
  status = check_return(ctx, &a);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_travel *const b = a.comm->travel;
  a.own = b->own;
  memset(b->done, 1, (size_t)a.comm->ranks);
  status = begin_returns(ctx, &a);
  status = status == NNCUDA_SUCCESS ? nn_traffic_copy_kept(ctx, &a, &b->t, 1) : status;
  status = status == NNCUDA_SUCCESS ? end_steps(ctx, &a, b, b->begun) : status;
  memset(b->done, 0, (size_t)a.comm->ranks);
  b->returned = b->count = 0;
  return status;
}

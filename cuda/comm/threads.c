/*
 * Ranks that are contexts of one process, each in a thread of its own: they meet in a room. A message is handed over
 * where it lies: the receiver copies it, and the sender waits until it has, or until nobody can any more. So nothing
 * points into the memory of a rank that has left an exchange, for whatever reason.
 */
#include "comm.h"
#include "runtime/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct parcel {
  struct parcel *next;
  const void *data;
  size_t bytes;
} parcel;

typedef struct queue {
  parcel *first, *last;
} queue;

typedef struct seat {
  int32_t taken, left;
  int64_t in_hand; /* messages of this rank that receivers are copying */
} seat;

typedef struct room {
  struct room *next;     /* of those whose ranks are not all there */
  int64_t serial, whole; /* its own number; that of the room that it is a part of, or 0 */
  int64_t ranks;
  int64_t joined, present;
  pthread_cond_t changed;
  seat *seats;
  queue *queues; /* [from, to] */
  int32_t broken;
  char reason[NN_COMM_REASON_CAPACITY];
  char name[];
} room;

/* Of all rooms and what is in them; not held while bytes are copied. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static room *rooms;
static int64_t rooms_made;

static void room_free(room *r) {
  pthread_cond_destroy(&r->changed);
  free(r->seats);
  free(r->queues);
  free(r);
}

static room *room_make(const char *name, int64_t ranks, int64_t whole) {
  const size_t bytes = strlen(name) + 1;
  room *made = calloc(1, sizeof *made + bytes);
  if (made == NULL) {
    return NULL;
  }
  memcpy(made->name, name, bytes);
  made->ranks = ranks;
  made->serial = ++rooms_made;
  made->whole = whole;
  made->seats = calloc((size_t)ranks, sizeof *made->seats);
  made->queues = calloc((size_t)ranks, (size_t)ranks * sizeof *made->queues);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&made->changed, &clock);
  pthread_condattr_destroy(&clock);
  if (made->seats == NULL || made->queues == NULL) {
    room_free(made);
    return NULL;
  }
  made->next = rooms;
  rooms = made;
  return made;
}

/* From here on its name is free for others. */
static void close_door(const room *r) {
  room **at = &rooms;
  while (*at != NULL && *at != r) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = r->next;
  }
}

static void break_up(room *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A part of this room for whose ranks others still wait, or null. */
static room *waiting_part(const room *r) {
  room *part = rooms;
  while (part != NULL && part->whole != r->serial) {
    part = part->next;
  }
  return part;
}

/* What fails for one fails for all, for the first reason, also for those who wait in a part: one may never come there.
 */
static void break_up(room *r, const char *format, ...) {
  if (r->broken) {
    return;
  }
  va_list list;
  va_start(list, format);
  vsnprintf(r->reason, sizeof r->reason, format, list);
  va_end(list);
  r->broken = 1;
  close_door(r);
  pthread_cond_broadcast(&r->changed);
  for (room *part = waiting_part(r); part != NULL; part = waiting_part(r)) {
    break_up(part, "%s", r->reason);
  }
}

static void leave(room *r) {
  if (--r->present == 0) {
    close_door(r);
    room_free(r);
  } else {
    pthread_cond_broadcast(&r->changed);
  }
}

/* How long a rank still waits for another. */
typedef struct patience {
  struct timespec end;
  int32_t endless, over;
} patience;

static patience patience_of(const nncuda_comm *comm) {
  patience p = {.endless = comm->timeout_ms == 0};
  clock_gettime(CLOCK_MONOTONIC, &p.end);
  p.end.tv_sec += comm->timeout_ms / 1000;
  p.end.tv_nsec += comm->timeout_ms % 1000 * 1000000;
  if (p.end.tv_nsec >= 1000000000) {
    p.end.tv_sec++;
    p.end.tv_nsec -= 1000000000;
  }
  return p;
}

/* Until something in the room may have changed: who waits looks once more before it gives up. */
static void wait_for_change(room *r, patience *p) {
  const int error =
      p->endless ? pthread_cond_wait(&r->changed, &lock) : pthread_cond_timedwait(&r->changed, &lock, &p->end);
  p->over = error == ETIMEDOUT;
}

/* ---- joining ---- */

static void await_all(const nncuda_comm *comm, room *r) {
  patience p = patience_of(comm);
  while (!r->broken && r->joined < r->ranks) {
    if (!p.over) {
      wait_for_change(r, &p);
      continue;
    }
    int64_t missing = 0;
    while (r->seats[missing].taken) {
      missing++;
    }
    break_up(r, "rank %lld did not join within %g s", (long long)missing, nn_comm_seconds(comm));
  }
}

/* `whole`: the room that the named one is a part of, or null. */
static int32_t join(nncuda_ctx *ctx, nncuda_comm *comm, const room *whole, const char *name) {
  pthread_mutex_lock(&lock);
  if (whole != NULL && whole->broken) {
    pthread_mutex_unlock(&lock);
    return nn_comm_fail(ctx, comm, "%s", whole->reason);
  }
  room *r = rooms;
  while (r != NULL && strcmp(r->name, name) != 0) {
    r = r->next;
  }
  r = r != NULL ? r : room_make(name, comm->ranks, whole == NULL ? 0 : whole->serial);
  if (r == NULL) {
    pthread_mutex_unlock(&lock);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)comm->ranks);
  }
  r->present++;
  if (r->ranks != comm->ranks) {
    break_up(r, "rank %lld is one of %lld ranks, those before it are of %lld", (long long)comm->rank,
             (long long)comm->ranks, (long long)r->ranks);
  } else if (r->seats[comm->rank].taken) {
    break_up(r, "rank %lld joined twice", (long long)comm->rank);
  } else {
    r->seats[comm->rank].taken = 1;
    if (++r->joined == r->ranks) {
      close_door(r);
      pthread_cond_broadcast(&r->changed);
    }
    await_all(comm, r);
  }
  int32_t status = NNCUDA_SUCCESS;
  comm->state = r;
  if (r->broken) {
    status = nn_comm_fail(ctx, comm, "%s", r->reason);
    leave(r);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static int32_t threads_open(nncuda_ctx *ctx, nncuda_comm *comm, const char *address) {
  char name[320];
  if (comm->rank < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "rank is -1; with NNCUDA_TRANSPORT_THREADS (1) no launcher says which it is");
  }
  if (address[0] == '\0') {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "address is empty; with NNCUDA_TRANSPORT_THREADS (1) it must be a name under which the ranks meet");
  }
  snprintf(name, sizeof name, "name %s", address);
  return join(ctx, comm, NULL, name);
}

/* Named after its members: they can only meet again when all of them have been there, and the name is free. */
static int32_t threads_split(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm *part, const int64_t *members) {
  enum { NUMBER = 24 };
  const room *const whole = comm->state;
  const size_t capacity = (size_t)(part->ranks + 2) * NUMBER;
  char *const name = malloc(capacity);
  if (name == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)part->ranks);
  }
  int at = snprintf(name, capacity, "room %lld, ranks", (long long)whole->serial);
  for (int64_t i = 0; i < part->ranks; i++) {
    at += snprintf(name + at, capacity - (size_t)at, " %lld", (long long)members[i]);
  }
  const int32_t status = join(ctx, part, whole, name);
  free(name);
  return status;
}

/* ---- messages ---- */

static queue *queue_of(room *r, int64_t from, int64_t to) { return &r->queues[from * r->ranks + to]; }

static void hand_over(room *r, int64_t from, const nn_message *message, parcel *p) {
  *p = (parcel){.data = message->data, .bytes = message->bytes};
  queue *q = queue_of(r, from, message->peer);
  if (q->first == NULL) {
    q->first = p;
  } else {
    q->last->next = p;
  }
  q->last = p;
}

/* Waits for the peer, unless it has left or was waited for long enough. */
static void await(const nncuda_comm *comm, room *r, int64_t peer, patience *p) {
  if (r->seats[peer].left) {
    break_up(r, "rank %lld has left", nn_comm_name(comm, peer));
  } else if (p->over) {
    break_up(r, "rank %lld did not answer within %g s", nn_comm_name(comm, peer), nn_comm_seconds(comm));
  } else {
    wait_for_change(r, p);
  }
}

static void receive(nncuda_comm *comm, room *r, const nn_message *message) {
  const int64_t peer = message->peer;
  queue *q = queue_of(r, peer, comm->rank);
  patience p = patience_of(comm);
  while (!r->broken && q->first == NULL) {
    await(comm, r, peer, &p);
  }
  if (!r->broken && q->first->bytes != message->bytes) {
    break_up(r, "rank %lld sent %zu bytes to rank %lld, which expects %zu", nn_comm_name(comm, peer), q->first->bytes,
             nn_comm_name(comm, comm->rank), message->bytes);
  }
  if (r->broken) {
    return;
  }
  const void *data = q->first->data;
  q->first = q->first->next;
  seat *sender = &r->seats[peer];
  sender->in_hand++;
  pthread_mutex_unlock(&lock);
  memcpy(message->data, data, message->bytes);
  pthread_mutex_lock(&lock);
  sender->in_hand--;
  pthread_cond_broadcast(&r->changed);
}

/* Waits until all that this rank sends is received, peer by peer. */
static void await_receivers(nncuda_comm *comm, room *r) {
  seat *own = &r->seats[comm->rank];
  for (int64_t peer = 0; peer < r->ranks; peer++) {
    patience p = patience_of(comm);
    while (!r->broken && queue_of(r, comm->rank, peer)->first != NULL) {
      await(comm, r, peer, &p);
    }
    queue_of(r, comm->rank, peer)->first = NULL; /* takes it back, if the room broke up */
  }
  while (own->in_hand > 0) {
    pthread_cond_wait(&r->changed, &lock);
  }
}

static int32_t threads_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  room *const r = comm->state;
  parcel *parcels = malloc((size_t)count * sizeof *parcels);
  if (parcels == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)count);
  }
  pthread_mutex_lock(&lock);
  for (int64_t i = 0; i < count; i++) {
    if (messages[i].send) {
      hand_over(r, comm->rank, &messages[i], &parcels[i]);
    }
  }
  pthread_cond_broadcast(&r->changed);
  for (int64_t i = 0; i < count; i++) {
    if (!messages[i].send) {
      receive(comm, r, &messages[i]);
    }
  }
  await_receivers(comm, r);
  const int32_t status = r->broken ? nn_comm_fail(ctx, comm, "%s", r->reason) : NNCUDA_SUCCESS;
  pthread_mutex_unlock(&lock);
  free(parcels);
  return status;
}

/* ---- leaving ---- */

static void threads_abort(nncuda_comm *comm) {
  pthread_mutex_lock(&lock);
  break_up(comm->state, "%s", comm->reason);
  pthread_mutex_unlock(&lock);
}

static void threads_close(nncuda_comm *comm) {
  room *const r = comm->state;
  pthread_mutex_lock(&lock);
  r->seats[comm->rank].left = 1;
  leave(r);
  pthread_mutex_unlock(&lock);
}

const nn_transport nn_transport_threads = {.name = "THREADS",
                                           .on_cpu = 1,
                                           .open = threads_open,
                                           .exchange = threads_exchange,
                                           .split = threads_split,
                                           .abort = threads_abort,
                                           .close = threads_close};

#include "background.h"

#include "runtime/context.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct exchange {
  struct exchange *next;
  int64_t count;
  int32_t done, status;
  char error[NN_ERROR_CAPACITY];
  nn_message messages[];
} exchange;

struct nn_background {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  pid_t process; /* that began the thread; a forked child has none */
  nncuda_comm *comm;
  nncuda_ctx *speaker;    /* whose last error is the thread's */
  exchange *first, *last; /* those that have not ended, in their order */
  int32_t stop;
};

/* Of those under way, the one that is to be done next. */
static exchange *next_of(const nn_background *b) {
  exchange *e = b->first;
  while (e != NULL && e->done) {
    e = e->next;
  }
  return e;
}

static int32_t carry_out(nn_background *b, const exchange *e) {
  nncuda_comm *const comm = b->comm;
  b->speaker->error[0] = '\0';
  if (comm->failed) {
    return nn_comm_fail(b->speaker, comm, "%s", comm->reason);
  }
  return e->count == 0 ? NNCUDA_SUCCESS : comm->transport->exchange(b->speaker, comm, e->messages, e->count);
}

static void *work(void *argument) {
  nn_background *const b = argument;
  pthread_mutex_lock(&b->lock);
  while (!b->stop) {
    exchange *const e = next_of(b);
    if (e == NULL) {
      pthread_cond_wait(&b->changed, &b->lock);
      continue;
    }
    pthread_mutex_unlock(&b->lock);
    const int32_t status = carry_out(b, e);
    pthread_mutex_lock(&b->lock);
    e->status = status;
    memcpy(e->error, b->speaker->error, sizeof e->error);
    e->done = 1;
    pthread_cond_broadcast(&b->changed);
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

static void release(nn_background *b) {
  for (exchange *e = b->first; e != NULL;) {
    exchange *const next = e->next;
    free(e);
    e = next;
  }
  free(b->speaker);
  free(b);
}

/* Signals are the program's around us. */
static int start(nn_background *b) {
  sigset_t all, old;
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->changed, NULL);
  b->process = getpid();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error = pthread_create(&b->thread, NULL, work, b);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error;
}

static int32_t background_of(nncuda_ctx *ctx, nncuda_comm *comm, nn_background **found) {
  if (comm->background == NULL) {
    nn_background *const made = calloc(1, sizeof *made);
    nncuda_ctx *const speaker = calloc(1, sizeof *speaker);
    if (made == NULL || speaker == NULL) {
      free(made);
      free(speaker);
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for what is sent meanwhile");
    }
    speaker->engine = ctx->engine;
    speaker->function = ctx->function;
    made->comm = comm;
    made->speaker = speaker;
    if (start(made) != 0) {
      release(made);
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "the system refuses another thread, which sends meanwhile");
    }
    comm->background = made;
  }
  *found = comm->background;
  return NNCUDA_SUCCESS;
}

static int64_t sent_bytes(const nn_message *messages, int64_t count) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; i++) {
    bytes += messages[i].send ? (int64_t)messages[i].bytes : 0;
  }
  return bytes;
}

static int32_t queue(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  nn_background *b = NULL;
  const int32_t status = background_of(ctx, comm, &b);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  exchange *const e = calloc(1, sizeof *e + (size_t)count * sizeof *messages);
  if (e == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)count);
  }
  e->count = count;
  if (count > 0) {
    memcpy(e->messages, messages, (size_t)count * sizeof *messages);
  }
  pthread_mutex_lock(&b->lock);
  *(b->first == NULL ? &b->first : &b->last->next) = e;
  b->last = e;
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  return NNCUDA_SUCCESS;
}

int32_t nn_comm_exchange_begin(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  int32_t status = nn_comm_usable(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = ctx->engine->measures            ? NNCUDA_SUCCESS
           : comm->transport->begin != NULL ? comm->transport->begin(ctx, comm, messages, count)
                                            : queue(ctx, comm, messages, count);
  comm->sent += status == NNCUDA_SUCCESS ? sent_bytes(messages, count) : 0;
  comm->under_way += status == NNCUDA_SUCCESS && !ctx->engine->measures;
  return status;
}

/* Takes the first exchange out of the queue when it is done; null where there is none. */
static exchange *take_first(nn_background *b) {
  pthread_mutex_lock(&b->lock);
  exchange *const e = b->first;
  while (e != NULL && !e->done) {
    pthread_cond_wait(&b->changed, &b->lock);
  }
  if (e != NULL) {
    b->first = e->next;
    b->last = b->first == NULL ? NULL : b->last;
  }
  pthread_mutex_unlock(&b->lock);
  return e;
}

static int32_t wait_for_first(nncuda_ctx *ctx, nn_background *b) {
  exchange *const e = b == NULL ? NULL : take_first(b);
  if (e == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "no exchange of this communicator is under way; begin one first");
  }
  const int32_t status = e->status;
  if (status != NNCUDA_SUCCESS && ctx->error[0] == '\0') {
    memcpy(ctx->error, e->error, sizeof ctx->error);
  }
  free(e);
  return status;
}

int32_t nn_comm_exchange_end(nncuda_ctx *ctx, nncuda_comm *comm) {
  if (ctx->engine->measures) {
    return NNCUDA_SUCCESS;
  }
  if (comm->transport == NULL) {
    return nn_comm_check(ctx, comm);
  }
  comm->under_way -= comm->under_way > 0;
  const int32_t status =
      comm->transport->end != NULL ? comm->transport->end(ctx, comm) : wait_for_first(ctx, comm->background);
  if (comm->failed) {
    nn_comm_lose_family(comm);
  }
  return status;
}

void nn_background_close(nncuda_comm *comm) {
  nn_background *const b = comm->background;
  comm->background = NULL;
  if (b == NULL || b->process != getpid()) {
    return; /* of a forked child: what the parent's thread uses stays */
  }
  pthread_mutex_lock(&b->lock);
  const int32_t under_way = b->first != NULL;
  b->stop = 1;
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  if (under_way) {
    static const char reason[] = "it left while an exchange was under way";
    nn_comm_abort(comm, reason, sizeof reason - 1);
  }
  pthread_join(b->thread, NULL);
  pthread_cond_destroy(&b->changed);
  pthread_mutex_destroy(&b->lock);
  release(b);
}

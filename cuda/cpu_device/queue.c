#include "queue.h"

#include "runtime/context.h"
#include "runtime/profile.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * On the CPU the context's own stream is the calling thread: what is given to it has been done when the call returns. A
 * further stream is a thread that works off a queue. One lock guards all queues and events of a context; copies run
 * outside of it. A wait names a record that was queued before it, so streams cannot wait for each other in a circle.
 */
typedef struct nn_streams {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* something was queued, done or stopped */
  nncuda_stream *first_stream;
  nncuda_event *first_event;
  pid_t process;
} nn_streams;

struct nncuda_event {
  nn_streams *streams;
  nncuda_event *previous, *next;
  uint64_t recorded;   /* number of the latest record */
  uint64_t happened;   /* number of the latest record that was reached */
  int64_t nanoseconds; /* when that was */
  int32_t references;  /* the handle, and each queued command */
};

typedef enum command_kind { COPY, RECORD, WAIT } command_kind;

typedef struct command {
  struct command *next;
  command_kind kind;
  void *destination;
  const void *source;
  size_t bytes;
  nncuda_event *event;
  uint64_t number; /* of the event's record */
} command;

struct nncuda_stream {
  nn_streams *streams;
  nncuda_stream *previous, *next;
  pthread_t thread;
  command *first, *last; /* the first stays in the queue while it is carried out */
  int32_t stop;
};

static void happen(nncuda_event *event, uint64_t number) {
  if (number > event->happened) {
    event->happened = number;
    event->nanoseconds = nn_clock();
  }
}

static void event_release(nncuda_event *event) {
  if (--event->references == 0) {
    if (event->previous != NULL) {
      event->previous->next = event->next;
    } else {
      event->streams->first_event = event->next;
    }
    if (event->next != NULL) {
      event->next->previous = event->previous;
    }
    free(event);
  }
}

/* Carries out a command; called and left with the lock held. */
static void carry_out(nn_streams *streams, const command *c) {
  switch (c->kind) {
  case COPY:
    pthread_mutex_unlock(&streams->lock);
    memcpy(c->destination, c->source, c->bytes);
    pthread_mutex_lock(&streams->lock);
    break;
  case RECORD:
    happen(c->event, c->number);
    break;
  case WAIT:
    while (c->event->happened < c->number) {
      pthread_cond_wait(&streams->changed, &streams->lock);
    }
    break;
  }
}

static void *stream_main(void *arg) {
  nncuda_stream *stream = arg;
  nn_streams *streams = stream->streams;
  pthread_mutex_lock(&streams->lock);
  for (;;) {
    command *c = stream->first;
    if (c == NULL) {
      if (stream->stop) {
        break;
      }
      pthread_cond_wait(&streams->changed, &streams->lock);
      continue;
    }
    carry_out(streams, c);
    stream->first = c->next;
    if (stream->first == NULL) {
      stream->last = NULL;
    }
    if (c->event != NULL) {
      event_release(c->event);
    }
    free(c);
    pthread_cond_broadcast(&streams->changed);
  }
  pthread_mutex_unlock(&streams->lock);
  return NULL;
}

static void wait_for(nn_streams *streams, const nncuda_stream *stream) {
  while (stream->first != NULL) {
    pthread_cond_wait(&streams->changed, &streams->lock);
  }
}

/* A forked child has no stream threads: nothing to wait for, nothing to join. */
static int32_t has_threads(const nn_streams *streams) { return streams != NULL && streams->process == getpid(); }

int32_t nn_queues_wait(nncuda_ctx *ctx) {
  nn_streams *streams = ctx->device;
  if (has_threads(streams)) {
    pthread_mutex_lock(&streams->lock);
    for (const nncuda_stream *stream = streams->first_stream; stream != NULL; stream = stream->next) {
      wait_for(streams, stream);
    }
    pthread_mutex_unlock(&streams->lock);
  }
  return NNCUDA_SUCCESS;
}

/* Ends the thread after what is queued, and frees the stream. */
static void stream_stop(nncuda_stream *stream) {
  nn_streams *streams = stream->streams;
  if (has_threads(streams)) {
    pthread_mutex_lock(&streams->lock);
    stream->stop = 1;
    pthread_cond_broadcast(&streams->changed);
    pthread_mutex_unlock(&streams->lock);
    pthread_join(stream->thread, NULL);
  }
  if (stream->previous != NULL) {
    stream->previous->next = stream->next;
  } else {
    streams->first_stream = stream->next;
  }
  if (stream->next != NULL) {
    stream->next->previous = stream->previous;
  }
  free(stream);
}

void nn_queues_close(nncuda_ctx *ctx) {
  nn_streams *streams = ctx->device;
  if (streams == NULL) {
    return;
  }
  while (streams->first_stream != NULL) {
    stream_stop(streams->first_stream);
  }
  while (streams->first_event != NULL) {
    nncuda_event *event = streams->first_event;
    streams->first_event = event->next;
    free(event);
  }
  /* In a forked child the condition still counts the parent's threads, and its end would wait for them. */
  if (has_threads(streams)) {
    pthread_cond_destroy(&streams->changed);
    pthread_mutex_destroy(&streams->lock);
  }
  free(streams);
}

static nn_streams *streams_of(nncuda_ctx *ctx) {
  if (ctx->device == NULL) {
    nn_streams *streams = calloc(1, sizeof *streams);
    if (streams != NULL) {
      pthread_mutex_init(&streams->lock, NULL);
      pthread_cond_init(&streams->changed, NULL);
      streams->process = getpid();
      ctx->device = streams;
    }
  }
  return ctx->device;
}

static int32_t queue(nncuda_ctx *ctx, nncuda_stream *stream, const command *c) {
  nn_streams *streams = ctx->device;
  command *added = malloc(sizeof *added);
  if (added == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory to queue the work");
  }
  *added = *c;
  added->next = NULL;
  pthread_mutex_lock(&streams->lock);
  if (c->event != NULL) {
    c->event->references++;
  }
  if (stream->last == NULL) {
    stream->first = added;
  } else {
    stream->last->next = added;
  }
  stream->last = added;
  pthread_cond_broadcast(&streams->changed);
  pthread_mutex_unlock(&streams->lock);
  return NNCUDA_SUCCESS;
}

static int32_t stream_create(nncuda_ctx *ctx, nncuda_stream **stream) {
  nn_streams *streams = streams_of(ctx);
  nncuda_stream *made = streams == NULL ? NULL : calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a stream");
  }
  made->streams = streams;
  /* Signals are the host program's: none shall be delivered to our threads. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int refused = pthread_create(&made->thread, NULL, stream_main, made);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (refused) {
    free(made);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "the system refuses another thread, which a stream needs");
  }
  made->next = streams->first_stream;
  if (made->next != NULL) {
    made->next->previous = made;
  }
  streams->first_stream = made;
  *stream = made;
  return NNCUDA_SUCCESS;
}

static void stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) {
  (void)ctx;
  stream_stop(stream);
}

static int32_t stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  nn_streams *streams = ctx->device;
  if (stream != NULL && has_threads(streams)) {
    pthread_mutex_lock(&streams->lock);
    wait_for(streams, stream);
    pthread_mutex_unlock(&streams->lock);
  }
  return NNCUDA_SUCCESS;
}

static void wait_event(nn_streams *streams, const nncuda_event *event) {
  if (has_threads(streams)) {
    pthread_mutex_lock(&streams->lock);
    for (const uint64_t number = event->recorded; event->happened < number;) {
      pthread_cond_wait(&streams->changed, &streams->lock);
    }
    pthread_mutex_unlock(&streams->lock);
  }
}

static int32_t stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  if (stream == NULL) {
    wait_event(ctx->device, event);
    return NNCUDA_SUCCESS;
  }
  return queue(ctx, stream, &(command){.kind = WAIT, .event = event, .number = event->recorded});
}

static int32_t stream_copy(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, size_t bytes,
                           int32_t kind) {
  (void)kind;
  return queue(ctx, stream, &(command){.kind = COPY, .destination = destination, .source = source, .bytes = bytes});
}

static int32_t event_create(nncuda_ctx *ctx, nncuda_event **event) {
  nn_streams *streams = streams_of(ctx);
  nncuda_event *made = streams == NULL ? NULL : calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for an event");
  }
  made->streams = streams;
  made->references = 1;
  pthread_mutex_lock(&streams->lock);
  made->next = streams->first_event;
  if (made->next != NULL) {
    made->next->previous = made;
  }
  streams->first_event = made;
  pthread_mutex_unlock(&streams->lock);
  *event = made;
  return NNCUDA_SUCCESS;
}

static void event_destroy(nncuda_ctx *ctx, nncuda_event *event) {
  nn_streams *streams = ctx->device;
  pthread_mutex_lock(&streams->lock);
  event_release(event);
  pthread_mutex_unlock(&streams->lock);
}

static int32_t event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  nn_streams *streams = ctx->device;
  int32_t status = NNCUDA_SUCCESS;
  const uint64_t number = event->recorded + 1;
  if (stream != NULL) {
    status = queue(ctx, stream, &(command){.kind = RECORD, .event = event, .number = number});
  } else {
    pthread_mutex_lock(&streams->lock);
    happen(event, number);
    pthread_cond_broadcast(&streams->changed);
    pthread_mutex_unlock(&streams->lock);
  }
  if (status == NNCUDA_SUCCESS) {
    event->recorded = number; /* only the thread inside the context reads it */
  }
  return status;
}

static int32_t event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  wait_event(ctx->device, event);
  return NNCUDA_SUCCESS;
}

/* Whether it has happened, and when. */
static int32_t has_happened(nn_streams *streams, const nncuda_event *event, int64_t *nanoseconds) {
  pthread_mutex_lock(&streams->lock);
  const int32_t happened = event->happened >= event->recorded;
  *nanoseconds = event->nanoseconds;
  pthread_mutex_unlock(&streams->lock);
  return happened;
}

static int32_t event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  int64_t nanoseconds;
  *happened = has_happened(ctx->device, event, &nanoseconds);
  return NNCUDA_SUCCESS;
}

static int32_t event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  int64_t from, to;
  const int32_t started = has_happened(ctx->device, start, &from) && start->recorded != 0;
  const int32_t ended = has_happened(ctx->device, end, &to) && end->recorded != 0;
  if (!started || !ended) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "%s has not happened; record it and wait for it first",
                   started ? "end" : "start");
  }
  *milliseconds = (float)((double)(to - from) * 1e-6);
  return NNCUDA_SUCCESS;
}

const nn_stream_functions nn_queues = {stream_create,     stream_destroy, stream_synchronize, stream_wait_event,
                                       stream_copy,       event_create,   event_destroy,      event_record,
                                       event_synchronize, event_query,    event_elapsed};

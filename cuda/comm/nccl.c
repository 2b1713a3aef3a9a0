/*
 * Ranks with a GPU each: messages are sends and receives of NCCL, queued on the context's stream. The library is opened
 * when it is first needed. Its communicators do not block, so that whoever waits for a peer can give up: a wait of the
 * host looks at the device, at NCCL and at the links by turns.
 */
#define _GNU_SOURCE
#include "comm.h"
#include "rendezvous.h"
#include "runtime/memory.h"
#include "runtime/run.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what nccl.h of NCCL 2.18 says, as far as it is used; later versions only append to the configuration ---- */

enum { LEAST_VERSION = 21800, INT8 = 0 };
enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };

typedef struct ncclComm ncclComm;
typedef struct unique_id {
  char internal[NN_RENDEZVOUS_ID_BYTES];
} unique_id;

typedef struct config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} config;

static const config not_blocking = {sizeof(config), 0xcafebeef, LEAST_VERSION, 0,      INT_MIN,
                                    INT_MIN,        INT_MIN,    NULL,          INT_MIN};

#define FUNCTIONS(X)                                                                                                   \
  X(int, GetVersion, (int *version))                                                                                   \
  X(const char *, GetErrorString, (int result))                                                                        \
  X(const char *, GetLastError, (ncclComm * comm))                                                                     \
  X(int, GetUniqueId, (unique_id * id))                                                                                \
  X(int, CommInitRankConfig, (ncclComm * *comm, int ranks, unique_id id, int rank, const config *config))              \
  X(int, CommGetAsyncError, (ncclComm * comm, int *state))                                                             \
  X(int, CommFinalize, (ncclComm * comm))                                                                              \
  X(int, CommDestroy, (ncclComm * comm))                                                                               \
  X(int, CommAbort, (ncclComm * comm))                                                                                 \
  X(int, GroupStart, (void))                                                                                           \
  X(int, GroupEnd, (void))                                                                                             \
  X(int, Send, (const void *data, size_t count, int dtype, int peer, ncclComm *comm, void *stream))                    \
  X(int, Recv, (void *data, size_t count, int dtype, int peer, ncclComm *comm, void *stream))

static struct {
#define MEMBER(type, name, arguments) type(*name) arguments;
  FUNCTIONS(MEMBER)
#undef MEMBER
} nccl;

/* ---- the library ---- */

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static char why_not[512]; /* empty when it is there */

/* Beside this library, where the wheel nvidia-nccl puts it: ../nvidia/nccl/lib of site-packages/nncuda. */
static void *open_beside(void) {
  Dl_info own;
  char path[4096];
  if (dladdr(&opened, &own) == 0 || own.dli_fname == NULL) {
    return NULL;
  }
  const char *const slash = strrchr(own.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash - own.dli_fname + 1);
  snprintf(path, sizeof path, "%.*s../nvidia/nccl/lib/libnccl.so.2", folder, own.dli_fname);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void open_library(void) {
  const char *const named = getenv("NNCUDA_NCCL");
  const int chosen = named != NULL && *named != '\0';
  void *library = dlopen(chosen ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why_not, sizeof why_not,
             "NCCL is not found (%s): install it, or the wheel nvidia-nccl-cu13, or let "
             "NNCUDA_NCCL be the path of libnccl.so.2",
             dlerror());
    library = chosen ? NULL : open_beside();
    if (library == NULL) {
      return;
    }
    why_not[0] = '\0';
  }
  const char *missing = NULL;
  void *at = NULL;
#define FIND(type, name, arguments)                                                                                    \
  at = dlsym(library, "nccl" #name);                                                                                   \
  memcpy(&nccl.name, &at, sizeof at);                                                                                  \
  missing = at == NULL ? "nccl" #name : missing;
  FUNCTIONS(FIND)
#undef FIND
  int version = 0;
  if (missing != NULL) {
    snprintf(why_not, sizeof why_not, "this NCCL has no function %s; 2.18 is the first that will do", missing);
  } else if (nccl.GetVersion(&version) != SUCCESS || version < LEAST_VERSION) {
    snprintf(why_not, sizeof why_not, "this NCCL has the version %d; 2.18 (%d) is the first that will do", version,
             LEAST_VERSION);
  }
}

/* ---- failures ---- */

static int32_t going(int result) { return result == SUCCESS || result == IN_PROGRESS; }

/* An abort, in a thread of its own: kernels end at once, but NCCL returns only when no graph names the communicator. */
typedef struct ending {
  ncclComm *nccl;
  atomic_int holders; /* the thread and the rank; the last one frees it */
} ending;

/* An exchange that was begun: the event that happens when the stream beside has done it. */
typedef struct under_way {
  struct under_way *next;
  nncuda_event *done;
} under_way;

typedef struct state {
  nncuda_ctx *ctx;
  ncclComm *nccl;        /* null: of one rank, or aborted */
  nn_links *links;       /* null: of one rank */
  ending *ending;        /* or null */
  nncuda_stream *beside; /* null until an exchange is begun */
  under_way *first, *last;
} state;

static void drop(ending *e) {
  if (atomic_fetch_sub(&e->holders, 1) == 1) {
    free(e);
  }
}

static void *run_abort(void *argument) {
  ending *const e = argument;
  nccl.CommAbort(e->nccl);
  drop(e);
  return NULL;
}

static void start_abort(state *s) {
  pthread_t thread;
  s->ending = malloc(sizeof *s->ending);
  if (s->ending != NULL) {
    s->ending->nccl = s->nccl;
    atomic_init(&s->ending->holders, 2);
    if (pthread_create(&thread, NULL, run_abort, s->ending) == 0) {
      pthread_detach(thread);
    } else { /* a communicator is left as it is */
      free(s->ending);
      s->ending = NULL;
    }
  }
  s->nccl = NULL;
}

static void nccl_abort(nncuda_comm *comm) {
  state *const s = comm->state;
  if (s->links != NULL) {
    nn_links_tell(s->links, comm->reason);
  }
  if (s->nccl != NULL) {
    start_abort(s);
  }
}

/* Marks it as lost for a reason of this rank, or one that came over the links (`ours` false). */
static int32_t lose(nncuda_ctx *ctx, nncuda_comm *comm, int32_t ours, const char *reason) {
  state *const s = comm->state;
  char told[NN_COMM_REASON_CAPACITY];
  snprintf(told, sizeof told, "rank %lld: %.200s", nn_comm_name(comm, comm->rank), reason);
  const int32_t status = nn_comm_fail(ctx, comm, "%s", reason);
  if (ours) {
    nn_links_tell(s->links, told);
  }
  nccl_abort(comm);
  return status;
}

/* For a result of NCCL that is neither success nor in progress. */
static int32_t fail(nncuda_ctx *ctx, nncuda_comm *comm, int result) {
  char text[NN_COMM_REASON_CAPACITY];
  snprintf(text, sizeof text, "NCCL reports %s: %s", nccl.GetErrorString(result), nccl.GetLastError(NULL));
  const int32_t status = lose(ctx, comm, 1, text);
  return result == UNHANDLED_CUDA_ERROR                          ? nn_fail(ctx, NNCUDA_ERROR_DEVICE, "%s", text)
         : result == INVALID_ARGUMENT || result == INVALID_USAGE ? nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "%s", text)
                                                                 : status;
}

/* ---- waiting ---- */

typedef struct patience {
  int64_t begin, rounds;
} patience;

/* Between two looks at what is waited for: what takes long costs little. Whether it is time to look at the peers. */
static int32_t nap(patience *p) {
  enum { SPINS = 64, LOOK_EVERY = 64, NAP_NS = 50000 };
  p->begin = p->rounds == 0 ? nn_milliseconds() : p->begin;
  if (p->rounds++ < SPINS) {
    sched_yield();
    return 0;
  }
  nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  return p->rounds % LOOK_EVERY == 0;
}

static int async_error(const state *s) {
  int result = SUCCESS;
  const int asked = nccl.CommGetAsyncError(s->nccl, &result);
  return asked == SUCCESS ? result : asked;
}

/* Fails if a peer will not answer any more, or did not for too long (`p`, or null). What was lost before was said
 * before. */
static int32_t look(nncuda_ctx *ctx, nncuda_comm *comm, const patience *p) {
  const state *const s = comm->state;
  if (comm->failed || s->nccl == NULL) {
    return NNCUDA_SUCCESS;
  }
  const char *const reason = nn_links_look(s->links);
  if (reason != NULL) {
    return lose(ctx, comm, 0, reason);
  }
  const int result = async_error(s);
  if (!going(result)) {
    return fail(ctx, comm, result);
  }
  if (p != NULL && comm->timeout_ms > 0 && nn_milliseconds() - p->begin > comm->timeout_ms) {
    char text[NN_COMM_REASON_CAPACITY];
    snprintf(text, sizeof text, "a peer did not answer within %g s", nn_comm_seconds(comm));
    return lose(ctx, comm, 1, text);
  }
  return NNCUDA_SUCCESS;
}

/* At the peers of all communicators: the stream waits for any of them. */
static int32_t look_at_all(nncuda_ctx *ctx, const patience *p) {
  int32_t status = NNCUDA_SUCCESS;
  for (size_t i = 0; status == NNCUDA_SUCCESS && i < ctx->handles.capacity; i++) {
    const nn_table_entry *const entry = &ctx->handles.entries[i];
    nncuda_comm *const comm = (nncuda_comm *)(uintptr_t)entry->key;
    if (entry->value == (void *)(intptr_t)NN_HANDLE_COMM && comm->transport == &nn_transport_nccl) {
      status = look(ctx, comm, p);
    }
  }
  return status;
}

/* Until NCCL has done, or queued, what it was given. */
static int32_t settle(nncuda_ctx *ctx, nncuda_comm *comm) {
  patience p = {0};
  int32_t status = NNCUDA_SUCCESS;
  int result = IN_PROGRESS;
  while (status == NNCUDA_SUCCESS && (result = async_error(comm->state)) == IN_PROGRESS) {
    status = nap(&p) ? look(ctx, comm, &p) : NNCUDA_SUCCESS;
  }
  return status != NNCUDA_SUCCESS || result == SUCCESS ? status : fail(ctx, comm, result);
}

/* Until the stream has done what was queued; `joining` is a communicator that the context does not know yet, or null.
 */
static int32_t wait_for_stream(nncuda_ctx *ctx, nncuda_comm *joining) {
  const nn_stream_functions *const streams = ctx->engine->streams;
  nncuda_event *event = NULL;
  int32_t status = streams->event_create(ctx, &event), happened = 0;
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = streams->event_record(ctx, NULL, event);
  patience p = {0};
  while (status == NNCUDA_SUCCESS) {
    status = streams->event_query(ctx, event, &happened);
    if (status != NNCUDA_SUCCESS || happened) {
      break;
    }
    if (nap(&p)) {
      status = joining == NULL ? NNCUDA_SUCCESS : look(ctx, joining, &p);
      status = status == NNCUDA_SUCCESS ? look_at_all(ctx, &p) : status;
    }
  }
  streams->event_destroy(ctx, event);
  return status;
}

static int32_t wait_for_peers(nncuda_ctx *ctx) { return wait_for_stream(ctx, NULL); }

/* ---- messages ---- */

static int32_t queue(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count, void *stream) {
  const state *const s = comm->state;
  const int32_t status = look(ctx, comm, NULL);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  int result = nccl.GroupStart();
  for (int64_t i = 0; going(result) && i < count; i++) {
    const nn_message *const m = &messages[i];
    result = m->send ? nccl.Send(m->data, m->bytes, INT8, (int)m->peer, s->nccl, stream)
                     : nccl.Recv(m->data, m->bytes, INT8, (int)m->peer, s->nccl, stream);
  }
  const int ended = nccl.GroupEnd();
  result = going(result) ? ended : result;
  return going(result) ? settle(ctx, comm) : fail(ctx, comm, result);
}

static int32_t nccl_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  return queue(ctx, comm, messages, count, ctx->engine->native_stream(ctx));
}

/* `later` waits for what `sooner` has been given so far; null is the own stream. */
static int32_t follow(nncuda_ctx *ctx, nncuda_stream *sooner, nncuda_stream *later) {
  const nn_stream_functions *const streams = ctx->engine->streams;
  nncuda_event *event = NULL;
  int32_t status = streams->event_create(ctx, &event);
  if (status == NNCUDA_SUCCESS) {
    status = streams->event_record(ctx, sooner, event);
    status = status == NNCUDA_SUCCESS ? streams->stream_wait_event(ctx, later, event) : status;
    streams->event_destroy(ctx, event); /* a wait that was queued stays */
  }
  return status;
}

static int32_t nccl_begin(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  const nn_stream_functions *const streams = ctx->engine->streams;
  state *const s = comm->state;
  under_way *const added = calloc(1, sizeof *added);
  if (added == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for what is sent meanwhile");
  }
  int32_t status = s->beside != NULL ? NNCUDA_SUCCESS : streams->stream_create(ctx, &s->beside);
  status = status == NNCUDA_SUCCESS ? follow(ctx, NULL, s->beside) : status;
  status = status == NNCUDA_SUCCESS && count > 0 ? queue(ctx, comm, messages, count, s->beside) : status;
  status = status == NNCUDA_SUCCESS ? streams->event_create(ctx, &added->done) : status;
  status = status == NNCUDA_SUCCESS ? streams->event_record(ctx, s->beside, added->done) : status;
  if (status != NNCUDA_SUCCESS) {
    if (added->done != NULL) {
      streams->event_destroy(ctx, added->done);
    }
    free(added);
    return status;
  }
  *(s->first == NULL ? &s->first : &s->last->next) = added;
  s->last = added;
  return NNCUDA_SUCCESS;
}

/* Forgets the first one. */
static void drop_first(state *s) {
  under_way *const first = s->first;
  s->ctx->engine->streams->event_destroy(s->ctx, first->done);
  s->first = first->next;
  free(first);
}

static int32_t nccl_end(nncuda_ctx *ctx, nncuda_comm *comm) {
  state *const s = comm->state;
  if (s->first == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "no exchange of this communicator is under way; begin one first");
  }
  const int32_t status = ctx->engine->streams->stream_wait_event(ctx, NULL, s->first->done);
  drop_first(s);
  return status;
}

static int32_t copy(nncuda_ctx *ctx, void *to, const void *from, size_t bytes, int32_t kind) {
  return ctx->kernel[NN_OP_memcpy](ctx, &(nn_memcpy_args){to, from, (int64_t)bytes, kind, 1});
}

/* Through the workspace, which no call needs meanwhile. */
static int32_t nccl_exchange_host(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  const size_t grain = NN_MEMORY_ALIGNMENT;
  size_t total = 0, at = 0;
  for (int64_t i = 0; i < count; i++) {
    total += (messages[i].bytes + grain - 1) / grain * grain;
  }
  nn_message *const moved = malloc((size_t)count * sizeof *moved);
  if (moved == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)count);
  }
  memcpy(moved, messages, (size_t)count * sizeof *moved);
  int32_t status = nn_workspace_take(ctx, total);
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < count; i++) {
    moved[i].data = ctx->workspace.memory + at;
    at += (messages[i].bytes + grain - 1) / grain * grain;
    if (messages[i].send) {
      status = copy(ctx, moved[i].data, messages[i].data, messages[i].bytes, NNCUDA_HOST_TO_DEVICE);
    }
  }
  status = status == NNCUDA_SUCCESS ? nccl_exchange(ctx, comm, moved, count) : status;
  status = status == NNCUDA_SUCCESS ? wait_for_stream(ctx, comm) : status;
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < count; i++) {
    if (!messages[i].send) {
      status = copy(ctx, messages[i].data, moved[i].data, messages[i].bytes, NNCUDA_DEVICE_TO_HOST);
    }
  }
  free(moved);
  return status;
}

/* ---- joining and leaving ---- */

static int32_t fail_alone(nncuda_ctx *ctx, int result) {
  return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "NCCL reports %s: %s", nccl.GetErrorString(result),
                 nccl.GetLastError(NULL));
}

/* What was sent must arrive, which takes the peers, and graphs must be gone: a while is enough if all is in order. */
static void nccl_close(nncuda_comm *comm) {
  enum { MOST_MS = 5000 };
  state *const s = comm->state;
  const int64_t until = nn_milliseconds() + MOST_MS;
  patience p = {0};
  if (s->nccl != NULL) {
    int result = nccl.CommFinalize(s->nccl);
    while (going(result) && (result = async_error(s)) == IN_PROGRESS && nn_milliseconds() < until &&
           nn_links_look(s->links) == NULL) {
      nap(&p);
    }
    if (result == SUCCESS) {
      nccl.CommDestroy(s->nccl);
    } else {
      start_abort(s);
    }
  }
  if (s->ending != NULL) {
    while (atomic_load(&s->ending->holders) == 2 && nn_milliseconds() < until) {
      nap(&p);
    }
    drop(s->ending);
  }
  while (s->first != NULL) {
    drop_first(s);
  }
  if (s->beside != NULL) {
    s->ctx->engine->streams->stream_destroy(s->ctx, s->beside);
  }
  nn_links_close(s->links);
  free(s);
}

/* Joins NCCL's communicator; the links are this one's from here on. */
static int32_t join(nncuda_ctx *ctx, nncuda_comm *comm, const unique_id *id, nn_links *links) {
  state *const s = calloc(1, sizeof *s);
  if (s == NULL) {
    nn_links_close(links);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
  }
  comm->state = s;
  s->ctx = ctx;
  s->links = links;
  ctx->comm_wait = wait_for_peers;
  int32_t status = NNCUDA_SUCCESS;
  if (comm->ranks > 1) {
    const int result = nccl.CommInitRankConfig(&s->nccl, (int)comm->ranks, *id, (int)comm->rank, &not_blocking);
    status = going(result) ? settle(ctx, comm) : fail(ctx, comm, result);
  }
  if (status != NNCUDA_SUCCESS) {
    nccl_close(comm);
  }
  return status;
}

static int32_t nccl_open(nncuda_ctx *ctx, nncuda_comm *comm, const char *address) {
  if (ctx->engine->native_stream == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "NCCL moves the memory of GPUs, and the context is not on one");
  }
  int32_t status = nn_rendezvous_ranks(ctx, comm);
  if (status != NNCUDA_SUCCESS || comm->ranks == 1) {
    return status != NNCUDA_SUCCESS ? status : join(ctx, comm, NULL, NULL);
  }
  pthread_once(&opened, open_library);
  if (why_not[0] != '\0') {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "%s", why_not);
  }
  unique_id id = {{0}};
  const int result = comm->rank == 0 ? nccl.GetUniqueId(&id) : SUCCESS;
  if (result != SUCCESS) {
    return fail_alone(ctx, result);
  }
  nn_links *links = NULL;
  status = nn_rendezvous(ctx, comm, address, &id, &links);
  return status == NNCUDA_SUCCESS ? join(ctx, comm, &id, links) : status;
}

/* Its first member makes the id; the others get it over the communicator that is split. */
static int32_t nccl_split(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm *part, const int64_t *members) {
  const state *const s = comm->state;
  if (part->ranks == 1) {
    return join(ctx, part, NULL, NULL);
  }
  unique_id id = {{0}};
  const int result = part->rank == 0 ? nccl.GetUniqueId(&id) : SUCCESS;
  nn_message *const messages = malloc((size_t)part->ranks * sizeof *messages);
  if (result != SUCCESS || messages == NULL) {
    free(messages);
    return result != SUCCESS
               ? fail_alone(ctx, result)
               : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)part->ranks);
  }
  int64_t count = 0;
  for (int64_t i = 1; i < part->ranks; i++) {
    if (part->rank == 0) {
      messages[count++] = (nn_message){members[i], &id, sizeof id, 1};
    }
  }
  if (part->rank != 0) {
    messages[count++] = (nn_message){members[0], &id, sizeof id, 0};
  }
  const int32_t status = count == 0 ? NNCUDA_SUCCESS : nccl_exchange_host(ctx, comm, messages, count);
  free(messages);
  return status == NNCUDA_SUCCESS ? join(ctx, part, &id, nn_links_share(s->links)) : status;
}

const nn_transport nn_transport_nccl = {.name = "NCCL",
                                        .open = nccl_open,
                                        .exchange = nccl_exchange,
                                        .exchange_host = nccl_exchange_host,
                                        .begin = nccl_begin,
                                        .end = nccl_end,
                                        .split = nccl_split,
                                        .abort = nccl_abort,
                                        .close = nccl_close};

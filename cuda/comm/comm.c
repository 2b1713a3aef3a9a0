#include "comm.h"

#include "background.h"
#include "collective.h"
#include "hmac.h"
#include "mpi_library.h"
#include "tree.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nn_transport *const transports[] = {
    [NNCUDA_TRANSPORT_SELF] = &nn_transport_self,
    [NNCUDA_TRANSPORT_THREADS] = &nn_transport_threads,
    [NNCUDA_TRANSPORT_MPI] = &nn_transport_mpi,
    [NNCUDA_TRANSPORT_NCCL] = &nn_transport_nccl,
};

/* ---- a rank alone; and any rank of a context that measures, whose peers are not there ---- */

static int32_t self_open(nncuda_ctx *ctx, nncuda_comm *comm, const char *address) {
  (void)address;
  if (comm->rank == -1 && comm->ranks == -1) {
    comm->rank = 0;
    comm->ranks = 1;
  }
  if (!ctx->engine->measures && comm->ranks != 1) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "ranks is %lld; with NNCUDA_TRANSPORT_SELF (0) it must be 1",
                   (long long)comm->ranks);
  }
  return NNCUDA_SUCCESS;
}

static int32_t self_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  (void)ctx, (void)comm, (void)messages, (void)count;
  return NNCUDA_SUCCESS;
}

static int32_t self_split(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm *part, const int64_t *members) {
  (void)ctx, (void)comm, (void)part, (void)members;
  return NNCUDA_SUCCESS;
}

static void self_nothing(nncuda_comm *comm) { (void)comm; }

const nn_transport nn_transport_self = {.name = "SELF",
                                        .open = self_open,
                                        .exchange = self_exchange,
                                        .split = self_split,
                                        .abort = self_nothing,
                                        .close = self_nothing};

/* ---- for all of them ---- */

/* Whether this is the first reason: the context's thread and that of the background may both find one. */
static int32_t lose(nncuda_comm *comm, const char *reason) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  const int32_t first = !comm->failed;
  if (first) {
    snprintf(comm->reason, sizeof comm->reason, "%s", reason);
    comm->failed = 1;
  }
  pthread_mutex_unlock(&lock);
  return first;
}

int32_t nn_comm_fail(nncuda_ctx *ctx, nncuda_comm *comm, const char *format, ...) {
  char reason[NN_COMM_REASON_CAPACITY];
  va_list list;
  va_start(list, format);
  vsnprintf(reason, sizeof reason, format, list);
  va_end(list);
  lose(comm, reason);
  return nn_fail(ctx, NNCUDA_ERROR_PEER, "%s", comm->reason);
}

/* Whoever waits in a part, or in the whole, is told, too. One that was destroyed may have parts that were not. */
static void tell_family(nncuda_comm *member, const char *reason) {
  if (member->transport != NULL && lose(member, reason)) {
    member->transport->abort(member);
  }
  for (nncuda_comm *part = member->parts; part != NULL; part = part->next) {
    tell_family(part, reason);
  }
}

void nn_comm_lose_family(nncuda_comm *comm) {
  char reason[NN_COMM_REASON_CAPACITY];
  memcpy(reason, comm->reason, sizeof reason);
  while (comm->parent != NULL) {
    comm = comm->parent;
  }
  tell_family(comm, reason);
}

int32_t nn_comm_usable(nncuda_ctx *ctx, nncuda_comm *comm) {
  if (comm->transport == NULL) { /* destroyed: a graph may outlive it */
    return nn_comm_check(ctx, comm);
  }
  if (!comm->failed) {
    return NNCUDA_SUCCESS;
  }
  nn_comm_lose_family(comm); /* the background may have found it out, which leaves telling to us */
  return nn_comm_fail(ctx, comm, "%s", comm->reason);
}

static int32_t exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count, int32_t host) {
  int32_t status = nn_comm_usable(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (comm->under_way > 0) { /* messages between two ranks have one order */
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "an exchange of this communicator is under way; end it first");
  }
  const nn_transport *t = comm->transport;
  status = count == 0 || ctx->engine->measures ? NNCUDA_SUCCESS
           : host && t->exchange_host != NULL  ? t->exchange_host(ctx, comm, messages, count)
                                               : t->exchange(ctx, comm, messages, count);
  for (int64_t i = 0; status == NNCUDA_SUCCESS && i < count; i++) {
    comm->sent += messages[i].send ? (int64_t)messages[i].bytes : 0;
  }
  if (comm->failed) {
    nn_comm_lose_family(comm);
  }
  return status;
}

int32_t nn_comm_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  return exchange(ctx, comm, messages, count, 0);
}

int32_t nn_comm_exchange_host(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  return exchange(ctx, comm, messages, count, 1);
}

int32_t nn_comm_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain, int32_t host) {
  nn_message *messages = malloc(2 * (size_t)comm->ranks * sizeof *messages);
  if (messages == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)(2 * comm->ranks));
  }
  unsigned char *const at = x;
  const nn_range own = nn_shard(bytes, grain, comm->ranks, comm->rank);
  int64_t count = 0;
  for (int64_t step = 1; step < comm->ranks; step++) { /* not all to rank 0 first */
    const int64_t to = (comm->rank + step) % comm->ranks, from = (comm->rank - step + comm->ranks) % comm->ranks;
    const nn_range theirs = nn_shard(bytes, grain, comm->ranks, from);
    if (own.end > own.begin) {
      messages[count++] = (nn_message){to, at + own.begin, (size_t)(own.end - own.begin), 1};
    }
    if (theirs.end > theirs.begin) {
      messages[count++] = (nn_message){from, at + theirs.begin, (size_t)(theirs.end - theirs.begin), 0};
    }
  }
  const int32_t status = exchange(ctx, comm, messages, count, host);
  free(messages);
  return status;
}

int32_t nn_comm_check(nncuda_ctx *ctx, const nncuda_comm *comm) {
  return nn_handle_check(ctx, comm, NN_HANDLE_COMM, "comm");
}

/* Its parts stay: their ranks learn why it is lost, if it is, and not that this one has left. */
static void leave(nncuda_comm *comm) {
  if (comm->transport != NULL) {
    nn_background_close(comm);
    if (comm->failed) {
      nn_comm_lose_family(comm);
    }
    comm->transport->close(comm);
    comm->transport = NULL;
  }
}

static void release(nncuda_comm *comm) {
  leave(comm);
  nn_travel_close(comm);
  free(comm->names);
  free(comm);
}

static nncuda_comm *comm_of(const nncuda_ctx *ctx, size_t entry) {
  const intptr_t kind = (intptr_t)ctx->handles.entries[entry].value;
  return kind == NN_HANDLE_COMM || kind == NN_HANDLE_COMM_DESTROYED
             ? (nncuda_comm *)(uintptr_t)ctx->handles.entries[entry].key
             : NULL;
}

/* All leave before the first is freed: who leaves may have something to tell its family. */
static void release_all(nncuda_ctx *ctx) {
  for (int32_t pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < ctx->handles.capacity; i++) {
      nncuda_comm *const comm = comm_of(ctx, i);
      if (comm != NULL) {
        (pass == 0 ? leave : release)(comm);
      }
    }
  }
}

int32_t nn_comm_keep(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm **kept) {
  const int32_t status = nn_handle_add(ctx, comm, NN_HANDLE_COMM);
  if (status != NNCUDA_SUCCESS) {
    release(comm);
    return status;
  }
  ctx->release_comms = release_all;
  *kept = comm;
  return NNCUDA_SUCCESS;
}

int32_t nn_comm_gather_host(nncuda_ctx *ctx, nncuda_comm *comm, const void *data, size_t bytes, void *all) {
  memcpy((unsigned char *)all + (size_t)comm->rank * bytes, data, bytes);
  return nn_comm_gather(ctx, comm, all, comm->ranks * (int64_t)bytes, (int64_t)bytes, 1);
}

/* ---- agree ---- */

enum { SHOWN = 96, LONGEST = 1 << 13 };

typedef struct digest { /* of a value: what travels in its place */
  uint8_t hash[NN_HMAC_BYTES];
  uint64_t bytes;
  char text[SHOWN]; /* a value that is short and printable, else empty */
} digest;

static digest digest_of(const void *value, size_t bytes) {
  digest d = {.bytes = bytes};
  nn_hmac h;
  nn_hmac_begin(&h, "");
  nn_hmac_add(&h, value, bytes);
  nn_hmac_end(&h, d.hash);
  const unsigned char *letters = value;
  size_t printable = 0;
  while (printable < bytes && letters[printable] >= ' ' && letters[printable] < 127) {
    printable++;
  }
  if (printable == bytes && bytes < SHOWN) {
    memcpy(d.text, value, bytes);
  }
  return d;
}

/* The name of the first line, name=value, that two texts differ in; empty where they have no such lines. */
static void unlike_line(const char *a, const char *b, char *name) {
  *name = '\0';
  while (*a != '\0' && *b != '\0') {
    const size_t line_a = strcspn(a, "\n"), line_b = strcspn(b, "\n"), length = strcspn(a, "=\n");
    if (line_a != line_b || memcmp(a, b, line_a) != 0) {
      const int32_t named = a[length] == '=' && length < SHOWN && length < line_b && memcmp(a, b, length + 1) == 0;
      snprintf(name, SHOWN, "%.*s", named ? (int)length : 0, a);
      return;
    }
    a += line_a + (a[line_a] == '\n');
    b += line_b + (b[line_b] == '\n');
  }
}

/* Of a value that is not the same on rank r and on rank 0: the line. All ranks have found that out, and take part. */
static int32_t find_unlike(nncuda_ctx *ctx, nncuda_comm *comm, const digest *all, int64_t r, const void *value,
                           size_t bytes, char *name) {
  *name = '\0';
  for (int64_t i = 0; i < comm->ranks; i++) {
    if (all[i].bytes >= LONGEST) {
      return NNCUDA_SUCCESS;
    }
  }
  char *texts = calloc((size_t)comm->ranks, LONGEST), *own = calloc(1, LONGEST);
  int32_t status = texts != NULL && own != NULL
                       ? NNCUDA_SUCCESS
                       : nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)comm->ranks);
  if (status == NNCUDA_SUCCESS) {
    memcpy(own, bytes > 0 ? value : "", bytes);
    status = nn_comm_gather_host(ctx, comm, own, LONGEST, texts);
  }
  if (status == NNCUDA_SUCCESS) {
    texts[LONGEST - 1] = texts[(r + 1) * LONGEST - 1] = '\0';
    unlike_line(texts, texts + r * LONGEST, name);
  }
  free(own);
  free(texts);
  return status;
}

static int32_t agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value,
                     size_t bytes) {
  if (ctx->engine->measures) {
    return NNCUDA_SUCCESS;
  }
  digest *all = calloc((size_t)comm->ranks, sizeof *all);
  if (all == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)comm->ranks);
  }
  const digest own = digest_of(value, bytes);
  int32_t status = nn_comm_gather_host(ctx, comm, &own, sizeof own, all);
  int64_t r = 1;
  while (status == NNCUDA_SUCCESS && r < comm->ranks && nn_hmac_equal(all[r].hash, all[0].hash)) {
    r++;
  }
  if (status == NNCUDA_SUCCESS && r < comm->ranks) {
    char name[SHOWN];
    all[0].text[SHOWN - 1] = all[r].text[SHOWN - 1] = '\0';
    if (all[0].text[0] != '\0' && all[r].text[0] != '\0') {
      status = nn_comm_fail(ctx, comm, "the %.*s of rank %lld (%s) is not that of rank %lld (%s)", (int)length, what,
                            nn_comm_name(comm, r), all[r].text, nn_comm_name(comm, 0), all[0].text);
    } else {
      status = find_unlike(ctx, comm, all, r, value, bytes, name);
      status = status != NNCUDA_SUCCESS ? status
                                        : nn_comm_fail(ctx, comm, "the %.*s of rank %lld is not that of rank %lld%s%s",
                                                       (int)length, what, nn_comm_name(comm, r), nn_comm_name(comm, 0),
                                                       name[0] != '\0' ? ": they differ in " : "", name);
    }
  }
  free(all);
  return status;
}

static int32_t check_text(nncuda_ctx *ctx, const char *name, const void *text, int64_t length, int64_t most) {
  if (length < 0 || length > most) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "%s is %lld bytes long; it must be 0 to %lld", name,
                   (long long)length, (long long)most);
  }
  if (text == NULL && length > 0) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "%s is null; it must point to %lld bytes", name, (long long)length);
  }
  return NNCUDA_SUCCESS;
}

/* ---- create, destroy ---- */

static int32_t check_ranks(nncuda_ctx *ctx, int64_t rank, int64_t ranks) {
  if (ranks < 1 || ranks > INT32_MAX) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "ranks is %lld; it must be 1 to %d", (long long)ranks, INT32_MAX);
  }
  if (rank < 0 || rank >= ranks) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "rank is %lld; of %lld ranks it must be 0 to %lld", (long long)rank,
                   (long long)ranks, (long long)(ranks - 1));
  }
  return NNCUDA_SUCCESS;
}

static int32_t open(nncuda_ctx *ctx, nncuda_comm *comm, int32_t transport, const char *address) {
  if ((comm->rank != -1 || comm->ranks != -1) && check_ranks(ctx, comm->rank, comm->ranks) != NNCUDA_SUCCESS) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  if (comm->transport->on_cpu && !ctx->engine->memory.visible) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED,
                   "NNCUDA_TRANSPORT_%s (%d) is for the CPU engine; between GPUs use NNCUDA_TRANSPORT_NCCL (%d)",
                   comm->transport->name, transport, NNCUDA_TRANSPORT_NCCL);
  }
  return comm->transport->open(ctx, comm, address);
}

/* The instruction set whose bits a context has: NEON and what is wider on AArch64 compute what AVX2 does. */
static int32_t arithmetic_of(const nncuda_ctx *ctx) {
  const int32_t neon = ctx->engine->device == NNCUDA_DEVICE_CPU && ctx->machine.isa >= NNCUDA_ISA_NEON;
  return neon ? NNCUDA_ISA_AVX2 : ctx->machine.isa;
}

/* All of these decide bits. */
static int32_t agree_on_library(nncuda_ctx *ctx, nncuda_comm *comm) {
  char text[SHOWN];
  const int length = snprintf(text, sizeof text, "nncuda %s, device %d, instruction set %d, tf32 %d", NN_VERSION,
                              ctx->engine->device, arithmetic_of(ctx), ctx->machine.tf32);
  return agree(ctx, comm, "library", 7, text, (size_t)length);
}

/* torchrun may itself run under a launcher of MPI, so its variables come first. */
static int32_t transport_here(const nncuda_ctx *ctx) {
  const int32_t gpu = ctx->engine->device == NNCUDA_DEVICE_CUDA;
  return gpu && getenv("RANK") != NULL && getenv("WORLD_SIZE") != NULL ? NNCUDA_TRANSPORT_NCCL
         : nn_mpi_launched()                                           ? NNCUDA_TRANSPORT_MPI
                                                                       : NNCUDA_TRANSPORT_SELF;
}

static int32_t create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length, int64_t rank,
                      int64_t ranks, int64_t timeout_ms, nncuda_comm **comm) {
  enum { ADDRESS_CAPACITY = 256 };
  if (comm == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "comm is null; it must say where to put the communicator");
  }
  *comm = NULL;
  if (transport < 0 || transport > NNCUDA_TRANSPORT_AUTO) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "transport is %d; it must be one of NNCUDA_TRANSPORT_*, 0 to %d",
                   transport, NNCUDA_TRANSPORT_AUTO);
  }
  transport = transport == NNCUDA_TRANSPORT_AUTO ? transport_here(ctx) : transport;
  if (timeout_ms < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "timeout_ms is %lld; it must be at least 0", (long long)timeout_ms);
  }
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  int32_t status = check_text(ctx, "address", address, length, ADDRESS_CAPACITY - 1);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nncuda_comm *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
  }
  char text[ADDRESS_CAPACITY] = "";
  if (length > 0) {
    memcpy(text, address, (size_t)length);
  }
  made->transport = ctx->engine->measures ? &nn_transport_self : transports[transport];
  made->rank = rank;
  made->ranks = ranks;
  made->timeout_ms = timeout_ms;
  status = open(ctx, made, transport, text);
  if (status != NNCUDA_SUCCESS) {
    free(made);
    return status;
  }
  status = agree_on_library(ctx, made);
  if (status != NNCUDA_SUCCESS) {
    release(made);
    return status;
  }
  return nn_comm_keep(ctx, made, comm);
}

static int32_t destroy(nncuda_ctx *ctx, nncuda_comm *comm) {
  if (comm == NULL) {
    return NNCUDA_SUCCESS;
  }
  const int32_t status = nn_comm_check(ctx, comm);
  if (status == NNCUDA_SUCCESS) {
    nn_table_remove(&ctx->handles, comm);
    nn_table_put(&ctx->handles, comm, (void *)(intptr_t)NN_HANDLE_COMM_DESTROYED);
    leave(comm);
  }
  return status;
}

static int32_t rank_of(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks) {
  const int32_t status = nn_comm_check(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (rank == NULL || ranks == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "%s is null; it must say where to put the number",
                   rank == NULL ? "rank" : "ranks");
  }
  *rank = comm->rank;
  *ranks = comm->ranks;
  return NNCUDA_SUCCESS;
}

void nn_comm_abort(nncuda_comm *comm, const char *reason, int64_t length) {
  char said[NN_COMM_REASON_CAPACITY];
  snprintf(said, sizeof said, "rank %lld: %.*s", nn_comm_name(comm, comm->rank), (int)length, reason);
  if (lose(comm, said)) { /* else who told us knows */
    comm->transport->abort(comm);
  }
  nn_comm_lose_family(comm);
}

static int32_t abort_for(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length) {
  int32_t status = nn_comm_check(ctx, comm);
  if (status == NNCUDA_SUCCESS) {
    status = check_text(ctx, "reason", reason, length, INT32_MAX);
  }
  if (status == NNCUDA_SUCCESS) {
    nn_comm_abort(comm, reason == NULL ? "" : reason, length);
  }
  return status;
}

static int32_t agree_on(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value,
                        int64_t bytes) {
  int32_t status = nn_comm_check(ctx, comm);
  if (status == NNCUDA_SUCCESS) {
    status = check_text(ctx, "what", what, length, INT32_MAX);
  }
  if (status == NNCUDA_SUCCESS) {
    status = check_text(ctx, "value", value, bytes, INT64_MAX);
  }
  if (status == NNCUDA_SUCCESS && ctx->capture != NULL) {
    status = nn_fail_capturing(ctx);
  }
  status = status != NNCUDA_SUCCESS ? status : agree(ctx, comm, what, length, value, (size_t)bytes);
  if (status == NNCUDA_ERROR_PEER) {
    nn_comm_lose_family(comm);
  }
  return status;
}

static int32_t sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total) {
  int32_t status = nn_comm_check(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (total == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "total is null; it must say where to put the sum");
  }
  if (ctx->capture != NULL) {
    return nn_fail_capturing(ctx);
  }
  int64_t *all = calloc((size_t)comm->ranks, sizeof *all);
  if (all == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)comm->ranks);
  }
  status = nn_comm_gather_host(ctx, comm, &value, sizeof value, all);
  *total = 0;
  for (int64_t r = 0; status == NNCUDA_SUCCESS && r < comm->ranks; r++) {
    if (__builtin_add_overflow(*total, all[r], total)) {
      status = nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "the sum over all ranks is no whole number of 64 bits");
    }
  }
  free(all);
  return status;
}

static int32_t bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes) {
  const int32_t status = nn_comm_check(ctx, comm);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (bytes == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "bytes is null; it must say where to put the number");
  }
  *bytes = comm->sent;
  return NNCUDA_SUCCESS;
}

int32_t nncuda_comm_create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length, int64_t rank,
                           int64_t ranks, int64_t timeout_ms, nncuda_comm **comm) {
  NN_INSIDE(ctx, create(ctx, transport, address, length, rank, ranks, timeout_ms, comm));
}

int32_t nncuda_comm_rank(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks) {
  NN_INSIDE(ctx, rank_of(ctx, comm, rank, ranks));
}

int32_t nncuda_comm_destroy(nncuda_ctx *ctx, nncuda_comm *comm) { NN_INSIDE(ctx, destroy(ctx, comm)); }

int32_t nncuda_comm_abort(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length) {
  NN_INSIDE(ctx, abort_for(ctx, comm, reason, length));
}

int32_t nncuda_comm_agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value,
                          int64_t bytes) {
  NN_INSIDE(ctx, agree_on(ctx, comm, what, length, value, bytes));
}

int32_t nncuda_comm_sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total) {
  NN_INSIDE(ctx, sum(ctx, comm, value, total));
}

int32_t nncuda_comm_barrier(nncuda_ctx *ctx, nncuda_comm *comm) {
  NN_INSIDE(ctx, agree_on(ctx, comm, "barrier", 7, "", 0));
}

int32_t nncuda_comm_bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes) {
  NN_INSIDE(ctx, bytes_sent(ctx, comm, bytes));
}

/*
 * A communicator: the ranks of a job, and how messages travel between them. What is sent to whom, in which order sums
 * are added, and so every bit, is decided above the transports (collective.c, tree.c): a transport moves bytes.
 */
#ifndef NN_COMM_COMM_H
#define NN_COMM_COMM_H

#include "runtime/context.h"

#include <stddef.h>
#include <stdint.h>

enum { NN_COMM_REASON_CAPACITY = 256 };

/* One way between two ranks; of the messages between two ranks the n-th one sent is the n-th one received. */
typedef struct nn_message {
  int64_t peer;
  void *data;
  size_t bytes; /* more than 0, and what the peer says, too */
  int32_t send; /* else received */
} nn_message;

typedef struct nn_transport {
  const char *name; /* behind NNCUDA_TRANSPORT_ */
  int32_t on_cpu;   /* it moves memory of the CPU engine alone */
  /* Finds the other ranks, and sets rank and ranks, which are -1 where the caller leaves that to the launcher. */
  int32_t (*open)(nncuda_ctx *ctx, nncuda_comm *comm, const char *address);
  /* All of these messages at once, in any order. In stream order: of a CPU done on return, of a GPU queued. A peer that
   * is lost, hangs for longer than comm->timeout_ms or sends another size is nn_comm_fail. */
  int32_t (*exchange)(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);
  /* The same for memory of the host, and done on return. Null: exchange does that, too. */
  int32_t (*exchange_host)(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);
  /* Exchanges beside what the stream does meanwhile (background.h): queues one; in stream order, waits for the first of
   * them. Null: a thread does them by `exchange`. */
  int32_t (*begin)(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);
  int32_t (*end)(nncuda_ctx *ctx, nncuda_comm *comm);
  /* What `part`, whose rank and ranks are set, needs of its own. members[i] is the rank in `comm` of rank i. */
  int32_t (*split)(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm *part, const int64_t *members);
  /* Tells the peers, in comm->reason, why this rank cannot go on. Does not wait for long. */
  void (*abort)(nncuda_comm *comm);
  void (*close)(nncuda_comm *comm); /* of a communicator whose open or split succeeded */
} nn_transport;

typedef struct nn_background nn_background;
typedef struct nn_travel nn_travel;

struct nncuda_comm {
  const nn_transport *transport;
  void *state; /* of the transport */
  int64_t rank, ranks, timeout_ms;
  int64_t *names;              /* of a part: what sentences call its ranks, their ranks in the whole; else null */
  nncuda_comm *parent, *parts; /* null where there are none; parts are chained by `next` */
  nncuda_comm *next;
  int64_t sent;                         /* bytes */
  nn_background *background;            /* null until an exchange is done by it */
  nn_travel *travel;                    /* of rows to experts: null until some were sent so (travel.c) */
  int64_t under_way;                    /* exchanges that have begun and not ended */
  _Atomic int32_t failed;               /* once and for ever */
  char reason[NN_COMM_REASON_CAPACITY]; /* why, with the name of the rank; written before `failed` */
};

extern const nn_transport nn_transport_self, nn_transport_threads, nn_transport_mpi, nn_transport_nccl;

/* Marks the communicator as lost, for a reason that names the peer, and fails with NNCUDA_ERROR_PEER. */
int32_t nn_comm_fail(nncuda_ctx *ctx, nncuda_comm *comm, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The transport's exchange, unless there is nothing to move or the communicator is lost. Counts bytes. */
int32_t nn_comm_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);

/* The same for memory of the host, and done on return. */
int32_t nn_comm_exchange_host(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count);

/* Of one that has failed: its parts, and what it is a part of, are lost as well, and their ranks told. */
void nn_comm_lose_family(nncuda_comm *comm);

/* What an exchange that cannot be had says, or success. Tells the family of one that is lost. */
int32_t nn_comm_usable(nncuda_ctx *ctx, nncuda_comm *comm);

/* nncuda_comm_abort, of a text. The whole and its parts are lost together. */
void nn_comm_abort(nncuda_comm *comm, const char *reason, int64_t length);

/* Each rank's shard of x, nn_shard(bytes, grain, ranks, rank), to all; `host`: x is memory of the host. */
int32_t nn_comm_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain, int32_t host);

/* Each rank's `bytes` at `data`, which lie on the host, to all: `all` holds ranks pieces of them. */
int32_t nn_comm_gather_host(nncuda_ctx *ctx, nncuda_comm *comm, const void *data, size_t bytes, void *all);

/* Takes a communicator that its transport has opened among the context's handles; without success it is gone. */
int32_t nn_comm_keep(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm **kept);

/* What sentences call a rank. */
static inline long long nn_comm_name(const nncuda_comm *comm, int64_t rank) {
  return comm->names != NULL ? comm->names[rank] : rank;
}

/* Forgets what is known of rows to experts. */
void nn_travel_close(nncuda_comm *comm);

/* The time-out, for sentences. */
static inline double nn_comm_seconds(const nncuda_comm *comm) { return (double)comm->timeout_ms / 1000; }

/* Whether a handle is a communicator of this context, with a sentence if not. */
int32_t nn_comm_check(nncuda_ctx *ctx, const nncuda_comm *comm);

#endif

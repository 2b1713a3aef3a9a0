/* Ranks that are processes, which an MPI launcher started: messages of CPU memory, point to point. */
#include "comm.h"
#include "mpi_library.h"
#include "runtime/profile.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_DATA, TAG_REASON, TAG_SPLIT };

typedef struct mpi_state {
  const nn_mpi *mpi;
  MPI_Comm comm;                        /* ours alone: no other message can be taken for one of its own */
  char reason[NN_COMM_REASON_CAPACITY]; /* on its way to the peers */
  int32_t heard;                        /* one of them told why it failed, and told all */
} mpi_state;

static int32_t too_long(const nncuda_comm *comm, int64_t since) {
  return comm->timeout_ms > 0 && (nn_clock() - since) / 1000000 >= comm->timeout_ms;
}

/* ---- failing ---- */

/* Sends comm->reason to all peers, and waits only until MPI has taken it. */
static void tell(nncuda_comm *comm) {
  mpi_state *state = comm->state;
  const nn_mpi *mpi = state->mpi;
  const int64_t begin = nn_clock(), longest = 1000000000;
  MPI_Request *requests = malloc((size_t)comm->ranks * sizeof *requests);
  int *indices = malloc((size_t)comm->ranks * sizeof *indices), count = 0;
  memcpy(state->reason, comm->reason, sizeof state->reason);
  for (int64_t peer = 0; requests != NULL && indices != NULL && peer < comm->ranks; peer++) {
    if (peer != comm->rank && mpi->Isend_c(state->reason, sizeof state->reason, MPI_BYTE, (int)peer, TAG_REASON,
                                           state->comm, &requests[count]) == MPI_SUCCESS) {
      count++;
    }
  }
  for (int left = count, done = 0; left > 0 && nn_clock() - begin < longest; left -= done) {
    if (mpi->Testsome(count, requests, &done, indices, MPI_STATUSES_IGNORE) != MPI_SUCCESS || done < 0) {
      break; /* the peer is gone */
    }
    nn_mpi_pause(begin);
  }
  free(requests);
  free(indices);
  nn_mpi_lose();
}

/* Whether a peer has told why it failed, or ended without a word; then that is why we fail. */
static int32_t told(nncuda_ctx *ctx, nncuda_comm *comm) {
  mpi_state *state = comm->state;
  const int64_t left = nn_mpi_left(); /* first: whoever left has given its reason before */
  MPI_Status from;
  int there = 0;
  char reason[NN_COMM_REASON_CAPACITY] = "";
  if (state->mpi->Iprobe(MPI_ANY_SOURCE, TAG_REASON, state->comm, &there, &from) == MPI_SUCCESS && there &&
      state->mpi->Recv_c(reason, sizeof reason, MPI_BYTE, from.MPI_SOURCE, TAG_REASON, state->comm,
                         MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    state->heard = 1;
    reason[sizeof reason - 1] = '\0';
    nn_comm_fail(ctx, comm, "%s", reason);
    return 1;
  }
  if (left >= 0) {
    nn_comm_fail(ctx, comm, "rank %lld has left", (long long)left);
  }
  return left >= 0;
}

/* ---- messages ---- */

typedef struct transfer { /* of the messages of an exchange */
  const nn_message *messages;
  int64_t count, left;
  MPI_Request *requests; /* of messages[i]; null when it is done */
  MPI_Status *statuses;  /* of the i-th that Testsome found done */
  int *indices;          /* which one that is */
  int64_t last;          /* when one was done last */
} transfer;

static int32_t post(mpi_state *state, transfer *t) {
  int error = MPI_SUCCESS;
  for (int32_t send = 0; send < 2; send++) { /* what arrives finds its place ready */
    for (int64_t i = 0; i < t->count && error == MPI_SUCCESS; i++) {
      const nn_message *m = &t->messages[i];
      if (m->send != send) {
        continue;
      }
      const MPI_Count bytes = (MPI_Count)m->bytes;
      error = send
                  ? state->mpi->Isend_c(m->data, bytes, MPI_BYTE, (int)m->peer, TAG_DATA, state->comm, &t->requests[i])
                  : state->mpi->Irecv_c(m->data, bytes, MPI_BYTE, (int)m->peer, TAG_DATA, state->comm, &t->requests[i]);
    }
  }
  return error;
}

static int32_t fail_by(nncuda_ctx *ctx, nncuda_comm *comm, int64_t peer, int error) {
  const mpi_state *state = comm->state;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  state->mpi->Error_string(error, text, &length);
  return nn_comm_fail(ctx, comm, "rank %lld cannot be reached from rank %lld: %s", nn_comm_name(comm, peer),
                      nn_comm_name(comm, comm->rank), text);
}

/* What became of a message that is done. */
static int32_t check(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *m, const MPI_Status *status, int error) {
  const mpi_state *state = comm->state;
  int class = MPI_SUCCESS;
  MPI_Count bytes = (MPI_Count)m->bytes;
  state->mpi->Error_class(error, &class);
  if (class == MPI_ERR_TRUNCATE) {
    return nn_comm_fail(ctx, comm, "rank %lld sent more than the %zu bytes that rank %lld expects",
                        nn_comm_name(comm, m->peer), m->bytes, nn_comm_name(comm, comm->rank));
  }
  if (error != MPI_SUCCESS) {
    return fail_by(ctx, comm, m->peer, error);
  }
  if (!m->send) {
    state->mpi->Get_count_c(status, MPI_BYTE, &bytes);
  }
  return bytes == (MPI_Count)m->bytes
             ? NNCUDA_SUCCESS
             : nn_comm_fail(ctx, comm, "rank %lld sent %lld bytes to rank %lld, which expects %zu",
                            nn_comm_name(comm, m->peer), (long long)bytes, nn_comm_name(comm, comm->rank), m->bytes);
}

static int32_t advance(nncuda_ctx *ctx, nncuda_comm *comm, transfer *t) {
  mpi_state *state = comm->state;
  int done = 0;
  const int error = state->mpi->Testsome((int)t->count, t->requests, &done, t->indices, t->statuses);
  int class = MPI_SUCCESS;
  state->mpi->Error_class(error, &class);
  if (error != MPI_SUCCESS && class != MPI_ERR_IN_STATUS) {
    return fail_by(ctx, comm, t->messages[0].peer, error);
  }
  int32_t status = NNCUDA_SUCCESS;
  for (int i = 0; status == NNCUDA_SUCCESS && i < done; i++) {
    status = check(ctx, comm, &t->messages[t->indices[i]], &t->statuses[i],
                   class == MPI_ERR_IN_STATUS ? t->statuses[i].MPI_ERROR : MPI_SUCCESS);
  }
  t->left -= done;
  t->last = done > 0 ? nn_clock() : t->last;
  return status;
}

static int32_t wait_for(nncuda_ctx *ctx, nncuda_comm *comm, transfer *t) {
  mpi_state *state = comm->state;
  while (t->left > 0) {
    const int64_t before = t->left;
    const int32_t status = advance(ctx, comm, t);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
    if (t->left < before) {
      continue;
    }
    if (comm->failed) { /* lost with its family, and told: this is a thread of the background */
      state->heard = 1;
      return nn_comm_fail(ctx, comm, "%s", comm->reason);
    }
    if (told(ctx, comm)) {
      return NNCUDA_ERROR_PEER;
    }
    if (too_long(comm, t->last)) {
      int64_t i = 0;
      while (t->requests[i] == MPI_REQUEST_NULL) {
        i++;
      }
      return nn_comm_fail(ctx, comm, "rank %lld did not answer within %g s", nn_comm_name(comm, t->messages[i].peer),
                          nn_comm_seconds(comm));
    }
    nn_mpi_pause(t->last);
  }
  return NNCUDA_SUCCESS;
}

/* What has not begun to arrive is not to come. */
static void withdraw(const mpi_state *state, transfer *t) {
  for (int64_t i = 0; i < t->count; i++) {
    if (t->requests[i] != MPI_REQUEST_NULL && !t->messages[i].send) {
      state->mpi->Cancel(&t->requests[i]);
    }
  }
}

/* MPI reads and writes the memory of messages under way, which the caller may free after the failure. The peers fail,
 * too, and bring theirs to an end; where that takes long, MPI is not called again. */
static void settle(const mpi_state *state, transfer *t) {
  const int64_t begin = nn_clock(), longest = 1000000000;
  int done = 0;
  while (t->left > 0 && done >= 0 && nn_clock() - begin < longest) {
    if (state->mpi->Testsome((int)t->count, t->requests, &done, t->indices, t->statuses) != MPI_SUCCESS) {
      break;
    }
    t->left -= done;
    nn_mpi_pause(begin);
  }
  if (t->left > 0 && done >= 0) {
    nn_mpi_abandon();
  }
}

static int32_t mpi_exchange(nncuda_ctx *ctx, nncuda_comm *comm, const nn_message *messages, int64_t count) {
  mpi_state *state = comm->state;
  const size_t n = (size_t)count;
  transfer t = {.messages = messages, .count = count, .left = count, .last = nn_clock()};
  t.requests = malloc(n * sizeof *t.requests);
  t.statuses = malloc(n * sizeof *t.statuses);
  t.indices = malloc(n * sizeof *t.indices);
  int32_t status = NNCUDA_SUCCESS;
  if (t.requests == NULL || t.statuses == NULL || t.indices == NULL) {
    status = nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld messages", (long long)count);
  } else {
    for (size_t i = 0; i < n; i++) {
      t.requests[i] = MPI_REQUEST_NULL;
    }
    const int error = post(state, &t);
    status = error == MPI_SUCCESS ? wait_for(ctx, comm, &t) : fail_by(ctx, comm, messages[0].peer, error);
    if (status != NNCUDA_SUCCESS) {
      withdraw(state, &t);
      nn_mpi_lose();
      if (!state->heard) {
        tell(comm);
      }
      settle(state, &t);
    }
  }
  free(t.requests);
  free(t.statuses);
  free(t.indices);
  return status;
}

/* ---- making, splitting, closing ---- */

static int32_t adopt(nncuda_ctx *ctx, nncuda_comm *comm, const nn_mpi *mpi, MPI_Comm made) {
  mpi_state *state = calloc(1, sizeof *state);
  if (state == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
  }
  *state = (mpi_state){.mpi = mpi, .comm = made};
  mpi->Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  comm->state = state;
  return NNCUDA_SUCCESS;
}

/* A communicator of our own; the others are waited for no longer than comm->timeout_ms. */
static int32_t duplicate(nncuda_ctx *ctx, nncuda_comm *comm, const nn_mpi *mpi, MPI_Comm *made) {
  MPI_Request request;
  const int64_t begin = nn_clock();
  int error = mpi->Comm_idup(MPI_COMM_WORLD, made, &request), done = 0, index;
  while (error == MPI_SUCCESS && done == 0) {
    error = mpi->Testsome(1, &request, &done, &index, MPI_STATUSES_IGNORE);
    if (done == 0 && too_long(comm, begin)) {
      return nn_comm_fail(ctx, comm, "not all ranks joined within %g s", nn_comm_seconds(comm));
    }
    nn_mpi_pause(begin);
  }
  return error == MPI_SUCCESS ? NNCUDA_SUCCESS : nn_comm_fail(ctx, comm, "MPI_Comm_idup failed with error %d", error);
}

static int32_t mpi_open(nncuda_ctx *ctx, nncuda_comm *comm, const char *address) {
  (void)address;
  const nn_mpi *mpi;
  int32_t status = nn_mpi_start(ctx, comm->timeout_ms, &mpi);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  int rank = 0, ranks = 0;
  mpi->Comm_rank(MPI_COMM_WORLD, &rank);
  mpi->Comm_size(MPI_COMM_WORLD, &ranks);
  if (comm->rank >= 0 && (comm->rank != rank || comm->ranks != ranks)) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "rank is %lld of %lld; to the MPI launcher it is %d of %d",
                   (long long)comm->rank, (long long)comm->ranks, rank, ranks);
  }
  comm->rank = rank;
  comm->ranks = ranks;
  MPI_Comm made;
  status = duplicate(ctx, comm, mpi, &made);
  return status != NNCUDA_SUCCESS ? status : adopt(ctx, comm, mpi, made);
}

/* That waits for the members without an end, but all of them have just told what they join. */
static int32_t mpi_split(nncuda_ctx *ctx, nncuda_comm *comm, nncuda_comm *part, const int64_t *members) {
  const mpi_state *whole = comm->state;
  const nn_mpi *mpi = whole->mpi;
  int *ranks = malloc((size_t)part->ranks * sizeof *ranks);
  if (ranks == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for %lld ranks", (long long)part->ranks);
  }
  for (int64_t i = 0; i < part->ranks; i++) {
    ranks[i] = (int)members[i];
  }
  MPI_Group all, group;
  MPI_Comm made;
  int error = mpi->Comm_group(whole->comm, &all);
  if (error == MPI_SUCCESS) {
    error = mpi->Group_incl(all, (int)part->ranks, ranks, &group);
    mpi->Group_free(&all);
  }
  if (error == MPI_SUCCESS) {
    error = mpi->Comm_create_group(whole->comm, group, TAG_SPLIT, &made);
    mpi->Group_free(&group);
  }
  free(ranks);
  return error == MPI_SUCCESS ? adopt(ctx, part, mpi, made) : fail_by(ctx, comm, members[0], error);
}

/* What a failed communicator has under way may still use it, so it stays. */
static void mpi_close(nncuda_comm *comm) {
  mpi_state *state = comm->state;
  if (comm->failed) {
    nn_mpi_lose();
    return;
  }
  state->mpi->Comm_free(&state->comm);
  free(state);
}

const nn_transport nn_transport_mpi = {.name = "MPI",
                                       .on_cpu = 1,
                                       .open = mpi_open,
                                       .exchange = mpi_exchange,
                                       .split = mpi_split,
                                       .abort = tell,
                                       .close = mpi_close};

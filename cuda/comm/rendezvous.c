/*
 * Whoever connects to rank 0 gets a challenge, and must answer it with what only the job's token gives; rank 0 shows in
 * its own answer that it knows the token, too. Anything else is refused. No connection can keep the job from starting:
 * each may send as many bytes as an application has, within a few seconds, and of too many the oldest goes.
 */
#define _GNU_SOURCE
#include "rendezvous.h"

#include "hmac.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What travels. Numbers are those of this machine: all ranks run the same library. */
#define MAGIC "nncuda 1"
enum { MAGIC_BYTES = 8, NONCE_BYTES = 32 };

typedef struct greeting { /* of rank 0, at once */
  char magic[MAGIC_BYTES];
  uint8_t nonce[NONCE_BYTES];
} greeting;

typedef struct application {
  char magic[MAGIC_BYTES];
  uint8_t nonce[NONCE_BYTES];
  int64_t rank, ranks;
  uint8_t proof[NN_HMAC_BYTES];
} application;

enum { TAKEN = 1, WRONG_TOKEN, WRONG_RANKS, RANK_TWICE };
static const char *const refusals[] = {
    [WRONG_TOKEN] = "its job has another token (NNCUDA_JOB_TOKEN)",
    [WRONG_RANKS] = "its job has another number of ranks",
    [RANK_TWICE] = "another process has that rank already",
};

typedef struct answer {
  int64_t verdict;
  char id[NN_RENDEZVOUS_ID_BYTES];
  uint8_t proof[NN_HMAC_BYTES];
} answer;

enum { LEAVES = 1, FAILED };
typedef struct notice { /* after that, in both directions */
  int64_t kind;
  char reason[NN_COMM_REASON_CAPACITY];
} notice;

typedef struct peer_link {
  int fd; /* -1: the rank has left in order */
  int64_t rank;
  size_t got; /* bytes of */
  notice in;
} peer_link;

struct nn_links {
  int64_t users, count;
  char reason[NN_COMM_REASON_CAPACITY]; /* empty while all is well */
  peer_link link[];
};

/* A connection whose application is not there yet. */
typedef struct visitor {
  int fd; /* -1: none */
  int64_t until;
  greeting hello;
  application in;
  size_t got;
} visitor;

enum { VISITORS = 64, VISITOR_MS = 5000, RETRY_MS = 100 };

int64_t nn_milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- who and where ---- */

int32_t nn_rendezvous_ranks(nncuda_ctx *ctx, nncuda_comm *comm) {
  if (comm->rank != -1 || comm->ranks != -1) {
    return NNCUDA_SUCCESS;
  }
  const char *const names[] = {"RANK", "WORLD_SIZE"};
  int64_t values[2];
  for (int i = 0; i < 2; i++) {
    const char *text = getenv(names[i]);
    char *end = NULL;
    values[i] = text == NULL ? -1 : strtoll(text, &end, 10);
    if (text == NULL || end == text || *end != '\0' || values[i] < i || values[i] > INT32_MAX) {
      return nn_fail(
          ctx, NNCUDA_ERROR_INVALID_VALUE,
          "the variable %s is \"%s\"; the launcher must set it to a number, or the caller give rank and ranks",
          names[i], text == NULL ? "" : text);
    }
  }
  if (values[0] >= values[1]) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "the variable RANK is %lld; WORLD_SIZE is %lld, so it must be less",
                   (long long)values[0], (long long)values[1]);
  }
  comm->rank = values[0];
  comm->ranks = values[1];
  return NNCUDA_SUCCESS;
}

/* What the ranks of one job have in common and others do not know. A launcher's id is that against mistakes alone:
 * whoever gets an answer can try out ids on it. */
static const char *job_token(void) {
  static const char *const names[] = {"NNCUDA_JOB_TOKEN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID",
                                      "LSB_JOBID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text != NULL && *text != '\0') {
      return text;
    }
  }
  return "";
}

typedef struct place {
  char text[256]; /* HOST:PORT, for messages */
  struct addrinfo *found;
} place;

/* torchrun keeps a store of its own at MASTER_PORT; the next port is as free as any. */
static void default_address(char *text, size_t capacity) {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"),
             *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  char next[16];
  if (port != NULL && agent != NULL && strcmp(agent, "True") == 0) {
    snprintf(next, sizeof next, "%d", atoi(port) + 1);
    port = next;
  }
  if (host != NULL && port != NULL) { /* find_place says what is wrong with them */
    snprintf(text, capacity, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
  }
}

static int32_t find_place(nncuda_ctx *ctx, const char *address, int32_t listens, place *p) {
  snprintf(p->text, sizeof p->text, "%s", address);
  if (*address == '\0') {
    default_address(p->text, sizeof p->text);
  }
  char host[sizeof p->text];
  memcpy(host, p->text, sizeof host);
  char *colon = strrchr(host, ':'), *name = host;
  char *end = NULL;
  const long port = colon == NULL ? 0 : strtol(colon + 1, &end, 10);
  if (colon == NULL || port < 1 || port > 65535 || *end != '\0' || colon == host) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "address is \"%s\"; it must be HOST:PORT of rank 0, or MASTER_ADDR and MASTER_PORT must be set",
                   p->text);
  }
  *colon = '\0';
  if (*name == '[' && colon[-1] == ']') {
    colon[-1] = '\0';
    name++;
  }
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
  const int error = getaddrinfo(name, colon + 1, &hints, &p->found);
  return error == 0 ? NNCUDA_SUCCESS
                    : nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "address is \"%s\"; no such host is found (%s)", p->text,
                              gai_strerror(error));
}

/* ---- proofs ---- */

static int32_t draw(nncuda_ctx *ctx, uint8_t nonce[NONCE_BYTES]) {
  FILE *source = fopen("/dev/urandom", "rbe");
  const size_t read = source == NULL ? 0 : fread(nonce, 1, NONCE_BYTES, source);
  if (source != NULL) {
    fclose(source);
  }
  return read == NONCE_BYTES
             ? NNCUDA_SUCCESS
             : nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "/dev/urandom cannot be read: %s", strerror(errno));
}

/* Of the application (`a` null), or of rank 0's answer to it. */
static void prove(const greeting *hello, const application *in, const answer *a, uint8_t proof[NN_HMAC_BYTES]) {
  nn_hmac h;
  nn_hmac_begin(&h, job_token());
  nn_hmac_add(&h, a == NULL ? "application" : "answer", a == NULL ? 11 : 6);
  nn_hmac_add(&h, hello, sizeof *hello);
  nn_hmac_add(&h, in, offsetof(application, proof));
  if (a != NULL) {
    nn_hmac_add(&h, a, offsetof(answer, proof));
  }
  nn_hmac_end(&h, proof);
}

/* ---- links ---- */

static void say(const peer_link *l, int64_t kind, const char *reason) {
  notice out = {.kind = kind};
  snprintf(out.reason, sizeof out.reason, "%s", reason);
  if (l->fd >= 0) { /* a few notices fit into what the system buffers; whoever does not get one sees the end */
    (void)!send(l->fd, &out, sizeof out, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void nn_links_tell(nn_links *links, const char *reason) {
  if (links->reason[0] == '\0') {
    snprintf(links->reason, sizeof links->reason, "%s", reason);
    for (int64_t i = 0; i < links->count; i++) {
      say(&links->link[i], FAILED, reason);
    }
  }
}

static void look(nn_links *links, peer_link *l) {
  while (l->fd >= 0 && links->reason[0] == '\0') {
    const ssize_t read = recv(l->fd, (char *)&l->in + l->got, sizeof l->in - l->got, MSG_DONTWAIT);
    if (read < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (read <= 0) {
      char text[NN_COMM_REASON_CAPACITY];
      snprintf(text, sizeof text, "rank %lld ended without a word", (long long)l->rank);
      nn_links_tell(links, text);
      return;
    }
    l->got += (size_t)read;
    if (l->got == sizeof l->in && l->in.kind == LEAVES) {
      close(l->fd);
      l->fd = -1;
    } else if (l->got == sizeof l->in) {
      l->in.reason[sizeof l->in.reason - 1] = '\0';
      nn_links_tell(links, l->in.reason); /* rank 0 passes it on */
    }
  }
}

const char *nn_links_look(nn_links *links) {
  for (int64_t i = 0; i < links->count; i++) {
    look(links, &links->link[i]);
  }
  return links->reason[0] == '\0' ? NULL : links->reason;
}

nn_links *nn_links_share(nn_links *links) {
  links->users++;
  return links;
}

void nn_links_close(nn_links *links) {
  if (links == NULL || --links->users > 0) {
    return;
  }
  for (int64_t i = 0; i < links->count; i++) {
    say(&links->link[i], LEAVES, "");
    if (links->link[i].fd >= 0) {
      close(links->link[i].fd);
    }
  }
  free(links);
}

static void add_link(nn_links *links, int fd, int64_t rank) {
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
  links->link[links->count++] = (peer_link){.fd = fd, .rank = rank};
}

/* ---- rank 0 ---- */

static int listen_at(const place *p) {
  for (const struct addrinfo *a = p->found; a != NULL; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) {
      continue;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
      return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
  }
  return -1;
}

static void dismiss(visitor *v) {
  if (v->fd >= 0) {
    close(v->fd);
    v->fd = -1;
  }
}

static void admit(nncuda_ctx *ctx, int fd, visitor *visitors) {
  visitor *seat = visitors; /* a free one, else the one that has been there for longest */
  for (visitor *v = visitors + 1; v < visitors + VISITORS && seat->fd >= 0; v++) {
    seat = v->fd < 0 || v->until < seat->until ? v : seat;
  }
  dismiss(seat);
  *seat = (visitor){.fd = fd, .until = nn_milliseconds() + VISITOR_MS, .hello = {.magic = MAGIC}};
  if (draw(ctx, seat->hello.nonce) != NNCUDA_SUCCESS ||
      send(fd, &seat->hello, sizeof seat->hello, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof seat->hello) {
    dismiss(seat);
  }
}

static int64_t judge(const nncuda_comm *comm, const nn_links *links, const visitor *v) {
  uint8_t proof[NN_HMAC_BYTES];
  prove(&v->hello, &v->in, NULL, proof);
  if (memcmp(v->in.magic, MAGIC, MAGIC_BYTES) != 0 || !nn_hmac_equal(proof, v->in.proof)) {
    return WRONG_TOKEN;
  }
  if (v->in.ranks != comm->ranks || v->in.rank < 1 || v->in.rank >= comm->ranks) {
    return WRONG_RANKS;
  }
  for (int64_t i = 0; i < links->count; i++) {
    if (links->link[i].rank == v->in.rank) {
      return RANK_TWICE;
    }
  }
  return TAKEN;
}

/* Reads on; takes or dismisses a visitor whose application is complete. */
static void hear(const nncuda_comm *comm, nn_links *links, visitor *v, const void *id) {
  const ssize_t read = recv(v->fd, (char *)&v->in + v->got, sizeof v->in - v->got, MSG_DONTWAIT);
  if (read < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  v->got += read > 0 ? (size_t)read : 0;
  if (read > 0 && v->got < sizeof v->in) {
    return;
  }
  if (read > 0) {
    answer a = {.verdict = judge(comm, links, v)};
    if (a.verdict == TAKEN) {
      memcpy(a.id, id, sizeof a.id);
    }
    prove(&v->hello, &v->in, &a, a.proof);
    const int sent = send(v->fd, &a, sizeof a, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof a;
    if (sent && a.verdict == TAKEN) {
      add_link(links, v->fd, v->in.rank);
      v->fd = -1;
    }
  }
  dismiss(v);
}

/* The first rank that has not come. */
static int64_t missing(const nn_links *links) {
  for (int64_t rank = 1;; rank++) {
    int64_t i = 0;
    while (i < links->count && links->link[i].rank != rank) {
      i++;
    }
    if (i == links->count) {
      return rank;
    }
  }
}

static int32_t receive_all(nncuda_ctx *ctx, nncuda_comm *comm, const place *p, int door, const void *id,
                           nn_links *links) {
  visitor visitors[VISITORS];
  for (int i = 0; i < VISITORS; i++) {
    visitors[i] = (visitor){.fd = -1};
  }
  const int64_t begin = nn_milliseconds();
  int32_t status = NNCUDA_SUCCESS;
  while (status == NNCUDA_SUCCESS && links->count < comm->ranks - 1) {
    struct pollfd asked[VISITORS + 1] = {{.fd = door, .events = POLLIN}};
    for (int i = 0; i < VISITORS; i++) {
      asked[i + 1] = (struct pollfd){.fd = visitors[i].fd, .events = POLLIN}; /* -1 is passed over */
    }
    poll(asked, VISITORS + 1, RETRY_MS);
    const int64_t now = nn_milliseconds();
    for (int i = 0; i < VISITORS; i++) {
      if (visitors[i].fd >= 0 && asked[i + 1].revents != 0) {
        hear(comm, links, &visitors[i], id);
      }
      if (now > visitors[i].until) {
        dismiss(&visitors[i]);
      }
    }
    const int fd = asked[0].revents == 0 ? -1 : accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      admit(ctx, fd, visitors);
    }
    if (comm->timeout_ms > 0 && now - begin > comm->timeout_ms && links->count < comm->ranks - 1) {
      status = nn_comm_fail(ctx, comm, "rank %lld did not come to %s within %g s", (long long)missing(links), p->text,
                            nn_comm_seconds(comm));
    }
  }
  for (int i = 0; i < VISITORS; i++) {
    dismiss(&visitors[i]);
  }
  return status;
}

static int32_t receive(nncuda_ctx *ctx, nncuda_comm *comm, const place *p, const void *id, nn_links *links) {
  const int door = listen_at(p);
  if (door < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE,
                   "rank 0 cannot listen at %s: %s; the address must be one of its own machine and the port free",
                   p->text, strerror(errno));
  }
  const int32_t status = receive_all(ctx, comm, p, door, id, links);
  close(door);
  return status;
}

/* ---- the others ---- */

/* All `bytes`, before the clock shows `until`. */
static int32_t read_all(int fd, void *to, size_t bytes, int64_t until) {
  for (size_t got = 0; got < bytes;) {
    const int64_t left = until - nn_milliseconds();
    if (left <= 0 || poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)left) < 0) {
      return 0;
    }
    const ssize_t read = recv(fd, (char *)to + got, bytes - got, MSG_DONTWAIT);
    if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) {
      return 0;
    }
    got += read > 0 ? (size_t)read : 0;
  }
  return 1;
}

static int connect_to(const struct addrinfo *a, int64_t until) {
  const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
  if (fd < 0) {
    return -1;
  }
  int error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    const int64_t left = until - nn_milliseconds();
    error = ETIMEDOUT;
    if (left > 0 && poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, (int)left) == 1) {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    }
  }
  if (error != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

/* One attempt: what rank 0 said, or 0 when nobody there spoke as rank 0 does. */
static int64_t apply(nncuda_ctx *ctx, const nncuda_comm *comm, int fd, void *id) {
  const int64_t until = nn_milliseconds() + VISITOR_MS;
  greeting hello;
  answer a;
  application out = {.magic = MAGIC, .rank = comm->rank, .ranks = comm->ranks};
  uint8_t proof[NN_HMAC_BYTES];
  if (!read_all(fd, &hello, sizeof hello, until) || memcmp(hello.magic, MAGIC, MAGIC_BYTES) != 0 ||
      draw(ctx, out.nonce) != NNCUDA_SUCCESS) {
    return 0;
  }
  prove(&hello, &out, NULL, out.proof);
  if (send(fd, &out, sizeof out, MSG_NOSIGNAL) != sizeof out || !read_all(fd, &a, sizeof a, until)) {
    return 0;
  }
  prove(&hello, &out, &a, proof);
  if (!nn_hmac_equal(proof, a.proof)) {
    return WRONG_TOKEN;
  }
  memcpy(id, a.id, sizeof a.id);
  return a.verdict >= TAKEN && a.verdict <= RANK_TWICE ? a.verdict : 0;
}

static int32_t visit(nncuda_ctx *ctx, nncuda_comm *comm, const place *p, void *id, nn_links *links) {
  const int64_t begin = nn_milliseconds();
  for (;;) {
    for (const struct addrinfo *a = p->found; a != NULL; a = a->ai_next) {
      const int fd = connect_to(a, nn_milliseconds() + VISITOR_MS);
      const int64_t verdict = fd < 0 ? 0 : apply(ctx, comm, fd, id);
      if (verdict == TAKEN) {
        add_link(links, fd, 0);
        return NNCUDA_SUCCESS;
      }
      if (fd >= 0) {
        close(fd);
      }
      if (verdict != 0) {
        return nn_comm_fail(ctx, comm, "rank 0 at %s does not take rank %lld of %lld: %s", p->text,
                            (long long)comm->rank, (long long)comm->ranks, refusals[verdict]);
      }
    }
    if (comm->timeout_ms > 0 && nn_milliseconds() - begin > comm->timeout_ms) {
      return nn_comm_fail(ctx, comm, "rank 0 did not answer at %s within %g s", p->text,
                          (double)comm->timeout_ms / 1000);
    }
    nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
  }
}

int32_t nn_rendezvous(nncuda_ctx *ctx, nncuda_comm *comm, const char *address, void *id, nn_links **links) {
  place p = {.found = NULL};
  int32_t status = find_place(ctx, address, comm->rank == 0, &p);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_links *made = calloc(1, sizeof *made + (size_t)comm->ranks * sizeof(peer_link));
  if (made == NULL) {
    freeaddrinfo(p.found);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "no memory for the connections of %lld ranks",
                   (long long)comm->ranks);
  }
  made->users = 1;
  status = comm->rank == 0 ? receive(ctx, comm, &p, id, made) : visit(ctx, comm, &p, id, made);
  freeaddrinfo(p.found);
  if (status != NNCUDA_SUCCESS) {
    if (comm->failed) {
      nn_links_tell(made, comm->reason);
    }
    nn_links_close(made);
    made = NULL;
  }
  *links = made;
  return status;
}

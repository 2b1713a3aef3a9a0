/*
 * Ranks in threads of one process, driven hard: collectives of changing sizes, communicators cut and left, ranks that
 * abort, leave or stay away while others wait for them, with memory that is freed at once. Checks results throughout;
 * built with sanitizers, these check the rest. Prints "ok" at the end.
 */
#include "bindings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5, ROUNDS = 40, FAILURES = 24, MOST = 70000, GRAIN = 1000 };

#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "line %d: %s does not hold; %s\n", __LINE__, #condition, nncuda_last_error(ctx));                \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

#define CHECK(call) REQUIRE((call) == NNCUDA_SUCCESS)

static nncuda_comm *join(nncuda_ctx *ctx, const char *name, int64_t rank, int64_t timeout_ms) {
  nncuda_comm *comm;
  CHECK(nncuda_comm_create(ctx, NNCUDA_TRANSPORT_THREADS, name, (int64_t)strlen(name), rank, RANKS, timeout_ms, &comm));
  return comm;
}

static float *numbers(int64_t n, int64_t rank) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) {
    x[i] = (float)((i + 1) % 97) * (float)(rank + 1);
  }
  return x;
}

/* One row for each rank's expert, but in every third round of a rank without rows; there, and back to other places. */
static void exchange_rows(nncuda_ctx *ctx, nncuda_comm *comm, int64_t rank, int64_t round) {
  enum { LONGEST = 300 };
  const int64_t width = 1 + 7 * round % LONGEST, row = 4 * width;
  float *x = numbers(RANKS * width, rank), *y = malloc((size_t)(RANKS * RANKS * row));
  int32_t offsets[RANKS + 1], slots[RANKS][2];
  for (int32_t e = 0; e <= RANKS; e++) {
    offsets[e] = e;
  }
  const int32_t guest = (rank + round) % 3 == 0;
  CHECK(nncuda_comm_dispatch(ctx, comm, guest ? NULL : x, guest ? NULL : offsets, y, slots[0], guest ? 0 : RANKS, RANKS,
                             row, RANKS, 1));
  for (int64_t r = 0; r < RANKS; r++) {
    REQUIRE(slots[r][0] == 0 && slots[r][1] == ((r + round) % 3 != 0));
    REQUIRE(slots[r][1] == 0 || y[r * RANKS * width] == (float)((rank * width + 1) % 97) * (float)(r + 1));
  }
  float *back = malloc((size_t)(RANKS * row));
  CHECK(nncuda_comm_collect(ctx, comm, y, slots[0], guest ? NULL : back, guest ? NULL : offsets, guest ? 0 : RANKS,
                            RANKS, row, RANKS, 1));
  REQUIRE(guest || memcmp(back, x, (size_t)(RANKS * row)) == 0);
  free(back);
  free(x);
  free(y);
}

/* Sums over the ranks, once by shards, once by all, and from the last rank to all. */
static void *together(void *arg) {
  static const int64_t sizes[] = {1, 2, 999, 5001, MOST};
  const int64_t rank = (int64_t)(intptr_t)arg, triangle = RANKS * (RANKS + 1) / 2;
  nncuda_ctx *ctx = NULL;
  CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
  CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 1 + (int32_t)rank % 2));
  nncuda_comm *comm = join(ctx, "together", rank, 0);
  for (int64_t round = 0; round < ROUNDS; round++) {
    const int64_t n = sizes[round % 5];
    float *x = numbers(n, rank), *y = numbers(n, rank);
    int64_t shards[3 * RANKS], owned;
    CHECK(nncuda_expert_shards(n, GRAIN, RANKS, 1, NULL, 0, shards, RANKS, &owned));
    CHECK(
        nncuda_comm_reduce_scatter(ctx, comm, NULL, x, n, 0, RANKS, shards, owned,
                                   round % 2 == 0 ? NNCUDA_F32 : NNCUDA_F16)); /* up to 96 * RANKS are exact in both */
    CHECK(nncuda_comm_all_gather(ctx, comm, x, 4 * n, 4 * GRAIN));
    CHECK(nncuda_comm_all_reduce(ctx, comm, y, n));
    for (int64_t i = 0; i < n; i++) { /* small whole numbers: exact in any order */
      REQUIRE(x[i] == (float)((i + 1) % 97 * triangle) && y[i] == x[i]);
    }
    exchange_rows(ctx, comm, rank, round);
    y[0] = (float)rank;
    CHECK(nncuda_comm_broadcast(ctx, comm, y, 4 * n, RANKS - 1));
    REQUIRE(y[0] == RANKS - 1);
    int64_t total;
    nncuda_comm *part;
    CHECK(nncuda_comm_split(ctx, comm, (rank + round) % 2, 0, &part));
    CHECK(nncuda_comm_sum(ctx, part, 1, &total));
    REQUIRE(total == RANKS / 2 || total == RANKS - RANKS / 2);
    CHECK(nncuda_comm_destroy(ctx, part));
    const int64_t first = (rank - round % 2) / 2 * 2 + round % 2, count = first + 1 < RANKS ? 2 : 1;
    if (first >= 0 && rank >= first) { /* pairs, and who is left over makes a part of its own, or none */
      CHECK(nncuda_comm_part(ctx, comm, first, 1, count, &part));
      CHECK(nncuda_comm_sum(ctx, part, 1, &total));
      REQUIRE(total == count);
      CHECK(nncuda_comm_destroy(ctx, part));
    }
    int64_t moves[RANKS][4]; /* in a ring */
    for (int64_t i = 0; i < RANKS; i++) {
      moves[i][0] = 4 * n * i / RANKS;
      moves[i][1] = 4 * n * (i + 1) / RANKS;
      moves[i][2] = i;
      moves[i][3] = (i + 1) % RANKS;
    }
    memset(x, (int)rank, 4 * (size_t)n);
    CHECK(nncuda_comm_move(ctx, comm, x, 4 * n, &moves[0][0], RANKS));
    const int64_t before = (rank + RANKS - 1) % RANKS;
    for (int64_t i = 0; i < 4 * n; i++) {
      const int32_t came = i >= moves[before][0] && i < moves[before][1];
      REQUIRE(((const unsigned char *)x)[i] == (came ? before : rank));
    }
    free(x);
    free(y);
  }
  CHECK(nncuda_comm_destroy(ctx, comm));
  CHECK(nncuda_ctx_destroy(ctx));
  return NULL;
}

/* Each time another rank lets the others down. They find out, in whichever call, and go; nobody hangs. */
static void *failing(void *arg) {
  const int64_t rank = (int64_t)(intptr_t)arg;
  nncuda_ctx *ctx = NULL;
  int64_t shards[3 * RANKS], owned;
  CHECK(nncuda_expert_shards(MOST, GRAIN, RANKS, 1, NULL, 0, shards, RANKS, &owned));
  for (int64_t round = 0; round < FAILURES; round++) {
    char name[32];
    snprintf(name, sizeof name, "failing %lld", (long long)round);
    CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
    CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 1));
    nncuda_comm *comm = NULL;
    int32_t status = nncuda_comm_create(ctx, NNCUDA_TRANSPORT_THREADS, name, (int64_t)strlen(name), rank, RANKS,
                                        round % 3 == 0 ? 200 : 20000, &comm);
    float *x = numbers(MOST, rank);
    for (int32_t call = 0; call < 100 && status == NNCUDA_SUCCESS; call++) {
      if (rank == round % RANKS && call == 2) {
        if (round % 3 == 0) {
          nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
        } else if (round % 3 == 1) {
          CHECK(nncuda_comm_abort(ctx, comm, "because", 7));
        }
        break;
      }
      status = nncuda_comm_reduce_scatter(ctx, comm, NULL, x, MOST, 0, RANKS, shards, owned, NNCUDA_F32);
    }
    free(x);
    REQUIRE(status == NNCUDA_SUCCESS || status == NNCUDA_ERROR_PEER);
    REQUIRE(status == NNCUDA_ERROR_PEER || rank == round % RANKS);
    CHECK(nncuda_ctx_destroy(ctx)); /* and the communicator with it */
  }
  return NULL;
}

static void run(void *(*body)(void *)) {
  nncuda_ctx *ctx = NULL;
  pthread_t made[RANKS];
  for (int i = 0; i < RANKS; i++) {
    REQUIRE(pthread_create(&made[i], NULL, body, (void *)(intptr_t)i) == 0);
  }
  for (int i = 0; i < RANKS; i++) {
    pthread_join(made[i], NULL);
  }
}

int main(void) {
  run(together);
  run(failing);
  puts("ok");
  return 0;
}

/*
 * Everything in the library that several threads touch, driven hard: the worker pool with changing numbers of threads,
 * contexts side by side, many threads on one context, streams and events. Checks results throughout; built with
 * -fsanitize=thread, the sanitizer checks the rest. Prints "ok" at the end.
 */
#include "bindings.h"
#include "require.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 17, CONTEXTS = 4, ROUNDS = 60 };

static float x[N], want[N];

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    const int32_t status_ = (call);                                                                                    \
    if (status_ != NNCUDA_SUCCESS) {                                                                                   \
      fprintf(stderr, "%s: %s: %s\n", #call, nncuda_status_name(status_), nncuda_last_error(ctx));                     \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* Each thread with a context of its own: jobs of all sizes, numbers of threads that change in between. */
static void *own_context(void *arg) {
  static const int64_t sizes[] = {1, 100, 20000, 40000, N};
  const int32_t number = (int32_t)(intptr_t)arg;
  float *y = malloc(sizeof want);
  nncuda_ctx *ctx;
  CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
  for (int round = 0; round < ROUNDS; round++) {
    if (round % 10 == 0) {
      CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 1 + (number + round / 10) % 4));
    }
    const int64_t n = sizes[round % 5];
    memset(y, 0, sizeof want);
    CHECK(cuda_silu(ctx, x, y, n, NNCUDA_F32));
    REQUIRE(memcmp(y, want, (size_t)n * sizeof *y) == 0);
    void *memory;
    CHECK(nncuda_malloc(ctx, 1000 * (round + 1), &memory));
    CHECK(nncuda_memset(ctx, memory, round, 1000 * (round + 1)));
    CHECK(nncuda_free(ctx, memory));
  }
  CHECK(nncuda_ctx_destroy(ctx));
  free(y);
  return NULL;
}

static nncuda_ctx *shared;
static atomic_int succeeded;

/* Many threads on one context: each call succeeds or is refused as busy. */
static void *shared_context(void *arg) {
  (void)arg;
  nncuda_ctx *ctx = shared;
  float *y = malloc(sizeof want);
  for (int round = 0; round < 5 * ROUNDS; round++) {
    memset(y, 0, sizeof want);
    const int32_t status = cuda_silu(ctx, x, y, N, NNCUDA_F32);
    if (status == NNCUDA_SUCCESS) {
      REQUIRE(memcmp(y, want, sizeof want) == 0);
      atomic_fetch_add(&succeeded, 1);
    } else {
      REQUIRE(status == NNCUDA_ERROR_BUSY);
    }
  }
  free(y);
  return NULL;
}

/* Copies on two streams, ordered by events, beside kernels and a replayed graph. */
static void *streams(void *arg) {
  (void)arg;
  float *a = malloc(sizeof want), *b = malloc(sizeof want), *y = calloc(1, sizeof want);
  nncuda_ctx *ctx;
  nncuda_stream *first, *second;
  nncuda_event *copied, *returned;
  nncuda_graph *graph;
  CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
  CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 2));
  CHECK(nncuda_stream_create(ctx, &first));
  CHECK(nncuda_stream_create(ctx, &second));
  CHECK(nncuda_event_create(ctx, &copied));
  CHECK(nncuda_event_create(ctx, &returned));
  CHECK(nncuda_graph_begin(ctx));
  CHECK(cuda_silu(ctx, x, y, N, NNCUDA_F32));
  CHECK(nncuda_graph_end(ctx, &graph));
  for (int round = 0; round < ROUNDS; round++) {
    memset(a, 0, sizeof want);
    memset(b, 0, sizeof want);
    CHECK(nncuda_memcpy_async(ctx, first, a, x, sizeof want, NNCUDA_HOST_TO_DEVICE));
    CHECK(nncuda_event_record(ctx, first, copied));
    CHECK(nncuda_stream_wait_event(ctx, second, copied));
    CHECK(nncuda_memcpy_async(ctx, second, b, a, sizeof want, NNCUDA_DEVICE_TO_DEVICE));
    CHECK(nncuda_event_record(ctx, second, returned));
    CHECK(nncuda_graph_launch(ctx, graph));
    REQUIRE(memcmp(y, want, sizeof want) == 0);
    int32_t happened;
    CHECK(nncuda_event_query(ctx, returned, &happened));
    if (round % 3 == 0) {
      CHECK(nncuda_stream_wait_event(ctx, NULL, returned));
    } else if (round % 3 == 1) {
      CHECK(nncuda_event_synchronize(ctx, returned));
    } else {
      CHECK(nncuda_ctx_synchronize(ctx));
    }
    REQUIRE(memcmp(b, x, sizeof want) == 0);
    float milliseconds;
    CHECK(nncuda_event_elapsed(ctx, copied, returned, &milliseconds));
    REQUIRE(milliseconds >= 0);
  }
  CHECK(nncuda_memcpy_async(ctx, first, a, x, sizeof want, NNCUDA_HOST_TO_DEVICE));
  CHECK(nncuda_event_record(ctx, first, copied));
  CHECK(nncuda_stream_wait_event(ctx, second, copied));
  CHECK(nncuda_event_destroy(ctx, copied)); /* still awaited */
  CHECK(nncuda_stream_destroy(ctx, first));
  CHECK(nncuda_ctx_destroy(ctx)); /* the second stream goes with it */
  REQUIRE(memcmp(a, x, sizeof want) == 0);
  free(a);
  free(b);
  free(y);
  return NULL;
}

static void together(void *(*body)(void *), int threads) {
  pthread_t made[CONTEXTS];
  for (int i = 0; i < threads; i++) {
    REQUIRE(pthread_create(&made[i], NULL, body, (void *)(intptr_t)i) == 0);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(made[i], NULL);
  }
}

int main(void) {
  for (int i = 0; i < N; i++) {
    x[i] = (float)(i - N / 2) / 10000.0f;
  }
  nncuda_ctx *ctx;
  CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
  CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 1));
  CHECK(cuda_silu(ctx, x, want, N, NNCUDA_F32));
  CHECK(nncuda_ctx_destroy(ctx));

  together(own_context, CONTEXTS);
  together(streams, 2);
  CHECK(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &shared));
  ctx = shared;
  CHECK(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 3));
  together(shared_context, 3);
  REQUIRE(atomic_load(&succeeded) > 0);
  CHECK(nncuda_ctx_destroy(shared));
  puts("ok");
  return 0;
}

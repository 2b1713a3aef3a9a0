/*
 * Makes the n-th request for memory or for a thread fail, for n = 1, 2, ... until a whole run passes untouched. The
 * program's allocators are found before those of libc by the library under test as well, so the library needs no hook.
 * Prints the number of points of failure; exits with 1 and a sentence when a run goes wrong.
 */
#define _GNU_SOURCE
#include "bindings.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of tests/faults/allocations.c, which stands before the allocators of libc. */
void fault_arm(long at);
long fault_disarm(void);
long fault_struck(void);
long fault_alive(void);
int fault_refuse(void);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (real == NULL) {
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  }
  return fault_refuse() ? EAGAIN : real(thread, attributes, start, arg);
}

static long point;

static void fail(const char *what, int32_t status, nncuda_ctx *ctx) {
  fault_disarm();
  printf("point %ld: %s gave %s: %s\n", point, what, nncuda_status_name(status), nncuda_last_error(ctx));
  exit(1);
}

/* A call may succeed, or say OUT_OF_MEMORY after a refusal; once refused it must succeed when tried again. */
#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    const long before = fault_struck();                                                                                \
    int32_t status = (call);                                                                                           \
    if (status == NNCUDA_ERROR_OUT_OF_MEMORY && fault_struck() > before) {                                             \
      if (*nncuda_last_error(ctx) == '\0') {                                                                           \
        fail(#call " left no sentence", status, ctx);                                                                  \
      }                                                                                                                \
      status = (call);                                                                                                 \
    }                                                                                                                  \
    if (status != NNCUDA_SUCCESS) {                                                                                    \
      fail(#call, status, ctx);                                                                                        \
    }                                                                                                                  \
  } while (0)

enum { N = 1 << 16, ROWS = 4, VOCAB = 5000 };
static float x[N], y[N], z[N], logits[ROWS * VOCAB], ones[ROWS];
static int64_t seeds[ROWS];
static int32_t steps[ROWS], ids[ROWS];
static char text[1 << 16];

/* Gradients side by side in one buffer, searched for what is not finite: a call that is refused leaves them alone. */
static void search_side_by_side(nncuda_ctx *ctx) {
  enum { T = 256, DIM = 64, LD = 3 * DIM };
  for (int i = 0; i < T * LD; i++) {
    z[i] = 1.0f;
  }
  TRY(nncuda_trace_begin_nonfinite(ctx));
  for (int attempt = 0; attempt < 2; attempt++) {
    const int32_t status =
        cuda_flash_attention_backward(ctx, x, x, x + DIM, x + 2 * DIM, x, x, NULL, z, z + DIM, z + 2 * DIM, 1, T, T, 1,
                                      1, DIM, LD, LD, 0.125f, 1, NNCUDA_F32);
    if (status == NNCUDA_SUCCESS) {
      break;
    }
    if (status != NNCUDA_ERROR_OUT_OF_MEMORY || attempt == 1) {
      fail("the backward of attention", status, ctx);
    }
    for (int i = 0; i < T * LD; i++) {
      if (z[i] != 1.0f) {
        fail("an output of a call that was refused", status, ctx);
      }
    }
  }
  TRY(nncuda_trace_end(ctx));
}

/* A rank alone, whose peers cannot lose patience meanwhile. */
static void ranks(nncuda_ctx *ctx) {
  nncuda_comm *comm, *whole, *part;
  int64_t total;
  TRY(nncuda_comm_create(ctx, NNCUDA_TRANSPORT_THREADS, "faults", 6, 0, 1, 1000, &comm));
  TRY(nncuda_comm_split(ctx, comm, 3, 0, &whole));
  TRY(nncuda_comm_part(ctx, whole, 0, 1, 1, &part));
  TRY(nncuda_comm_sum(ctx, part, 7, &total));
  TRY(nncuda_comm_agree(ctx, part, "text", 4, text, sizeof text));
  TRY(nncuda_comm_broadcast(ctx, part, y, sizeof y, 0));
  TRY(nncuda_comm_all_gather(ctx, part, y, sizeof y, 4));
  TRY(nncuda_comm_all_reduce(ctx, part, y, N));
  const int64_t shard[] = {0, N, 0};
  TRY(nncuda_comm_reduce_scatter(ctx, part, NULL, y, N, 0, 1, shard, 1, NNCUDA_BF16));
  TRY(nncuda_comm_move(ctx, part, y, sizeof y, (const int64_t[]){0, 4, 0, 0}, 1));
  TRY(nncuda_comm_grad_norm(ctx, part, y, z, N, shard, 1));
  const int32_t offsets[] = {0, 1, ROWS};
  int32_t slots[3];
  TRY(nncuda_comm_dispatch(ctx, part, x, offsets, y, slots, ROWS, ROWS, 4, 1, 2));
  TRY(nncuda_comm_collect(ctx, part, y, slots, x, offsets, ROWS, ROWS, 4, 1, 2));
  TRY(nncuda_comm_dispatch_begin(ctx, part, x, offsets, y, slots, ROWS, ROWS, 4, 1, 2, 0));
  TRY(nncuda_comm_dispatch_end(ctx, part, y, ROWS, 4, 1, 0));
  TRY(nncuda_comm_collect_begin(ctx, part, y, x, ROWS, ROWS, 4, 1, 0));
  TRY(nncuda_comm_collect_end(ctx, part, y, x, ROWS, ROWS, 4, 1));
  TRY(nncuda_comm_destroy(ctx, comm));
}

/* It has no context, and so no sentence. */
static void schedule(void) {
  int64_t events[6 * 17], count, slots;
  const long before = fault_struck();
  int32_t status = nncuda_expert_schedule(4, 4, 0, 4, 8, -1, events, 17, &count, &slots);
  if (status == NNCUDA_ERROR_OUT_OF_MEMORY && fault_struck() > before) {
    status = nncuda_expert_schedule(4, 4, 0, 4, 8, -1, events, 17, &count, &slots);
  }
  if (status != NNCUDA_SUCCESS || count != 8 + 3 + 6) {
    fail("the schedule of experts", status, NULL);
  }
}

/* Neither have these. */
static void shards(void) {
  int64_t owned[3 * 11], count;
  const int64_t experts[] = {10, 50};
  const long before = fault_struck();
  int32_t status = nncuda_expert_shards(60, 4, 4, 2, experts, 1, owned, 11, &count);
  if (status == NNCUDA_ERROR_OUT_OF_MEMORY && fault_struck() > before) {
    status = nncuda_expert_shards(60, 4, 4, 2, experts, 1, owned, 11, &count);
  }
  if (status != NNCUDA_SUCCESS || count != 11) {
    fail("the shards of experts", status, NULL);
  }
}

/* One of everything that takes memory. */
static void work(void) {
  nncuda_ctx *ctx = NULL;
  TRY(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx));
  TRY(nncuda_ctx_set(ctx, NNCUDA_CTX_THREADS, 3));
  void *blocks[40], *large, *host, *parts;
  for (int i = 0; i < 40; i++) {
    TRY(nncuda_malloc(ctx, 100 * (i + 1), &blocks[i]));
  }
  TRY(nncuda_malloc(ctx, 3 << 20, &large));
  TRY(nncuda_malloc_parts(ctx, 3 << 20, (const int64_t[]){0, 5000, 1 << 20, 2 << 20}, 2, &parts));
  TRY(nncuda_malloc_host(ctx, 5000, &host));
  TRY(nncuda_free(ctx, blocks[7]));
  TRY(nncuda_free_host(ctx, host));
  TRY(nncuda_free(ctx, parts));
  TRY(nncuda_profile_begin(ctx));
  TRY(nncuda_trace_begin(ctx, 4));
  TRY(cuda_silu(ctx, x, y, N, NNCUDA_F32));
  TRY(cuda_grad_norm(ctx, x, z, N, NNCUDA_F32));
  TRY(cuda_topp_sample(ctx, logits, ones, NULL, ones, seeds, steps, ids, ROWS, VOCAB, NNCUDA_F32));
  TRY(cuda_gemm(ctx, x, y, z, 64, 64, 64, 0, 1, NNCUDA_F32, NNCUDA_F32));
  TRY(nncuda_trace_end(ctx));
  TRY(nncuda_profile_end(ctx));
  int64_t needed;
  nncuda_ctx *reference = NULL;
  if (nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &reference) != NNCUDA_SUCCESS) { /* which says nothing on `ctx` */
    TRY(nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &reference));
  }
  TRY(nncuda_trace_begin_shadow(ctx, reference));
  TRY(cuda_silu(ctx, x, y, N, NNCUDA_F32));
  TRY(nncuda_trace_end(ctx));
  TRY(nncuda_ctx_destroy(reference));
  TRY(nncuda_trace_begin_nonfinite(ctx));
  TRY(cuda_silu(ctx, x, y, N, NNCUDA_F32));
  TRY(nncuda_trace_end(ctx));
  search_side_by_side(ctx);
  TRY(nncuda_profile_report(ctx, NNCUDA_REPORT_TABLE, text, sizeof text, &needed));
  TRY(nncuda_profile_report(ctx, NNCUDA_REPORT_JSON, text, sizeof text, &needed));
  if (!fault_struck()) {
    TRY(nncuda_trace_read(ctx, text, sizeof text, &needed));
  }
  nncuda_stream *stream;
  nncuda_event *event;
  TRY(nncuda_stream_create(ctx, &stream));
  TRY(nncuda_event_create(ctx, &event));
  TRY(nncuda_memcpy_async(ctx, stream, z, x, sizeof x, NNCUDA_HOST_TO_DEVICE));
  TRY(nncuda_event_record(ctx, stream, event));
  TRY(nncuda_stream_wait_event(ctx, stream, event));
  TRY(nncuda_event_synchronize(ctx, event));
  if (memcmp(z, x, sizeof x) != 0) {
    fail("the copy", 0, ctx);
  }
  nncuda_graph *graph;
  TRY(nncuda_graph_begin(ctx));
  TRY(cuda_scale(ctx, x, z, N, 2.0f, NNCUDA_F32));
  TRY(nncuda_memcpy(ctx, y, z, sizeof y, NNCUDA_DEVICE_TO_DEVICE));
  const int32_t ended =
      nncuda_graph_end(ctx, &graph); /* asks for nothing: refused, it would leave the context capturing */
  if (ended != NNCUDA_SUCCESS) {
    fail("the end of a capture", ended, ctx);
  }
  TRY(nncuda_graph_launch(ctx, graph));
  if (y[N - 1] != 2.0f * x[N - 1]) {
    fail("the graph", 0, ctx);
  }
  ranks(ctx);
  schedule();
  shards();
  TRY(nncuda_event_destroy(ctx, event));
  TRY(nncuda_stream_destroy(ctx, stream));
  TRY(nncuda_ctx_destroy(ctx));
}

int main(void) {
  for (int i = 0; i < N; i++) {
    x[i] = (float)i / N;
  }
  for (int i = 0; i < ROWS * VOCAB; i++) {
    logits[i] = (float)(i % 97) / 10.0f;
  }
  for (int i = 0; i < ROWS; i++) {
    ones[i] = 1.0f;
  }
  work(); /* so that what libc keeps for itself is there already */
  for (point = 0;; point++) {
    const long before = fault_alive();
    fault_arm(point);
    work();
    if (fault_disarm() == 0) {
      break;
    }
    const long after = fault_alive();
    if (after != before) {
      printf("point %ld: %ld allocations are left over\n", point, after - before);
      return 1;
    }
  }
  printf("%ld points\n", point);
  return 0;
}

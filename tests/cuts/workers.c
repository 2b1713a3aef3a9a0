/*
 * In place of cuda/cpu_device/workers.c in the library nncuda_cuts: one thread plays all the threads of a context, and
 * notes how evenly the tasks of each call keep them busy. So one core shows how the kernels cut their work for 128.
 *
 * A task goes to the thread that is free first, as the real ones take them, and takes as long as it needed on the
 * processor here. Not in it: starting the threads, and what cores take from each other's caches and memory.
 */
#define _GNU_SOURCE
#include "cpu_device/workers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct nn_workers {
  int32_t threads;
  int64_t free_at[]; /* nanoseconds after the call began, of each thread */
};

/* One call that had more than one task, in nanoseconds. tools/cuts.py has the same. */
typedef struct cut {
  int64_t tasks;
  int64_t busy;    /* of all tasks together */
  int64_t span;    /* until the last is done */
  int64_t longest; /* task */
  int64_t here;    /* that it took in truth, one task after the other */
} cut;

static cut *cuts;
static int64_t count, capacity;

/* The processor's time, since a busy machine holds tasks up. */
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Forgets the calls so far. */
EXPORT void nncuda_cuts_begin(void) { count = 0; }

/* The calls since then, the first `most` of them copied; how many there were. */
EXPORT int64_t nncuda_cuts_end(cut *found, int64_t most) {
  const int64_t copied = count < most ? count : most;
  if (copied > 0) {
    memcpy(found, cuts, (size_t)copied * sizeof *cuts);
  }
  return count;
}

static void note(cut one) {
  if (count == capacity) {
    capacity = capacity == 0 ? 1024 : 2 * capacity;
    cuts = realloc(cuts, (size_t)capacity * sizeof *cuts);
    if (cuts == NULL) {
      abort();
    }
  }
  cuts[count++] = one;
}

int32_t nn_workers_default(void) { return 1; }

nn_workers *nn_workers_start(int32_t threads, int32_t nodes) {
  (void)nodes;
  nn_workers *workers = malloc(sizeof *workers + (size_t)threads * sizeof workers->free_at[0]);
  if (workers != NULL) {
    workers->threads = threads;
  }
  return workers;
}

void nn_workers_stop(nn_workers *workers) { free(workers); }

void nn_workers_run(nn_workers *workers, int64_t tasks, nn_task task, void *arg) {
  if (workers == NULL || tasks <= 1) {
    for (int64_t i = 0; i < tasks; i++) {
      task(arg, i, 0);
    }
    return;
  }
  const int64_t entered = now();
  memset(workers->free_at, 0, (size_t)workers->threads * sizeof workers->free_at[0]);
  cut one = {.tasks = tasks};
  for (int64_t i = 0; i < tasks; i++) {
    int32_t first = 0;
    for (int32_t w = 1; w < workers->threads; w++) {
      first = workers->free_at[w] < workers->free_at[first] ? w : first;
    }
    const int64_t began = now();
    task(arg, i, first);
    const int64_t took = now() - began;
    workers->free_at[first] += took;
    one.busy += took;
    one.longest = took > one.longest ? took : one.longest;
    one.span = workers->free_at[first] > one.span ? workers->free_at[first] : one.span;
  }
  one.here = now() - entered;
  note(one);
}

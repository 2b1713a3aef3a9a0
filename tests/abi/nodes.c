/*
 * Worker threads on several memory nodes, which no machine of these tests has: cuda/cpu_device/workers.c with nodes of
 * its own making. Every task is run once, whatever threads, nodes and tasks there are; and where each thread has one,
 * those of a node have that node's part. Prints "ok" at the end.
 */
#define _GNU_SOURCE
#include "cpu_device/nodes.h"
#include "cpu_device/workers.h"
#include "require.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 9, MOST_NODES = 4, MOST_TASKS = 3000, ROUNDS = 30 };

static _Thread_local int32_t node; /* of the calling thread; the caller of a job is on node 0 */

int32_t nn_nodes_here(void) { return node; }
void nn_nodes_bind(int32_t to) { node = to; }

typedef struct job {
  int32_t threads; /* 0, or those that must each have a task before one may end */
  _Atomic int32_t begun;
  _Atomic int32_t times[MOST_TASKS], on[MOST_TASKS];
} job;

static void task(void *arg, int64_t i, int32_t worker) {
  job *const work = arg;
  (void)worker;
  atomic_fetch_add(&work->times[i], 1);
  atomic_store(&work->on[i], node);
  atomic_fetch_add(&work->begun, 1);
  while (atomic_load(&work->begun) < work->threads) {
    sched_yield();
  }
}

int main(void) {
  static job work;
  for (int32_t threads = 1; threads <= MOST_THREADS; threads++) {
    for (int32_t nodes = 1; nodes <= MOST_NODES; nodes++) {
      nn_workers *const workers = nn_workers_start(threads, nodes);
      REQUIRE(workers != NULL);
      for (int round = 0; round < ROUNDS; round++) {
        const int64_t tasks = round % 3 == 0 ? threads : 1 + rand() % MOST_TASKS;
        memset(&work, 0, sizeof work);
        work.threads = round % 3 == 0 ? threads : 0;
        nn_workers_run(workers, tasks, task, &work);
        const int32_t used = nodes < threads ? nodes : threads;
        for (int64_t i = 0; i < tasks; i++) {
          REQUIRE(work.times[i] == 1);
          REQUIRE(work.threads == 0 || work.on[i] == (int32_t)i * used / threads);
        }
      }
      nn_workers_stop(workers);
    }
  }
  puts("ok");
  return 0;
}

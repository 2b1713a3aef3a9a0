#define _GNU_SOURCE
#include "workers.h"

#include "nodes.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * The tasks of a job are an atomic word, `state`: its generation in the upper half, the tasks that nobody has claimed
 * yet in the lower. A thread claims a task by counting the lower half down with compare-and-swap; the generation makes
 * a late thread's attempt on an older job fail. After a claim the job's fields are safe to read, because the publisher
 * returns only when every claimed task has been counted in `finished`. A worker that sleeps or comes late is never
 * waited for: the caller takes what is left. (That is also why a forked child, which has no workers, still computes.)
 *
 * Threads on several memory nodes have a share of the tasks a node, each with a word of its own, and take from the
 * others' when theirs is used up. A share is the same part of all tasks in each job, and the tasks of a kernel or of a
 * copy go along a tensor: so what threads of a node copy is what threads of that node read later, and since the system
 * gives a page where it is first written, it lies there.
 */
typedef struct worker {
  nn_workers *workers;
  pthread_t thread;
  int32_t number, node;
} worker;

typedef struct share {
  _Alignas(64) _Atomic uint64_t state; /* fought over */
  uint32_t end;                        /* of its tasks */
} share;

struct nn_workers {
  /* Separate cache lines: `finished` is written by all, the job is only read. */
  _Alignas(64) _Atomic uint32_t finished;
  _Atomic uint32_t waiting;             /* 1 while the caller sleeps on `finished` */
  _Alignas(64) _Atomic uint32_t signal; /* what sleeping workers wait on */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t published; /* generation of the latest job */
  nn_task task;
  void *arg;
  int64_t first;
  uint32_t total;
  int32_t spins;
  int32_t started;
  int32_t threads, nodes;
  pid_t process;
  worker *worker; /* behind the shares */
  share share[];  /* a node */
};

/*
 * A worker spins about 100 us for the next job before it sleeps: the gap between two calls of a step is shorter, and so
 * is that between two tokens in Python, which is some 50 us. One that sleeps has missed several jobs when it is awake.
 * The caller, which has nothing else to do, spins longer for the last task of its job.
 */
enum { SPIN_NANOSECONDS = 100000, CALLER_SPIN_NANOSECONDS = 500000, SPINS_PER_CLOCK = 32 };

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Runs tasks of a share until none of that generation is unclaimed. */
static void run_share(nn_workers *workers, share *from, uint32_t generation, int32_t number) {
  uint64_t state = atomic_load(&from->state);
  while ((uint32_t)state != 0 && (uint32_t)(state >> 32) == generation) {
    if (!atomic_compare_exchange_weak(&from->state, &state, state - 1)) {
      continue;
    }
    const uint32_t total = workers->total;
    workers->task(workers->arg, workers->first + (int64_t)(from->end - (uint32_t)state), number);
    if (atomic_fetch_add(&workers->finished, 1) + 1 == total && atomic_load(&workers->waiting)) {
      futex_wake(&workers->finished, 1);
    }
    state = atomic_load(&from->state);
  }
}

/* Runs tasks of a job, first those of the thread's node, until none is unclaimed. */
static void run_tasks(nn_workers *workers, uint32_t generation, int32_t number, int32_t node) {
  for (int32_t i = 0; i < workers->nodes; i++) {
    run_share(workers, &workers->share[(node + i) % workers->nodes], generation, number);
  }
}

/* Whether there is a job after that generation, or an end. */
static int has_work(nn_workers *workers, uint32_t generation) {
  return atomic_load(&workers->published) != generation || atomic_load(&workers->stop);
}

static void wait_for_work(nn_workers *workers, uint32_t generation) {
  if (workers->spins) {
    const int64_t end = now_nanoseconds() + SPIN_NANOSECONDS;
    do {
      for (int i = 0; i < SPINS_PER_CLOCK; i++) {
        if (has_work(workers, generation)) {
          return;
        }
        pause_briefly();
      }
    } while (now_nanoseconds() < end);
  }
  atomic_fetch_add(&workers->sleepers, 1);
  const uint32_t signal = atomic_load(&workers->signal);
  /* The caller publishes before it reads `sleepers`; so either we see the work here or it sees us and changes `signal`.
   */
  if (!has_work(workers, generation)) {
    futex_wait(&workers->signal, signal);
  }
  atomic_fetch_sub(&workers->sleepers, 1);
}

static void *worker_main(void *arg) {
  worker *self = arg;
  nn_workers *workers = self->workers;
  if (workers->nodes > 1) {
    nn_nodes_bind(self->node);
  }
  while (!atomic_load(&workers->stop)) {
    const uint32_t generation = atomic_load(&workers->published);
    run_tasks(workers, generation, self->number, self->node);
    wait_for_work(workers, generation);
  }
  return NULL;
}

int32_t nn_workers_default(void) {
  cpu_set_t set;
  int32_t cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    cores = CPU_COUNT(&set);
  } else {
    cores = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  }
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file != NULL) {
    long long quota = 0, period = 0;
    /* "max 100000" means no quota and does not match. */
    if (fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      const long long limit = (quota + period - 1) / period;
      cores = limit < cores ? (int32_t)limit : cores;
    }
    fclose(file);
  }
  return cores < 1 ? 1 : cores > 256 ? 256 : cores;
}

nn_workers *nn_workers_start(int32_t threads, int32_t nodes) {
  nodes = nodes < threads ? nodes : threads;
  const size_t before = sizeof(nn_workers) + (size_t)nodes * sizeof(share);
  const size_t bytes = before + (size_t)threads * sizeof(worker);
  nn_workers *workers = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (workers == NULL) {
    return NULL;
  }
  for (int32_t node = 0; node < nodes; node++) {
    atomic_init(&workers->share[node].state, 0);
  }
  atomic_init(&workers->finished, 0);
  atomic_init(&workers->waiting, 0);
  atomic_init(&workers->signal, 0);
  atomic_init(&workers->sleepers, 0);
  atomic_init(&workers->stop, 0);
  atomic_init(&workers->published, 0);
  workers->total = 0;
  /* With more threads than cores a spinning thread keeps the one it waits for from running. */
  workers->spins = threads <= nn_workers_default();
  workers->started = 0;
  workers->threads = threads;
  workers->nodes = nodes;
  workers->worker = (worker *)((unsigned char *)workers + before);
  workers->process = getpid();
  /* Signals are the host program's: none shall be delivered to our threads. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int32_t i = 0; i < threads - 1; i++) {
    worker *self = &workers->worker[i];
    *self = (worker){.workers = workers, .number = i + 1, .node = (i + 1) * nodes / threads};
    if (pthread_create(&self->thread, NULL, worker_main, self) != 0) {
      break;
    }
    workers->started++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return workers;
}

void nn_workers_stop(nn_workers *workers) {
  if (workers == NULL) {
    return;
  }
  if (workers->process == getpid()) {
    atomic_store(&workers->stop, 1);
    atomic_fetch_add(&workers->signal, 1);
    futex_wake(&workers->signal, workers->started);
    for (int32_t i = 0; i < workers->started; i++) {
      pthread_join(workers->worker[i].thread, NULL);
    }
  }
  free(workers);
}

static void run_job(nn_workers *workers, int64_t first, uint32_t total, nn_task task, void *arg) {
  workers->task = task;
  workers->arg = arg;
  workers->first = first;
  workers->total = total;
  atomic_store(&workers->finished, 0);
  const uint32_t generation = atomic_load(&workers->published) + 1;
  const int32_t nodes = workers->nodes;
  uint32_t begin = 0;
  for (int32_t node = 0; node < nodes; node++) { /* as much as it has threads */
    const int64_t threads = nn_ceil_div((int64_t)(node + 1) * workers->threads, nodes);
    share *const tasks = &workers->share[node];
    tasks->end = (uint32_t)(total * threads / workers->threads);
    atomic_store(&tasks->state, (uint64_t)generation << 32 | (tasks->end - begin));
    begin = tasks->end;
  }
  atomic_store(&workers->published, generation);
  const uint32_t sleepers = atomic_load(&workers->sleepers);
  if (sleepers != 0) {
    atomic_fetch_add(&workers->signal, 1);
    futex_wake(&workers->signal, (int)(sleepers < total - 1 ? sleepers : total - 1));
  }
  run_tasks(workers, generation, 0, nodes > 1 ? nn_nodes_here() % nodes : 0);
  uint32_t finished = atomic_load(&workers->finished);
  if (finished == total) {
    return;
  }
  if (workers->spins) {
    const int64_t end = now_nanoseconds() + CALLER_SPIN_NANOSECONDS;
    do {
      for (int i = 0; i < SPINS_PER_CLOCK; i++) {
        if (atomic_load(&workers->finished) == total) {
          return;
        }
        pause_briefly();
      }
    } while (now_nanoseconds() < end);
  }
  atomic_store(&workers->waiting, 1);
  while ((finished = atomic_load(&workers->finished)) != total) {
    futex_wait(&workers->finished, finished);
  }
  atomic_store(&workers->waiting, 0);
}

void nn_workers_run(nn_workers *workers, int64_t tasks, nn_task task, void *arg) {
  if (workers == NULL || workers->started == 0 || tasks <= 1) {
    for (int64_t i = 0; i < tasks; i++) {
      task(arg, i, 0);
    }
    return;
  }
  const int64_t most = INT32_MAX;
  for (int64_t first = 0; first < tasks; first += most) {
    run_job(workers, first, (uint32_t)(tasks - first < most ? tasks - first : most), task, arg);
  }
}

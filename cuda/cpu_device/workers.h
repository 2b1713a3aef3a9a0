/*
 * The threads of a context. They belong to it alone: they start with the first call that has work for them, spin
 * briefly for more work, then sleep, and end with the context.
 */
#ifndef NN_CPU_DEVICE_WORKERS_H
#define NN_CPU_DEVICE_WORKERS_H

#include "runtime/engine.h"

#include <stdint.h>

typedef struct nn_workers nn_workers;

/* Cores that this process may use: its affinity mask, cut to the quota of its control group. */
int32_t nn_workers_default(void);

/* Starts threads-1 threads; fewer when the system refuses more, which costs speed and nothing else. They are spread
 * over the first `nodes` memory nodes; on one, the system puts them where it likes. Null: no memory. */
nn_workers *nn_workers_start(int32_t threads, int32_t nodes);

/* Ends and joins them. Null is fine. */
void nn_workers_stop(nn_workers *workers);

/* Runs the tasks on the workers and the calling thread, which is worker 0. */
void nn_workers_run(nn_workers *workers, int64_t tasks, nn_task task, void *arg);

#endif

/* Lists of shards: what of an arena belongs to which rank. bindings.h, section comm, has the definitions. */
#ifndef NN_COMM_SHARDS_H
#define NN_COMM_SHARDS_H

#include "runtime/call.h"

#include <stdint.h>

typedef struct nn_owned {
  int64_t begin, end, rank;
  int64_t at; /* elements of this rank before it */
} nn_owned;

/* Fails the call unless shards [count, 3] are in ascending order within `n` elements and of those ranks. */
void nn_shards_check(nn_call *call, int64_t n, int64_t ranks, const int64_t *shards, int64_t count);

/* Whether there is no gap between the first and the last. */
int32_t nn_shards_joined(const int64_t *shards, int64_t count);

/* The same, rank by rank, each rank's in ascending order. */
void nn_shards_by_rank(const int64_t *shards, int64_t count, nn_owned *owned);

#endif

/* How work is shared out over ranks, and in which order sums over replicas are added: the same for any number of
 * ranks. bindings.h, section comm, has the definitions. */
#ifndef NN_COMM_TREE_H
#define NN_COMM_TREE_H

#include <stdint.h>

typedef struct nn_range {
  int64_t begin, end;
} nn_range;

/* nncuda_shard, of arguments that are right. */
nn_range nn_shard(int64_t count, int64_t grain, int64_t parts, int64_t part);

/* nncuda_replica_merges, of arguments that are right. */
int64_t nn_replica_merges(int64_t replicas, int64_t first, int64_t replica);

/* The node of the tree that a node is a child of; an empty range when it is none, or that over all replicas. */
nn_range nn_replica_parent(int64_t replicas, nn_range child);

/* How many sums a rank that computed `own` replicas ends with: those aside and the last. */
int64_t nn_replica_parts(int64_t replicas, nn_range own);

/* A sum that a rank sends in the whole tree's order: rank by rank, oldest first. Tells how to add them up by a stack:
 * after the sum number `at` (from 0) of the rank with the replicas `own`, the last `merges` sums on the stack are added
 * to it. */
int64_t nn_replica_joins(int64_t replicas, nn_range own, int64_t at);

#endif

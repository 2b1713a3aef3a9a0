#include "tree.h"

#include "interface.h"

#include <stddef.h>

nn_range nn_shard(int64_t count, int64_t grain, int64_t parts, int64_t part) {
  const int64_t grains = count / grain + (count % grain != 0);
  const int64_t whole = grains / parts, rest = grains % parts; /* part * grains might overflow */
  const int64_t first = part * whole + (int64_t)((__int128)part * rest / parts);
  const int64_t last = (part + 1) * whole + (int64_t)((__int128)(part + 1) * rest / parts);
  return (nn_range){first >= grains ? count : first * grain, last >= grains ? count : last * grain};
}

/* Where the right child of a node of the tree begins. */
static int64_t middle_of(nn_range node) {
  int64_t half = 1;
  while (half < (node.end - node.begin + 1) / 2) {
    half *= 2;
  }
  return node.begin + half;
}

nn_range nn_replica_parent(int64_t replicas, nn_range child) {
  nn_range node = {0, replicas};
  while (node.end - node.begin > 1 && (node.begin != child.begin || node.end != child.end)) {
    const int64_t middle = middle_of(node);
    const nn_range half = child.begin < middle ? (nn_range){node.begin, middle} : (nn_range){middle, node.end};
    if (half.begin == child.begin && half.end == child.end) {
      return node;
    }
    node = half;
  }
  return (nn_range){0, 0};
}

/* Grows the sum over `node` as long as it is a right child whose left one begins at `first` or later; how often. */
static int64_t grow(int64_t replicas, int64_t first, nn_range *node) {
  int64_t merges = 0;
  for (;;) {
    const nn_range parent = nn_replica_parent(replicas, *node);
    if (parent.end != node->end || parent.begin == node->begin || parent.begin < first) {
      return merges;
    }
    *node = parent;
    merges++;
  }
}

int64_t nn_replica_merges(int64_t replicas, int64_t first, int64_t replica) {
  nn_range node = {replica, replica + 1};
  return grow(replicas, first, &node);
}

/* The sum that a rank with the replicas from `first` on ends with and that begins at `begin`: the largest node there
 * that reaches no further than `end`. */
static nn_range part_at(int64_t replicas, nn_range own, int64_t begin) {
  nn_range node = {0, replicas};
  while (node.begin != begin || node.end > own.end) {
    const int64_t middle = middle_of(node);
    if (begin < middle) {
      node.end = middle;
    } else {
      node.begin = middle;
    }
  }
  return node;
}

int64_t nn_replica_parts(int64_t replicas, nn_range own) {
  int64_t parts = 0;
  for (int64_t begin = own.begin; begin < own.end; begin = part_at(replicas, own, begin).end) {
    parts++;
  }
  return parts;
}

int64_t nn_replica_joins(int64_t replicas, nn_range own, int64_t at) {
  nn_range node = part_at(replicas, own, own.begin);
  for (int64_t i = 0; i < at; i++) {
    node = part_at(replicas, own, node.end);
  }
  return grow(replicas, 0, &node);
}

int32_t nncuda_shard(int64_t count, int64_t grain, int64_t parts, int64_t part, int64_t *begin, int64_t *end) {
  if (begin == NULL || end == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (count < 0) {
    return NNCUDA_ERROR_INVALID_SIZE;
  }
  if (grain < 1 || parts < 1 || part < 0 || part >= parts) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  const nn_range range = nn_shard(count, grain, parts, part);
  *begin = range.begin;
  *end = range.end;
  return NNCUDA_SUCCESS;
}

int32_t nncuda_replica_merges(int64_t replicas, int64_t first, int64_t replica, int64_t *merges) {
  if (merges == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (first < 0 || replica < first || replica >= replicas) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  *merges = nn_replica_merges(replicas, first, replica);
  return NNCUDA_SUCCESS;
}

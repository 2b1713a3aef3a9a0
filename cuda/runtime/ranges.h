/* A set of addresses, as ranges of memory that neither touch nor overlap, in order. */
#ifndef NN_RUNTIME_RANGES_H
#define NN_RUNTIME_RANGES_H

#include <stddef.h>
#include <stdint.h>

typedef struct nn_range {
  uintptr_t begin, end;
} nn_range;

typedef struct nn_ranges {
  nn_range *range;
  size_t count, capacity;
} nn_ranges;

/* Whether there was memory for it. */
int32_t nn_ranges_add(nn_ranges *ranges, const void *data, size_t bytes);
/* Whether there was memory to leave the rest of the ranges in the set; without it, more than the bytes is gone. */
int32_t nn_ranges_remove(nn_ranges *ranges, const void *data, size_t bytes);
/* Whether any of the bytes is in the set, and whether all of them are. */
int32_t nn_ranges_meet(const nn_ranges *ranges, const void *data, size_t bytes);
int32_t nn_ranges_cover(const nn_ranges *ranges, const void *data, size_t bytes);
void nn_ranges_release(nn_ranges *ranges);

#endif

#include "ranges.h"

#include <stdlib.h>
#include <string.h>

/* The first range that ends at `address` or after it. */
static size_t first_behind(const nn_ranges *ranges, uintptr_t address) {
  size_t low = 0, high = ranges->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (ranges->range[middle].end < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Room for one more. */
static int32_t reserve(nn_ranges *ranges) {
  if (ranges->count < ranges->capacity) {
    return 1;
  }
  const size_t capacity = ranges->capacity == 0 ? 64 : 2 * ranges->capacity;
  nn_range *grown = realloc(ranges->range, capacity * sizeof *grown);
  if (grown == NULL) {
    return 0;
  }
  ranges->range = grown;
  ranges->capacity = capacity;
  return 1;
}

int32_t nn_ranges_add(nn_ranges *ranges, const void *data, size_t bytes) {
  nn_range added = {(uintptr_t)data, (uintptr_t)data + bytes};
  const size_t from = first_behind(ranges, added.begin);
  size_t to = from; /* ranges that touch it are merged into it */
  for (; to < ranges->count && ranges->range[to].begin <= added.end; to++) {
    added.begin = ranges->range[to].begin < added.begin ? ranges->range[to].begin : added.begin;
    added.end = ranges->range[to].end > added.end ? ranges->range[to].end : added.end;
  }
  if (from == to && !reserve(ranges)) {
    return 0;
  }
  memmove(ranges->range + from + 1, ranges->range + to, (ranges->count - to) * sizeof added);
  ranges->range[from] = added;
  ranges->count = ranges->count - (to - from) + 1;
  return 1;
}

int32_t nn_ranges_remove(nn_ranges *ranges, const void *data, size_t bytes) {
  const uintptr_t begin = (uintptr_t)data, end = begin + bytes;
  const size_t from = first_behind(ranges, begin + 1);
  size_t to = from;
  while (to < ranges->count && ranges->range[to].begin < end) {
    to++;
  }
  if (from == to || bytes == 0) {
    return 1;
  }
  nn_range rest[2]; /* of the first range that it meets, and of the last */
  size_t rests = 0;
  if (ranges->range[from].begin < begin) {
    rest[rests++] = (nn_range){ranges->range[from].begin, begin};
  }
  if (end < ranges->range[to - 1].end) {
    rest[rests++] = (nn_range){end, ranges->range[to - 1].end};
  }
  const int32_t kept = rests <= to - from || reserve(ranges);
  rests -= !kept;
  memmove(ranges->range + from + rests, ranges->range + to, (ranges->count - to) * sizeof *rest);
  memcpy(ranges->range + from, rest, rests * sizeof *rest);
  ranges->count = ranges->count - (to - from) + rests;
  return kept;
}

int32_t nn_ranges_meet(const nn_ranges *ranges, const void *data, size_t bytes) {
  const size_t i = first_behind(ranges, (uintptr_t)data + 1);
  return i < ranges->count && ranges->range[i].begin < (uintptr_t)data + bytes;
}

int32_t nn_ranges_cover(const nn_ranges *ranges, const void *data, size_t bytes) {
  const size_t i = first_behind(ranges, (uintptr_t)data + 1);
  return i < ranges->count && ranges->range[i].begin <= (uintptr_t)data &&
         (uintptr_t)data + bytes <= ranges->range[i].end;
}

void nn_ranges_release(nn_ranges *ranges) {
  free(ranges->range);
  *ranges = (nn_ranges){NULL, 0, 0};
}

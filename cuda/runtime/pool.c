#include "pool.h"

#include "poison.h"

#include <stdlib.h>

/* Freed memory is kept while everything together stays below the highest use plus a quarter plus this. */
static const size_t slack = (size_t)64 << 20;

/* Tells the sanitizer that memory is (`off`) out of use, or in use again. */
static void watch(const nn_pool *pool, const void *memory, size_t bytes, int32_t off) {
  if (!pool->source->visible) {
    return;
  }
  if (off) {
    nn_poison(memory, bytes);
  } else {
    nn_unpoison(memory, bytes);
  }
}

/* Eight classes a doubling, at least 256 bytes apart: at most an eighth is wasted. In host memory its pages are never
 * touched; a device gives pages at once, so there large blocks are as large as asked for and differ within a class. */
static size_t class_of(const nn_pool *pool, size_t bytes, size_t *capacity) {
  const size_t large = (size_t)16 << 20, grain = (size_t)2 << 20, last = bytes - 1;
  size_t step = NN_MEMORY_ALIGNMENT, doubling = 0;
  while (last / step >= 16) {
    step *= 2;
    doubling++;
  }
  *capacity = (last / step + 1) * step;
  if (!pool->source->lazy && bytes > large) {
    *capacity = (last / grain + 1) * grain;
  }
  return doubling * 8 + last / step;
}

static void block_free(nn_pool *pool, nn_block *block) {
  if (block->span != 0) {
    pool->source->give_parts(pool->ctx, block->memory, block->span, block->parts, block->part_count);
    free(block->parts);
  } else {
    watch(pool, block->memory, block->capacity, 0);
    pool->source->give(pool->ctx, block->memory, block->capacity);
  }
  free(block);
}

void nn_pool_trim(nn_pool *pool, size_t keep) {
  for (size_t i = NN_POOL_CLASSES; i-- > 0 && pool->pooled > keep;) {
    while (pool->free[i] != NULL && pool->pooled > keep) {
      nn_block *block = pool->free[i];
      pool->free[i] = block->next;
      pool->pooled -= block->capacity;
      block_free(pool, block);
    }
  }
}

/* What is asked of the source: memory, or memory in parts. */
typedef struct order {
  size_t capacity; /* of memory */
  size_t span;     /* addresses of memory in parts, else 0 */
  int64_t *parts;
  int64_t count;
} order;

static void *take_from_source(const nn_pool *pool, const order *o) {
  return o->span != 0 ? pool->source->take_parts(pool->ctx, o->span, o->parts, o->count)
                      : pool->source->take(pool->ctx, o->capacity);
}

static nn_block *block_make(nn_pool *pool, const order *o) {
  const size_t bound = pool->highest + pool->highest / 4 + slack, rest = pool->capacity + o->capacity;
  nn_pool_trim(pool, rest < bound ? bound - rest : 0);
  nn_block *block = malloc(sizeof *block);
  if (block == NULL) {
    return NULL;
  }
  block->memory = take_from_source(pool, o);
  if (block->memory == NULL && pool->pooled != 0) {
    nn_pool_trim(pool, 0);
    block->memory = take_from_source(pool, o);
  }
  if (block->memory == NULL) {
    free(block);
    return NULL;
  }
  block->capacity = o->capacity;
  block->span = o->span;
  block->parts = o->parts;
  block->part_count = o->count;
  return block;
}

/* Makes it a live one. */
static void *block_use(nn_pool *pool, nn_block *block, size_t bytes) {
  block->bytes = bytes;
  nn_table_put(&pool->live, block->memory, block);
  pool->used += bytes;
  pool->capacity += block->capacity;
  pool->highest = pool->capacity > pool->highest ? pool->capacity : pool->highest;
  return block->memory;
}

void *nn_pool_take(nn_pool *pool, size_t bytes) {
  if (bytes > SIZE_MAX / 4 || !nn_table_reserve(&pool->live)) {
    return NULL;
  }
  size_t capacity;
  const size_t index = class_of(pool, bytes, &capacity);
  nn_block **place = &pool->free[index];
  while (*place != NULL && (*place)->capacity < capacity) {
    place = &(*place)->next;
  }
  nn_block *block = *place;
  if (block != NULL) {
    *place = block->next;
    pool->pooled -= block->capacity;
    watch(pool, block->memory, bytes, 0);
  } else {
    block = block_make(pool, &(order){.capacity = capacity});
    if (block == NULL) {
      return NULL;
    }
    watch(pool, (char *)block->memory + bytes, capacity - bytes, 1);
  }
  return block_use(pool, block, bytes);
}

/* The parts that ranges become: rounded out to `grain`, and joined where they then touch. How many there are. */
static int64_t join(const int64_t *ranges, int64_t count, int64_t grain, int64_t *parts) {
  int64_t joined = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t begin = ranges[2 * i] / grain * grain, end = (ranges[2 * i + 1] + grain - 1) / grain * grain;
    if (ranges[2 * i] == ranges[2 * i + 1]) {
      continue;
    }
    if (joined > 0 && begin <= parts[2 * joined - 1]) {
      parts[2 * joined - 1] = end;
      continue;
    }
    parts[2 * joined] = begin;
    parts[2 * joined + 1] = end;
    joined++;
  }
  return joined;
}

static size_t size_of(const int64_t *ranges, int64_t count) {
  size_t bytes = 0;
  for (int64_t i = 0; i < count; i++) {
    bytes += (size_t)(ranges[2 * i + 1] - ranges[2 * i]);
  }
  return bytes;
}

void *nn_pool_take_parts(nn_pool *pool, size_t bytes, const int64_t *ranges, int64_t count) {
  if (bytes > SIZE_MAX / 4 || !nn_table_reserve(&pool->live)) {
    return NULL;
  }
  int64_t *parts = calloc((size_t)count + 1, 2 * sizeof *parts);
  if (parts == NULL) {
    return NULL;
  }
  const int64_t joined = join(ranges, count, pool->source->grain, parts);
  nn_block *block = block_make(pool, &(order){size_of(parts, joined), bytes, parts, joined});
  if (block == NULL) {
    free(parts);
    return NULL;
  }
  return block_use(pool, block, size_of(ranges, count));
}

size_t nn_block_span(const nn_block *block) { return block->span != 0 ? block->span : block->bytes; }

int32_t nn_pool_holds(const nn_pool *pool, const void *address) {
  for (size_t i = 0; i < pool->live.capacity; i++) {
    const uintptr_t first = (uintptr_t)pool->live.entries[i].key;
    const nn_block *block = pool->live.entries[i].value;
    if (first != 0 && (uintptr_t)address - first < (block->span != 0 ? block->span : block->capacity)) {
      return 1;
    }
  }
  return 0;
}

nn_block *nn_pool_find(const nn_pool *pool, const void *memory) { return nn_table_get(&pool->live, memory); }

void nn_pool_give(nn_pool *pool, nn_block *block) {
  nn_table_remove(&pool->live, block->memory);
  pool->used -= block->bytes;
  pool->capacity -= block->capacity;
  if (block->span != 0) { /* nobody will ask for the same parts again */
    block_free(pool, block);
    return;
  }
  pool->pooled += block->capacity;
  watch(pool, block->memory, block->capacity, 1);
  size_t capacity;
  const size_t index = class_of(pool, block->capacity, &capacity);
  block->next = pool->free[index];
  pool->free[index] = block;
}

void nn_pool_release(nn_pool *pool) {
  nn_pool_trim(pool, 0);
  for (size_t i = 0; i < pool->live.capacity; i++) {
    if (pool->live.entries[i].key != NULL) {
      block_free(pool, pool->live.entries[i].value);
    }
  }
  nn_table_release(&pool->live);
}

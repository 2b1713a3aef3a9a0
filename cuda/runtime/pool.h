/*
 * Buffers of a context. A freed buffer is kept by its size class and given out again, so that a steady sequence of
 * allocations costs neither system calls nor page faults.
 */
#ifndef NN_RUNTIME_POOL_H
#define NN_RUNTIME_POOL_H

#include "device.h"
#include "table.h"

#include <stddef.h>
#include <stdint.h>

enum { NN_POOL_CLASSES = 512 };

typedef struct nn_block {
  void *memory;
  size_t bytes;    /* asked for */
  size_t capacity; /* of its class */
  size_t span;     /* addresses, of which `bytes` are memory, where it has parts; else 0 */
  int64_t *parts;  /* [part_count, 2], which ones: rounded out and joined */
  int64_t part_count;
  struct nn_block *next;
} nn_block;

typedef struct nn_pool {
  nncuda_ctx *ctx;
  const nn_memory *source;
  nn_table live; /* address -> nn_block */
  nn_block *free[NN_POOL_CLASSES];
  size_t used;     /* bytes asked for and not freed */
  size_t capacity; /* what the live blocks occupy */
  size_t highest;  /* the most that `capacity` ever was */
  size_t pooled;   /* what the freed blocks occupy */
} nn_pool;

/* Null when there is no memory. `bytes` > 0. */
void *nn_pool_take(nn_pool *pool, size_t bytes);
/* Memory in parts (device.h), which the source must have, and of which only the ranges count. */
void *nn_pool_take_parts(nn_pool *pool, size_t bytes, const int64_t *ranges, int64_t count);
/* The live block at this address, or null. */
nn_block *nn_pool_find(const nn_pool *pool, const void *memory);
/* Addresses that belong to a block. */
size_t nn_block_span(const nn_block *block);
/* Whether the address lies in a live block. */
int32_t nn_pool_holds(const nn_pool *pool, const void *address);
void nn_pool_give(nn_pool *pool, nn_block *block);
/* Returns freed blocks to the system, largest first, until at most `keep` bytes of them are left. */
void nn_pool_trim(nn_pool *pool, size_t keep);
/* Frees everything, live blocks included. */
void nn_pool_release(nn_pool *pool);

#endif

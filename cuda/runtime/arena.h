/*
 * Scratch memory of a context. A kernel takes pieces; all are given back at once when it returns. What did not fit into
 * the one chunk of the arena came from extra chunks; the next kernel finds a single chunk that holds as much as they
 * did, so that a steady sequence of calls allocates nothing.
 */
#ifndef NN_RUNTIME_ARENA_H
#define NN_RUNTIME_ARENA_H

#include "device.h"

#include <stddef.h>
#include <stdint.h>

typedef struct nn_arena_chunk nn_arena_chunk;

typedef struct nn_arena {
  nncuda_ctx *ctx;
  const nn_memory *source;
  int32_t lasting;        /* no piece is ever given back: a graph of the device continues using them */
  nn_arena_chunk *chunks; /* newest first */
  size_t taken;           /* bytes given out since the last reset */
  size_t wanted;          /* capacity of the next first chunk */
  size_t capacity;        /* of all chunks */
} nn_arena;

/* Null when there is no memory. */
void *nn_arena_take(nn_arena *arena, size_t bytes);
void nn_arena_reset(nn_arena *arena);
void nn_arena_release(nn_arena *arena);

#endif

/*
 * Memory for the workspaces of a context's calls, one after the other: a piece that grows when a call needs more, so
 * that a steady sequence of calls allocates nothing.
 */
#ifndef NN_RUNTIME_ARENA_H
#define NN_RUNTIME_ARENA_H

#include "device.h"

#include <stddef.h>
#include <stdint.h>

typedef struct nn_arena {
  nncuda_ctx *ctx;
  const nn_memory *source;
  void *memory; /* null when capacity is 0 */
  size_t capacity;
} nn_arena;

/* At least `bytes` > 0 of memory, in place of what was given before. Null when there is none. */
void *nn_arena_take(nn_arena *arena, size_t bytes);
void nn_arena_release(nn_arena *arena);

#endif

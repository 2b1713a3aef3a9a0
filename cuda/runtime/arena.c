#include "arena.h"

#include "poison.h"

#include <stdint.h>
#include <stdlib.h>

struct nn_arena_chunk {
  nn_arena_chunk *next;
  unsigned char *memory;
  size_t capacity;
  size_t used;
};

/* Chunks are whole multiples of this, so that slowly growing demands do not make a new chunk each time. */
enum { GRAIN = 1 << 18 };

static nn_arena_chunk *chunk_add(nn_arena *arena, size_t capacity) {
  nn_arena_chunk *chunk = malloc(sizeof *chunk);
  if (chunk == NULL) {
    return NULL;
  }
  chunk->memory = arena->source->take(arena->ctx, capacity);
  if (chunk->memory == NULL) {
    free(chunk);
    return NULL;
  }
  if (arena->source->visible) {
    nn_poison(chunk->memory, capacity);
  }
  chunk->capacity = capacity;
  chunk->used = 0;
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  arena->capacity += capacity;
  return chunk;
}

void *nn_arena_take(nn_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    return NULL;
  }
  const size_t asked = bytes;
  const size_t alignment = arena->source->alignment;
  bytes += NN_ADDRESS_SANITIZER ? alignment : 0; /* a gap that only the sanitizer sees */
  bytes = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  nn_arena_chunk *chunk = arena->chunks;
  if (chunk == NULL || chunk->capacity - chunk->used < bytes) {
    const size_t capacity = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    chunk = chunk == NULL && arena->wanted > capacity ? chunk_add(arena, arena->wanted) : NULL;
    if (chunk == NULL) {
      chunk = chunk_add(arena, capacity);
    }
    if (chunk == NULL) {
      return NULL;
    }
  }
  void *piece = chunk->memory + chunk->used;
  if (arena->source->visible) {
    nn_unpoison(piece, asked);
  }
  chunk->used += bytes;
  arena->taken += bytes;
  return piece;
}

void nn_arena_reset(nn_arena *arena) {
  if (arena->lasting) {
    for (nn_arena_chunk *chunk = arena->chunks; chunk != NULL; chunk = chunk->next) {
      chunk->used = 0;
    }
  } else if (arena->chunks != NULL && arena->chunks->next != NULL) {
    const size_t wanted = (arena->taken + GRAIN - 1) / GRAIN * GRAIN;
    nn_arena_release(arena);
    arena->wanted = wanted;
  } else if (arena->chunks != NULL) {
    arena->chunks->used = 0;
    if (arena->source->visible) {
      nn_poison(arena->chunks->memory, arena->chunks->capacity);
    }
  }
  arena->taken = 0;
}

void nn_arena_release(nn_arena *arena) {
  while (arena->chunks != NULL) {
    nn_arena_chunk *chunk = arena->chunks;
    arena->chunks = chunk->next;
    if (arena->source->visible) {
      nn_unpoison(chunk->memory, chunk->capacity);
    }
    arena->source->give(arena->ctx, chunk->memory, chunk->capacity);
    free(chunk);
  }
  arena->capacity = 0;
  arena->wanted = 0;
}

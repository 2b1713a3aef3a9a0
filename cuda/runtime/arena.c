#include "arena.h"

#include "poison.h"

/* Capacities are whole multiples of this, so that slowly growing demands do not take new memory each time. */
enum { GRAIN = 1 << 18 };

void *nn_arena_take(nn_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    return NULL;
  }
  if (bytes > arena->capacity) {
    nn_arena_release(arena); /* first, so that the two need not fit side by side */
    const size_t capacity = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    arena->memory = arena->source->take(arena->ctx, capacity);
    if (arena->memory == NULL) {
      return NULL;
    }
    arena->capacity = capacity;
  }
  if (arena->source->visible) {
    nn_poison(arena->memory, arena->capacity); /* but for the pieces: nn_workspace_take */
  }
  return arena->memory;
}

void nn_arena_release(nn_arena *arena) {
  if (arena->memory != NULL) {
    if (arena->source->visible) {
      nn_unpoison(arena->memory, arena->capacity);
    }
    arena->source->give(arena->ctx, arena->memory, arena->capacity);
  }
  arena->memory = NULL;
  arena->capacity = 0;
}

/*
 * Digests of memory. Sums of whole numbers do not hang on their order, so tasks add theirs to the result as they end.
 */
#include "kernel.h"

#include "abi/generated/digest.h"
#include "numbers/digest.h"

#include <string.h>

enum { CHUNK = 1 << 14 }; /* elements a task */

/* The digest of elements that lie `width` bytes apart, a constant where it is called; of any alignment. */
NN_INLINE nn_digest_sums digest_of(const unsigned char *x, int64_t count, uint64_t index, int32_t width) {
  nn_digest_sums sums = {0, 0};
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = 0; /* of a machine whose numbers begin with their low byte */
    memcpy(&bits, x + i * width, (size_t)width);
    nn_digest_add(&sums, index + (uint64_t)i, bits);
  }
  return sums;
}

NN_TASK_OF(digest_task, nn_digest_args, a, piece) {
  const int64_t begin = piece * CHUNK, count = nn_min(a->n - begin, CHUNK);
  const unsigned char *x = (const unsigned char *)a->x + begin * a->width;
  const uint64_t index = (uint64_t)a->first + (uint64_t)begin;
  const nn_digest_sums sums = a->width == 4   ? digest_of(x, count, index, 4)
                              : a->width == 2 ? digest_of(x, count, index, 2)
                                              : digest_of(x, count, index, 1);
  __atomic_fetch_add((uint64_t *)&a->sums[0], sums.first, __ATOMIC_RELAXED);
  __atomic_fetch_add((uint64_t *)&a->sums[1], sums.second, __ATOMIC_RELAXED);
}

int32_t NN_KERNEL(digest)(nncuda_ctx *ctx, const void *args) {
  nn_digest_args a = *(const nn_digest_args *)args;
  nn_parallel(ctx, nn_ceil_div(a.n, CHUNK), digest_task, &a);
  return NNCUDA_SUCCESS;
}

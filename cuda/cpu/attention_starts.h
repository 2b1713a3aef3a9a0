/* The first keys that the queries of packed sequences see: `starts` of flash_attention, of q_len = kv_len queries. */
#ifndef NN_CPU_ATTENTION_STARTS_H
#define NN_CPU_ATTENTION_STARTS_H

#include "kernel.h"

/* Starts may be null. Query t sees its own key, and documents follow each other: kernels find who sees a block of keys
 * by its ends alone. */
static __attribute__((unused)) int32_t check_starts(nncuda_ctx *ctx, const int32_t *starts, int64_t batch,
                                                    int64_t length) {
  for (int64_t i = 0; starts && i < batch * length; i++) {
    const int64_t t = i % length;
    const int32_t least = t == 0 ? 0 : starts[i - 1];
    if (starts[i] < least || starts[i] > t) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                     "starts[%lld] is %d; it must be %d to %lld, never falling, and at "
                     "most the query's place in its sequence",
                     (long long)i, starts[i], least, (long long)t);
    }
  }
  return NNCUDA_SUCCESS;
}

/* Of `keys` keys from `key` on, how many lie before the document of query r; `starts` are those of the block's queries,
 * or null. */
NN_INLINE int64_t keys_before(const int32_t *starts, int64_t r, int64_t key, int64_t keys) {
  return starts ? nn_max(0, nn_min(keys, starts[r] - key)) : 0;
}

/* The first of `rows` queries that sees no key below `end`, or `rows`. */
NN_INLINE int64_t rows_before(const int32_t *starts, int64_t rows, int64_t end) {
  int64_t low = 0, high = rows;
  while (starts && low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (starts[middle] < end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return high;
}

#endif

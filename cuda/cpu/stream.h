/*
 * Stores that bypass the caches, and prefetching. Each number was measured; they are side by side here, since they are
 * about the same memory.
 */
#ifndef NN_CPU_STREAM_H
#define NN_CPU_STREAM_H

#include "kernel.h"

/* Outputs of at least so many bytes are stored past the caches. */
enum {
  /* It does not fit into them beside what is read: half as much again as plain stores at 64 MB, no difference at 16. */
  NN_STREAM_BYTES = 32 << 20,
  /* Of a product: reading C in before it is written would be a good part of the time. */
  NN_STREAM_BYTES_PRODUCT = 16 << 20,
  /* Of a norm, sooner than elsewhere: what reads it next is a product, which has enough to compute to hide where its
   * input comes from. Forward and backward of 2048 x 768: 2.0 ms instead of 3.1 when the output is in no cache
   * beforehand, 1.6 instead of 1.3 when it is in the last one. */
  NN_STREAM_BYTES_NORM = 4 << 20
};

/* How far ahead memory that is in no cache is fetched. */
enum {
  NN_FETCH_BYTES = 1024, /* AdamW, with four arrays at once, gains a tenth */
  NN_FETCH_ROWS = 2      /* of a norm: a tenth of the time */
};

/* Bytes that a task copies, roughly. */
enum { NN_COPY_BYTES = 1 << 16 };

/* Whether an output of n elements that overlaps no input is worth storing past the caches; `bytes` is one of the sizes
 * above. */
NN_PLAIN NN_INLINE int32_t nn_worth_streaming_from(int64_t bytes, int64_t n, int32_t dtype) {
  return n >= bytes / nn_dtype_bytes(dtype);
}

NN_INLINE int32_t nn_worth_streaming(int64_t n, int32_t dtype) {
  return nn_worth_streaming_from(NN_STREAM_BYTES, n, dtype);
}

/* Asks for the lines of n elements that are needed soon, so that reading them overlaps with other work. They need not
 * exist. */
NN_INLINE void nn_fetch(const void *x, int64_t at, int64_t n, int32_t dtype) {
  const uintptr_t p = (uintptr_t)x + (uintptr_t)(at * nn_dtype_bytes(dtype));
  for (uintptr_t i = 0; i < (uintptr_t)(n * nn_dtype_bytes(dtype)); i += 64) {
    __builtin_prefetch((const void *)(p + i), 0, 2);
  }
}

#endif

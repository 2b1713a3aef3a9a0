/*
 * Loops over a run of elements: whole vectors, the odd elements at the ends, and stores past the caches. For work where
 * each element stands alone, so that the bits do not depend on where in memory a run begins.
 */
#ifndef NN_CPU_SPAN_H
#define NN_CPU_SPAN_H

#include "stream.h"

/* How a vector of a run is loaded and stored: whole, whole and past the caches, or the first n lanes. */
enum { NN_WHOLE, NN_STREAM, NN_PART };

/* Elements a task of elementwise work: fixed, so that the pieces do not depend on the number of threads. */
enum { NN_CHUNK = 1 << 14 };

/* Rows of a task, for work row by row. */
NN_PLAIN NN_INLINE int64_t nn_rows_per_task(int64_t cols) { return cols < NN_CHUNK ? NN_CHUNK / cols : 1; }

/* First row of a task of `block` rows, and how many it has. */
NN_INLINE int64_t nn_first_row(int64_t task, int64_t block, int64_t rows, int64_t *count) {
  const int64_t row = task * block;
  *count = nn_min(rows - row, block);
  return row;
}

NN_INLINE vf nn_get(const void *p, int64_t i, int64_t n, int32_t dtype, int32_t mode) {
  return mode == NN_PART ? vf_load_part_as(p, i, n, dtype) : vf_load_as(p, i, dtype);
}

NN_INLINE void nn_put(void *p, int64_t i, int64_t n, vf x, int32_t dtype, int32_t mode) {
  if (mode == NN_PART) {
    vf_store_part_as(p, i, n, x, dtype);
  } else if (mode == NN_STREAM) {
    vf_stream_as(p, i, x, dtype);
  } else {
    vf_store_as(p, i, x, dtype);
  }
}

/*
 * Runs `statement` for the elements begin .. end-1, a vector at a time: it sees `i`, the first element, `lanes`, how
 * many, and MODE, a constant, for nn_get and nn_put. With `stream`, whole vectors begin `head` elements in (see
 * nn_stream_head).
 */
#define NN_EACH_VECTOR(begin, end, stream, head, statement)                                                            \
  do {                                                                                                                 \
    const int64_t end_ = (end), first_ = (stream) ? (begin) + (head) : (begin);                                        \
    int64_t i = (begin);                                                                                               \
    while (i < first_ && i < end_) {                                                                                   \
      enum { MODE = NN_PART };                                                                                         \
      const int64_t left_ = (nn_min(first_, end_)) - i, lanes = nn_min(left_, VF);                                     \
      statement;                                                                                                       \
      i += lanes;                                                                                                      \
    }                                                                                                                  \
    if (stream) {                                                                                                      \
      for (; i + VF <= end_; i += VF) {                                                                                \
        enum { MODE = NN_STREAM, lanes = VF };                                                                         \
        statement;                                                                                                     \
      }                                                                                                                \
    } else {                                                                                                           \
      for (; i + VF <= end_; i += VF) {                                                                                \
        enum { MODE = NN_WHOLE, lanes = VF };                                                                          \
        statement;                                                                                                     \
      }                                                                                                                \
    }                                                                                                                  \
    if (i < end_) {                                                                                                    \
      enum { MODE = NN_PART };                                                                                         \
      const int64_t lanes = end_ - i;                                                                                  \
      statement;                                                                                                       \
    }                                                                                                                  \
  } while (0)

#endif

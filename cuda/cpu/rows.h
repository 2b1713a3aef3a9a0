/* What kernels that work row by row share: how rows are cut into tasks, and sums along a row. */
#ifndef NN_CPU_ROWS_H
#define NN_CPU_ROWS_H

#include "span.h"

/* Vectors that are summed side by side, so that one sum need not wait for the other. */
enum { NN_GROUP = 4 };

NN_PLAIN NN_INLINE int64_t nn_rows_per_task(int64_t cols) { return cols < NN_CHUNK ? NN_CHUNK / cols : 1; }

/* First row of a task of `block` rows, and how many it has. */
NN_INLINE int64_t nn_first_row(int64_t task, int64_t block, int64_t rows, int64_t *count) {
  const int64_t row = task * block;
  *count = rows - row < block ? rows - row : block;
  return row;
}

/* Asks for the lines of n elements that are needed soon, so that reading them overlaps with other work. They need not
 * exist. */
NN_INLINE void nn_fetch(const void *x, int64_t at, int64_t n, int32_t dtype) {
  const uintptr_t p = (uintptr_t)x + (uintptr_t)(at * nn_dtype_bytes(dtype));
  for (uintptr_t i = 0; i < (uintptr_t)(n * nn_dtype_bytes(dtype)); i += 64) {
    __builtin_prefetch((const void *)(p + i), 0, 2);
  }
}

NN_INLINE float nn_group_sum(const vf part[NN_GROUP]) { return vf_sum((part[0] + part[1]) + (part[2] + part[3])); }

/* The sum of a[i] * b[i] over the n elements from element `at_a` of a and `at_b` of b. */
NN_INLINE float nn_dot(const void *a, int64_t at_a, int32_t dtype_a, const void *b, int64_t at_b, int32_t dtype_b,
                       int64_t n) {
  vf part[NN_GROUP];
  for (int g = 0; g < NN_GROUP; g++) {
    part[g] = vf_set1(0.0f);
  }
  int64_t i = 0;
  for (; i + NN_GROUP * VF <= n; i += NN_GROUP * VF) {
    for (int g = 0; g < NN_GROUP; g++) {
      const vf x = vf_load_as(a, at_a + i + g * VF, dtype_a), y = vf_load_as(b, at_b + i + g * VF, dtype_b);
      part[g] = vf_fma(x, y, part[g]);
    }
  }
  for (int g = 0; i < n; i += VF, g++) {
    const int64_t left = n - i < VF ? n - i : VF;
    const vf x = vf_load_part_as(a, at_a + i, left, dtype_a), y = vf_load_part_as(b, at_b + i, left, dtype_b);
    part[g] = vf_fma(x, y, part[g]);
  }
  return nn_group_sum(part);
}

#endif

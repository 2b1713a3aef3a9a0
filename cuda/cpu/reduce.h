/* Reductions of a run of elements, in an order that depends on its length alone. */
#ifndef NN_CPU_REDUCE_H
#define NN_CPU_REDUCE_H

#include "kernel.h"

/* Vectors that are summed side by side, so that one sum need not wait for the other. */
enum { NN_GROUP = 4 };

/* Largest of elements begin .. end-1; NaN does not count; -inf when nothing does. */
NN_INLINE float nn_maximum(const void *x, int64_t begin, int64_t end, int32_t dtype) {
  vf m[4]; /* so that one comparison need not wait for the one before */
  m[0] = m[1] = m[2] = m[3] = vf_set1(-INFINITY);
  int64_t i = begin;
  for (; i + 4 * VF <= end; i += 4 * VF) {
    for (int j = 0; j < 4; j++) {
      m[j] = vf_max(vf_load_as(x, i + j * VF, dtype), m[j]);
    }
  }
  for (; i + VF <= end; i += VF) {
    m[0] = vf_max(vf_load_as(x, i, dtype), m[0]);
  }
  if (i < end) {
    m[1] = vf_max(vf_keep_part(vf_load_part_as(x, i, end - i, dtype), end - i, -INFINITY), m[1]);
  }
  return vf_maximum(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
}

/* Sum of exp(x - shift) over elements begin .. end-1; of those that are not NaN, with `numbers`. */
NN_INLINE float nn_exp_sum(const void *x, int64_t begin, int64_t end, float shift, int32_t numbers, int32_t dtype) {
  const vf m = vf_set1(shift), nothing = vf_set1(-INFINITY);
  vf s[4];
  s[0] = s[1] = s[2] = s[3] = vf_set1(0.0f);
  int64_t i = begin;
  for (; i + 4 * VF <= end; i += 4 * VF) {
    for (int j = 0; j < 4; j++) {
      const vf v = vf_load_as(x, i + j * VF, dtype);
      s[j] = vf_add(s[j], vf_exp(vf_sub(numbers ? vf_max(v, nothing) : v, m)));
    }
  }
  for (; i + VF <= end; i += VF) {
    const vf v = vf_load_as(x, i, dtype);
    s[0] = vf_add(s[0], vf_exp(vf_sub(numbers ? vf_max(v, nothing) : v, m)));
  }
  if (i < end) {
    const vf v = vf_keep_part(vf_load_part_as(x, i, end - i, dtype), end - i, -INFINITY);
    s[1] = vf_add(s[1], vf_exp(vf_sub(numbers ? vf_max(v, nothing) : v, m)));
  }
  return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

/* Sum of n f32, in f64. */
NN_INLINE double nn_sum_f64(const float *x, int64_t n) {
  vd s[4];
  s[0] = s[1] = s[2] = s[3] = vd_set1(0.0);
  int64_t i = 0;
  for (; i + 2 * VF <= n; i += 2 * VF) {
    const vf a = vf_load(x + i), b = vf_load(x + i + VF);
    s[0] = vd_add(s[0], vd_low(a));
    s[1] = vd_add(s[1], vd_high(a));
    s[2] = vd_add(s[2], vd_low(b));
    s[3] = vd_add(s[3], vd_high(b));
  }
  double sum = vd_sum(vd_add(vd_add(s[0], s[1]), vd_add(s[2], s[3])));
  for (; i < n; i++) {
    sum += (double)x[i];
  }
  return sum;
}

NN_INLINE float nn_group_sum(const vf part[NN_GROUP]) {
  return vf_sum(vf_add(vf_add(part[0], part[1]), vf_add(part[2], part[3])));
}

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
    const int64_t left = nn_min(VF, n - i);
    const vf x = vf_load_part_as(a, at_a + i, left, dtype_a), y = vf_load_part_as(b, at_b + i, left, dtype_b);
    part[g] = vf_fma(x, y, part[g]);
  }
  return nn_group_sum(part);
}

#endif

/* Reductions of a run of elements, in an order that depends on its length alone. */
#ifndef NN_CPU_REDUCE_H
#define NN_CPU_REDUCE_H

#include "kernel.h"

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

/* Sum of n f32, in f64. */
NN_INLINE double nn_sum_f64(const float *x, int64_t n) {
  vd s[4];
  s[0] = s[1] = s[2] = s[3] = vd_set1(0.0);
  int64_t i = 0;
  for (; i + 2 * VF <= n; i += 2 * VF) {
    const vf a = vf_load(x + i), b = vf_load(x + i + VF);
    s[0] += vd_low(a);
    s[1] += vd_high(a);
    s[2] += vd_low(b);
    s[3] += vd_high(b);
  }
  double sum = vd_sum((s[0] + s[1]) + (s[2] + s[3]));
  for (; i < n; i++) {
    sum += (double)x[i];
  }
  return sum;
}

#endif

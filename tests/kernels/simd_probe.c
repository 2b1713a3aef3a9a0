/*
 * cuda/cpu/simd.h and half.h as functions over arrays, for test_simd.py: compiled once per instruction set. n is a
 * multiple of probe_width() except where a function says otherwise.
 */
#include "cuda/cpu/simd.h"

#define PROBE(name, expression)                                                                                        \
  void probe_##name(const float *p, float *y, int64_t n) {                                                             \
    for (int64_t i = 0; i < n; i += VF) {                                                                              \
      const vf x = vf_load(p + i);                                                                                     \
      vf_store(y + i, expression);                                                                                     \
    }                                                                                                                  \
  }

PROBE(exp, vf_exp(x))
PROBE(log, vf_log(x))
PROBE(sigmoid, vf_sigmoid(x))
PROBE(sqrt, vf_sqrt(x))
PROBE(round, vf_round(x))
PROBE(swap_pairs, vf_swap_pairs(x))

int64_t probe_width(void) { return VF; }

/* Pairs (a, b): larger, smaller, fused or plain a * b + 1, and the two selections. */
void probe_two(const float *a, const float *b, float *larger, float *smaller, float *less, float *nan, int64_t n) {
  for (int64_t i = 0; i < n; i += VF) {
    const vf x = vf_load(a + i), y = vf_load(b + i);
    vf_store(larger + i, vf_max(x, y));
    vf_store(smaller + i, vf_min(x, y));
    vf_store(less + i, vf_select_lt(x, y, vf_set1(1.0f), vf_set1(0.0f)));
    vf_store(nan + i, vf_select_nan(x, y, vf_set1(0.0f)));
  }
}

void probe_ldexp(const float *x, const float *e, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += VF) {
    vf_store(y + i, vf_ldexp(vf_load(x + i), vf_load(e + i)));
  }
}

/* x[n/2] to y[n]. */
void probe_load_pairs(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += VF) {
    vf_store(y + i, vf_load_pairs(x + i / 2));
  }
}

/* The reductions of each group of lanes: sums, largest, sums in f64 of low and high halves. */
void probe_reduce(const float *x, float *sum, float *largest, double *low, double *high, int64_t n) {
  for (int64_t i = 0; i < n; i += VF) {
    const vf v = vf_load(x + i);
    sum[i / VF] = vf_sum(v);
    largest[i / VF] = vf_maximum(v);
    low[i / VF] = vd_sum(vd_fma(vd_low(v), vd_low(v), vd_set1(0.0)));
    high[i / VF] = vd_sum(vd_fma(vd_high(v), vd_high(v), vd_set1(0.0)));
  }
}

/* Conversion between dtypes, any n: in vectors with a part at the end, one by one, and past the caches (y starts a
 * line). */
void probe_convert(const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  int64_t i = 0;
  for (; i + VF <= n; i += VF) {
    vf_store_as(y, i, vf_load_as(x, i, dtype_x), dtype_y);
  }
  if (i < n) {
    vf_store_part_as(y, i, n - i, vf_load_part_as(x, i, n - i, dtype_x), dtype_y);
  }
}

void probe_convert_scalar(const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  for (int64_t i = 0; i < n; i++) {
    nn_store_as(y, i, nn_load_as(x, i, dtype_x), dtype_y);
  }
}

void probe_convert_stream(const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  for (int64_t i = 0; i < n; i += VF) {
    vf_stream_as(y, i, vf_load_as(x, i, dtype_x), dtype_y);
  }
  nn_stream_fence();
}

int64_t probe_stream_head(const void *p, int64_t i, int32_t dtype) { return nn_stream_head(p, i, dtype); }

/* y[0 .. VF) = the first n lanes of x, `fill` in the others. */
void probe_keep_part(const float *x, float *y, int64_t n, float fill) {
  vf_store(y, vf_keep_part(vf_load(x), n, fill));
}

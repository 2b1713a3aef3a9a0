/*
 * Storing numbers in the formats with blocks of 256: scales and minima of least squared error, found by search, with
 * the bytes of the CPU engine (cuda/cpu/quant_search.h, which says how the search goes).
 *
 * A lane has a part, of 32 elements, or of 16 for q2_k, q3_k and q6_k; the lanes of a block meet by shuffles, in the
 * order of the parts. No product is fused with a sum.
 */
#ifndef NN_KERNELS_QUANT_SEARCH_CUH
#define NN_KERNELS_QUANT_SEARCH_CUH

#include "kernels/quant_encode.cuh"

constexpr int NN_STARTS = 20, NN_REFITS = 3;
constexpr float NN_MOST = 3.402823466e38f;

/* The formats as the search sees them: parts of a block, its least and largest quant, and the range of counts. */
template <int FORMAT> struct nn_searched {
  static constexpr bool SYMMETRIC = !nn_stored<FORMAT>::HAS_MINIMUM && !nn_has_part_minima<FORMAT>;
  static constexpr int PARTS = nn_stored<FORMAT>::HAS_FACTORS ? 16 : 8, N = 256 / PARTS, REACH = SYMMETRIC ? 0 : 1;
  static constexpr int BITS = FORMAT == NNCUDA_FORMAT_Q6_K   ? 6
                              : FORMAT == NNCUDA_FORMAT_Q5_K ? 5
                              : FORMAT == NNCUDA_FORMAT_Q4_K ? 4
                              : FORMAT == NNCUDA_FORMAT_Q3_K ? 3
                                                             : 2;
  static constexpr float LOW = SYMMETRIC ? -(float)(1 << (BITS - 1)) : 0.0f, HIGH = LOW + (float)((1 << BITS) - 1);
  /* Counts have 6 bits, those of q6_k 8, those of q2_k 4. */
  static constexpr int COUNTS = FORMAT == NNCUDA_FORMAT_Q6_K ? 256 : FORMAT == NNCUDA_FORMAT_Q2_K ? 16 : 64;
  static constexpr float COUNT_LOW = SYMMETRIC ? -(float)(COUNTS / 2) : 0.0f,
                         COUNT_HIGH = COUNT_LOW + (float)(COUNTS - 1);
};

/* A part, in units of its block's own power of two: `up` leads there and `down` back, each in two steps, since 2^149 is
 * no f32. What stands for it is scale * q - minimum; both are whole counts of the block's steps. */
template <int FORMAT> struct nn_search {
  using S = nn_searched<FORMAT>;
  static constexpr int N = S::N;
  float x[N];
  float scale, minimum, error;
  float scale_step, minimum_step, scale_count, minimum_count;
  float up, up_more, down, down_more;
  uint16_t d, dm; /* the steps as they are stored */

  /* Of part j of this lane's block. */
  template <class V> static __device__ __forceinline__ V of_part(V value, int j) {
    return __shfl_sync(NN_ALL_LANES, value, j, S::PARTS);
  }

  static __device__ __forceinline__ float inverse_of(float scale) {
    return fabsf(scale) < 0x1p-100f ? 0.0f : __fdiv_rn(1.0f, scale);
  }
  static __device__ __forceinline__ float ratio(float a, float b) { return b > 0.0f ? __fdiv_rn(a, b) : 0.0f; }

  __device__ __forceinline__ float nearest(int i, float inverse, float least) const {
    const float y = __fmul_rn(__fadd_rn(x[i], least), inverse);
    return rintf(fmaxf(S::LOW, fminf(S::HIGH, y)));
  }

  struct sums {
    float q, qq, qx;
  };
  __device__ __forceinline__ sums sum(float inverse, float least) const {
    sums s = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float q = nearest(i, inverse, least);
      s.q = __fadd_rn(s.q, q);
      s.qq = __fadd_rn(s.qq, __fmul_rn(q, q));
      s.qx = __fadd_rn(s.qx, __fmul_rn(q, x[i]));
    }
    return s;
  }

  __device__ __forceinline__ float error_of(float by, float less) const {
    const float inverse = inverse_of(by);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float e = __fadd_rn(__fadd_rn(__fmul_rn(by, nearest(i, inverse, less)), -less), -x[i]);
      sum = __fadd_rn(sum, __fmul_rn(e, e));
    }
    return sum;
  }

  /* Takes a scale and a minimum if their error is the least so far. */
  __device__ __forceinline__ void improve(float by, float less) {
    const float found = error_of(by, less);
    if (found < error) {
      scale = by;
      minimum = less;
      error = found;
    }
  }

  /* From ranges a little narrower and wider than that of the elements. */
  __device__ __forceinline__ void search_asymmetric() {
    float least = 0.0f, most = x[0], total = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
      least = fminf(least, x[i]);
      most = fmaxf(most, x[i]);
      total = __fadd_rn(total, x[i]);
    }
    const float range = __fadd_rn(most, -least), n = (float)N;
#pragma unroll 1
    for (int t = 0; t < NN_STARTS; t++) {
      const float levels = __fadd_rn(S::HIGH, __fmul_rn(0.1f, (float)(t - NN_STARTS / 2 + 2)));
      const sums s = sum(inverse_of(__fdiv_rn(range, levels)), __fadd_rn(0.0f, -least));
      const float by = ratio(__fadd_rn(__fmul_rn(n, s.qx), -__fmul_rn(s.q, total)),
                             __fadd_rn(__fmul_rn(n, s.qq), -__fmul_rn(s.q, s.q)));
      const float less = __fdiv_rn(__fadd_rn(__fmul_rn(by, s.q), -total), n);
      improve(less < 0.0f ? ratio(s.qx, s.qq) : by, fmaxf(0.0f, less));
    }
  }

  /* The element of largest magnitude near the least quant, or near the largest. */
  __device__ __forceinline__ void search_symmetric() {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
      most = fabsf(most) < fabsf(x[i]) ? x[i] : most;
    }
#pragma unroll 1
    for (int t = 0; t < NN_STARTS; t++) {
      const float level = __fadd_rn(S::LOW, __fmul_rn(0.1f, (float)(t - NN_STARTS / 2 + 1)));
      const sums s = sum(inverse_of(__fdiv_rn(most, level)), 0.0f);
      improve(ratio(s.qx, s.qq), 0.0f);
    }
  }

  /* The f16 nearest to a step, the largest one for those beyond, in units of the block. At least `least` of the step,
   * where f16 is coarse, so that the largest count reaches the largest part. */
  __device__ __forceinline__ float step_of(float step, float least, uint16_t &half) const {
    half = nn_f32_to_f16(__fmul_rn(__fmul_rn(step, down), down_more));
    if ((half & 0x7fff) >= 0x7c00) {
      half = (uint16_t)((half & 0x8000) | 0x7bff);
    }
    float value = __fmul_rn(__fmul_rn(nn_f16_to_f32(half), up), up_more);
    if (fabsf(value) < __fmul_rn(fabsf(step), least) && (half & 0x7fff) < 0x7bff) {
      half = (uint16_t)(half + 1);
      value = __fmul_rn(__fmul_rn(nn_f16_to_f32(half), up), up_more);
    }
    return value;
  }

  /* The block's steps, from its largest scale and minimum, and the nearest counts; the largest scale takes the count of
   * largest magnitude. */
  __device__ __forceinline__ void count() {
    float by = 0.0f, less = 0.0f;
#pragma unroll
    for (int j = 0; j < S::PARTS; j++) {
      const float s = of_part(scale, j), m = of_part(minimum, j);
      by = fabsf(s) > fabsf(by) ? s : by;
      less = m > less ? m : less;
    }
    constexpr float TOP = -S::COUNT_LOW > S::COUNT_HIGH ? S::COUNT_LOW : S::COUNT_HIGH;
    scale_step = step_of(__fdiv_rn(by, TOP), 0.99f, d);
    minimum_step = step_of(__fdiv_rn(less, S::COUNT_HIGH), 0.99f, dm);
    const float sc = scale_step == 0.0f ? 0.0f : rintf(__fdiv_rn(scale, scale_step));
    const float mc = minimum_step == 0.0f ? 0.0f : rintf(__fdiv_rn(minimum, minimum_step));
    scale_count = fminf(fmaxf(sc, S::COUNT_LOW), S::COUNT_HIGH);
    minimum_count = fminf(mc, S::COUNT_HIGH);
  }

  /* The counts next to those chosen. */
  __device__ __forceinline__ void neighbours() {
    float best = NN_MOST, scale_best = scale_count, minimum_best = minimum_count;
#pragma unroll 1
    for (int i = -1; i <= 1; i++) {
      const float sc = fmaxf(S::COUNT_LOW, fminf(S::COUNT_HIGH, __fadd_rn(scale_count, (float)i)));
#pragma unroll 1
      for (int j = -S::REACH; j <= S::REACH; j++) {
        const float mc = fmaxf(0.0f, fminf(S::COUNT_HIGH, __fadd_rn(minimum_count, (float)j)));
        const float found = error_of(__fmul_rn(scale_step, sc), __fmul_rn(minimum_step, mc));
        if (found < best) {
          scale_best = sc;
          minimum_best = mc;
          best = found;
        }
      }
    }
    scale_count = scale_best;
    minimum_count = minimum_best;
    error = best;
  }

  __device__ __forceinline__ float by() const { return __fmul_rn(scale_step, scale_count); }
  __device__ __forceinline__ float less() const { return __fmul_rn(minimum_step, minimum_count); }

  /* The steps of least error for the counts and the nearest quants: two normal equations. */
  __device__ __forceinline__ void refit() {
    const sums s = sum(inverse_of(by()), less());
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
      total = __fadd_rn(total, x[i]);
    }
    double ss = 0.0, sm = 0.0, mm = 0.0, sx = 0.0, mx = 0.0;
#pragma unroll 1
    for (int j = 0; j < S::PARTS; j++) {
      const double sc = of_part(scale_count, j), mc = of_part(minimum_count, j);
      ss = __dadd_rn(ss, __dmul_rn(__dmul_rn(sc, sc), of_part(s.qq, j)));
      sm = __dadd_rn(sm, __dmul_rn(__dmul_rn(sc, mc), of_part(s.q, j)));
      mm = __dadd_rn(mm, __dmul_rn(__dmul_rn(mc, mc), N));
      sx = __dadd_rn(sx, __dmul_rn(sc, of_part(s.qx, j)));
      mx = __dadd_rn(mx, __dmul_rn(mc, of_part(total, j)));
    }
    const double determinant = __dadd_rn(__dmul_rn(ss, mm), -__dmul_rn(sm, sm));
    double d_best = ss > 0.0 ? sx / ss : 0.0, dm_best = 0.0;
    if (determinant > 0.0) {
      d_best = __dadd_rn(__dmul_rn(sx, mm), -__dmul_rn(sm, mx)) / determinant;
      dm_best = __dadd_rn(__dmul_rn(sx, sm), -__dmul_rn(ss, mx)) / determinant;
    }
    uint16_t d_half, dm_half;
    const float d_new = step_of((float)d_best, 0.0f, d_half);
    const float dm_new = step_of(dm_best > 0.0 ? (float)dm_best : 0.0f, 0.0f, dm_half);
    const float mine = error_of(__fmul_rn(d_new, scale_count), __fmul_rn(dm_new, minimum_count));
    float before = 0.0f, after = 0.0f;
#pragma unroll
    for (int j = 0; j < S::PARTS; j++) {
      before = __fadd_rn(before, of_part(error, j));
      after = __fadd_rn(after, of_part(mine, j));
    }
    if (after < before) {
      d = d_half;
      dm = dm_half;
      scale_step = d_new;
      minimum_step = dm_new;
    }
  }

  /* Everything, from the lane's numbers; the quants less the least one go to `q`. All lanes of the warp call it. */
  __device__ __forceinline__ void choose(uint8_t *q) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
      most = fmaxf(most, fabsf(x[i]));
    }
    most = nn_warp_max<S::PARTS>(most);
    int exponent = 0;
    (void)frexpf(most, &exponent);
    const int half = exponent / 2, rest = exponent - half;
    up = ldexpf(1.0f, -half);
    up_more = ldexpf(1.0f, -rest);
    down = ldexpf(1.0f, half);
    down_more = ldexpf(1.0f, rest);
#pragma unroll
    for (int i = 0; i < N; i++) {
      x[i] = __fmul_rn(__fmul_rn(x[i], up), up_more);
    }
    scale = minimum = 0.0f;
    error = NN_MOST;
    if constexpr (S::SYMMETRIC) {
      search_symmetric();
    } else {
      search_asymmetric();
    }
    count();
#pragma unroll 1
    for (int i = 0; i < NN_REFITS; i++) {
      neighbours();
      refit();
    }
    neighbours();
    const float inverse = inverse_of(by()), least = less();
#pragma unroll
    for (int i = 0; i < N; i++) {
      q[i] = (uint8_t)(nearest(i, inverse, least) - S::LOW);
    }
  }
};

/* Two bits of the quants of a block, of the elements that are 32 apart together; by the lanes of its parts. */
__device__ __forceinline__ void nn_put_twos(uint8_t *to, const uint8_t *q, int j) {
  for (int n = j; n < 64; n += 16) {
    uint32_t byte = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      byte |= (q[n / 32 * 128 + k * 32 + n % 32] & 3u) << (2 * k);
    }
    to[n] = (uint8_t)byte;
  }
}

/* A block as it is stored. `q`: the quants of the block's parts one after another; `j`: this lane's part. */
template <int FORMAT>
__device__ __forceinline__ void nn_put_block(uint8_t *to, const nn_search<FORMAT> &found, const uint8_t *q, int j) {
  if constexpr (FORMAT == NNCUDA_FORMAT_Q6_K) {
    if (j == 0) {
      nn_put_u16(to + 208, found.d);
    }
    to[192 + j] = (uint8_t)(int)found.scale_count;
    for (int n = j; n < 64; n += 16) {
      const int half = n / 32, i = n % 32;
      uint32_t of[4]; /* the elements whose bits meet in a byte of the high ones: 32 apart */
#pragma unroll
      for (int k = 0; k < 4; k++) {
        of[k] = q[half * 128 + k * 32 + i];
      }
      to[half * 64 + i] = (uint8_t)((of[0] & 15u) | (of[2] & 15u) << 4);
      to[half * 64 + 32 + i] = (uint8_t)((of[1] & 15u) | (of[3] & 15u) << 4);
      to[128 + half * 32 + i] = (uint8_t)(of[0] >> 4 | of[1] >> 4 << 2 | of[2] >> 4 << 4 | of[3] >> 4 << 6);
    }
  } else if constexpr (FORMAT == NNCUDA_FORMAT_Q2_K) {
    if (j == 0) {
      nn_put_u16(to + 80, found.d);
      nn_put_u16(to + 82, found.dm);
    }
    to[j] = (uint8_t)((uint32_t)found.scale_count | (uint32_t)found.minimum_count << 4);
    nn_put_twos(to + 16, q, j);
  } else if constexpr (FORMAT == NNCUDA_FORMAT_Q3_K) {
    const uint32_t six = (uint32_t)((int)found.scale_count + 32);
    uint32_t on[3];
#pragma unroll
    for (int i = 0; i < 3; i++) {
      on[i] = __shfl_down_sync(NN_ALL_LANES, six, 4 * (i + 1), 16);
    }
    if (j == 0) {
      nn_put_u16(to + 108, found.d);
    }
    if (j < 8) { /* as nn_three_factors takes them apart */
      to[96 + j] = (uint8_t)((six & 15u) | (on[1] & 15u) << 4);
    }
    if (j < 4) {
      to[104 + j] = (uint8_t)(six >> 4 | on[0] >> 4 << 2 | on[1] >> 4 << 4 | on[2] >> 4 << 6);
    }
    nn_put_twos(to + 32, q, j);
    for (int i = 2 * j; i < 2 * j + 2; i++) {
      uint32_t high = 0;
#pragma unroll
      for (int part = 0; part < 8; part++) {
        high |= (uint32_t)q[part * 32 + i] >> 2 << part;
      }
      to[i] = (uint8_t)high;
    }
  } else {
    const uint32_t scale = (uint32_t)found.scale_count, minimum = (uint32_t)found.minimum_count;
    const uint32_t scale_on = __shfl_down_sync(NN_ALL_LANES, scale, 4, 8);
    const uint32_t minimum_on = __shfl_down_sync(NN_ALL_LANES, minimum, 4, 8);
    if (j == 0) {
      nn_put_u16(to, found.d);
      nn_put_u16(to + 2, found.dm);
    }
    if (j < 4) { /* as nn_part_scales takes them apart */
      to[4 + j] = (uint8_t)(scale | scale_on >> 4 << 6);
      to[8 + j] = (uint8_t)(minimum | minimum_on >> 4 << 6);
      to[12 + j] = (uint8_t)((scale_on & 15u) | (minimum_on & 15u) << 4);
    }
    uint8_t *const low = to + (FORMAT == NNCUDA_FORMAT_Q4_K ? 16 : 48);
    for (int i = 0; i < 16; i++) { /* lanes 2p and 2p + 1 share the bytes of parts 2p and 2p + 1 */
      const int byte = j * 16 + i, pair = byte / 32 * 64, at = byte % 32;
      low[byte] = (uint8_t)((q[pair + at] & 15u) | (q[pair + 32 + at] & 15u) << 4);
    }
    for (int i = 4 * j; FORMAT == NNCUDA_FORMAT_Q5_K && i < 4 * j + 4; i++) {
      uint32_t high = 0;
#pragma unroll
      for (int part = 0; part < 8; part++) {
        high |= (uint32_t)q[part * 32 + i] >> 4 << part;
      }
      to[16 + i] = (uint8_t)high;
    }
  }
}

#endif

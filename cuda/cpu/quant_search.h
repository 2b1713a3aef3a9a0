/*
 * Storing numbers in the formats with blocks of 256: scales and minima of least squared error, found by search.
 *
 * A part of a block stands for x = s * q - m with whole q of few bits; s and m are whole multiples, of 6 bits (q2_k: of
 * 4; q6_k: of 8, q3_k: of 6 with a sign, and no m), of the block's d and dm. For given q the best s and m solve a
 * linear system, and for given s and m the best q is the nearest one, so the search starts from several scales, takes
 * the best after one such step, rounds s and m to their multiples, tries the neighbouring ones, fits d and dm to all
 * that was chosen, and repeats while the error falls.
 *
 * A lane is a part: sums run over a part's elements in order, whatever the width of the vectors, products and sums are
 * not fused, and so the bytes are the same on every instruction set.
 */
#ifndef NN_CPU_QUANT_SEARCH_H
#define NN_CPU_QUANT_SEARCH_H

#include "quant_blocks.h"

#include <float.h>

enum {
  NN_Q_LANES = 16, /* parts in work at once: two blocks of q4_k or q5_k, one of the others */
  NN_Q_STARTS = 20,
  NN_Q_REFITS = 3,
};

/* Parts side by side, in units of the block's own power of two, so that squares neither overflow nor vanish. */
typedef struct nn_q_parts {
  float x[NN_QK][NN_Q_LANES];
  float scale[NN_Q_LANES], minimum[NN_Q_LANES];             /* s and m of each */
  float scale_step[NN_Q_LANES], minimum_step[NN_Q_LANES];   /* d and dm of its block */
  float scale_count[NN_Q_LANES], minimum_count[NN_Q_LANES]; /* s = d * count */
  float error[NN_Q_LANES];
  float low, high; /* least and largest q */
  int n;           /* elements of a part */
} nn_q_parts;

/* What one choice of q comes to in each lane. */
typedef struct nn_q_sums {
  vf q, qq, qx;
} nn_q_sums;

/* 1/s; 0 for scales so small that all q are 0. */
NN_INLINE vf nn_q_inverse(vf scale) {
  const vf size = vf_max(scale, vf_sub(vf_set1(0.0f), scale));
  return vf_select_lt(size, vf_set1(0x1p-100f), vf_set1(0.0f), vf_div(vf_set1(1.0f), scale));
}

/* The nearest q of element i of the lanes from `lane` on. */
NN_INLINE vf nn_q_nearest(const nn_q_parts *p, int i, int lane, vf inverse, vf minimum) {
  const vf y = vf_mul(vf_add(vf_load(&p->x[i][lane]), minimum), inverse);
  return vf_round(vf_max(vf_set1(p->low), vf_min(vf_set1(p->high), y)));
}

NN_INLINE nn_q_sums nn_q_sum(const nn_q_parts *p, int lane, vf inverse, vf minimum) {
  nn_q_sums sums = {vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f)};
  for (int i = 0; i < p->n; i++) {
    const vf q = nn_q_nearest(p, i, lane, inverse, minimum);
    sums.q = vf_add(sums.q, q);
    sums.qq = vf_add(sums.qq, vf_mul(q, q));
    sums.qx = vf_add(sums.qx, vf_mul(q, vf_load(&p->x[i][lane])));
  }
  return sums;
}

/* The squared error with the nearest q of s and m. */
NN_INLINE vf nn_q_error(const nn_q_parts *p, int lane, vf scale, vf minimum) {
  const vf inverse = nn_q_inverse(scale);
  vf sum = vf_set1(0.0f);
  for (int i = 0; i < p->n; i++) {
    const vf e =
        vf_sub(vf_sub(vf_mul(scale, nn_q_nearest(p, i, lane, inverse, minimum)), minimum), vf_load(&p->x[i][lane]));
    sum = vf_add(sum, vf_mul(e, e));
  }
  return sum;
}

/* a/b, 0 where b is 0. */
NN_INLINE vf nn_q_ratio(vf a, vf b) {
  const vf zero = vf_set1(0.0f);
  return vf_select_lt(zero, b, vf_div(a, vf_select_lt(zero, b, b, vf_set1(1.0f))), zero);
}

/* Takes scale and minimum in the lanes where they are better than what was found so far. */
NN_INLINE void nn_q_improve(nn_q_parts *p, int lane, vf scale, vf minimum) {
  const vf error = nn_q_error(p, lane, scale, minimum), best = vf_load(p->error + lane);
  vf_store(p->scale + lane, vf_select_lt(error, best, scale, vf_load(p->scale + lane)));
  vf_store(p->minimum + lane, vf_select_lt(error, best, minimum, vf_load(p->minimum + lane)));
  vf_store(p->error + lane, vf_select_lt(error, best, error, best));
}

/* The best s and m >= 0 of each part: from ranges a little narrower and wider than that of its elements. */
static inline void nn_q_search_asymmetric(nn_q_parts *p) {
  const vf zero = vf_set1(0.0f), count = vf_set1((float)p->n);
  for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
    vf least = zero, most = vf_load(&p->x[0][lane]), sum = zero;
    for (int i = 0; i < p->n; i++) {
      const vf x = vf_load(&p->x[i][lane]);
      least = vf_min(least, x);
      most = vf_max(most, x);
      sum = vf_add(sum, x);
    }
    const vf range = vf_sub(most, least);
    for (int t = 0; t < NN_Q_STARTS; t++) {
      const float levels = p->high + 0.1f * (float)(t - NN_Q_STARTS / 2 + 2);
      const nn_q_sums s = nn_q_sum(p, lane, nn_q_inverse(vf_div(range, vf_set1(levels))), vf_sub(zero, least));
      const vf scale =
          nn_q_ratio(vf_sub(vf_mul(count, s.qx), vf_mul(s.q, sum)), vf_sub(vf_mul(count, s.qq), vf_mul(s.q, s.q)));
      const vf minimum = vf_div(vf_sub(vf_mul(scale, s.q), sum), count);
      nn_q_improve(p, lane, vf_select_lt(minimum, zero, nn_q_ratio(s.qx, s.qq), scale), vf_max(zero, minimum));
    }
  }
}

/* The best s of each part, m = 0: the element of largest magnitude near the least q, or near the largest. */
static inline void nn_q_search_symmetric(nn_q_parts *p) {
  const vf zero = vf_set1(0.0f);
  for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
    vf most = zero;
    for (int i = 0; i < p->n; i++) {
      const vf x = vf_load(&p->x[i][lane]), size = vf_max(most, vf_sub(zero, most));
      most = vf_select_lt(size, vf_max(x, vf_sub(zero, x)), x, most);
    }
    for (int t = 0; t < NN_Q_STARTS; t++) {
      const float level = p->low + 0.1f * (float)(t - NN_Q_STARTS / 2 + 1);
      const nn_q_sums s = nn_q_sum(p, lane, nn_q_inverse(vf_div(most, vf_set1(level))), zero);
      nn_q_improve(p, lane, nn_q_ratio(s.qx, s.qq), zero);
    }
  }
}

/* Tries the counts next to those chosen, `reach` away at most for the minima. */
static inline void nn_q_neighbours(nn_q_parts *p, float count_low, float count_high, int reach) {
  for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
    const vf d = vf_load(p->scale_step + lane), dm = vf_load(p->minimum_step + lane);
    const vf scale_at = vf_load(p->scale_count + lane), minimum_at = vf_load(p->minimum_count + lane);
    vf best = vf_set1(FLT_MAX), scale_best = scale_at, minimum_best = minimum_at;
    for (int i = -1; i <= 1; i++) {
      const vf sc = vf_max(vf_set1(count_low), vf_min(vf_set1(count_high), vf_add(scale_at, vf_set1((float)i))));
      for (int j = -reach; j <= reach; j++) {
        const vf mc = vf_max(vf_set1(0.0f), vf_min(vf_set1(count_high), vf_add(minimum_at, vf_set1((float)j))));
        const vf error = nn_q_error(p, lane, vf_mul(d, sc), vf_mul(dm, mc));
        scale_best = vf_select_lt(error, best, sc, scale_best);
        minimum_best = vf_select_lt(error, best, mc, minimum_best);
        best = vf_select_lt(error, best, error, best);
      }
    }
    vf_store(p->scale_count + lane, scale_best);
    vf_store(p->minimum_count + lane, minimum_best);
    vf_store(p->error + lane, best);
  }
}

/* A block within the lanes: its unit and the parts it has. */
typedef struct nn_q_block {
  float up, up_more, down, down_more; /* to units of the block, and back, each in two steps: 2^149 is not an f32 */
  int lane, parts;
  uint16_t d, dm;
} nn_q_block;

/* The f16 nearest to a step of the block, the largest one for those beyond, in units of the block. At least `least` of
 * the step, where f16 is coarse, so that the largest count reaches the largest part. */
NN_INLINE float nn_q_step_f16(const nn_q_block *b, float step, float least, uint16_t *half) {
  *half = nn_f32_to_f16(step * b->down * b->down_more);
  if ((*half & 0x7fff) >= 0x7c00) {
    *half = (uint16_t)((*half & 0x8000) | 0x7bff);
  }
  float value = nn_f16_to_f32(*half) * b->up * b->up_more;
  if (fabsf(value) < fabsf(step) * least && (*half & 0x7fff) < 0x7bff) {
    *half = (uint16_t)(*half + 1);
    value = nn_f16_to_f32(*half) * b->up * b->up_more;
  }
  return value;
}

/* Spreads the block's elements over its lanes, transposed. */
static inline nn_q_block nn_q_spread(nn_q_parts *p, const float *x, int lane, int parts) {
  float most = 0.0f;
  for (int i = 0; i < NN_QK_LARGE; i++) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  }
  int exponent = 0;
  (void)frexpf(most, &exponent);
  const int half = exponent / 2, rest = exponent - half;
  const nn_q_block b = {.up = ldexpf(1.0f, -half),
                        .up_more = ldexpf(1.0f, -rest),
                        .down = ldexpf(1.0f, half),
                        .down_more = ldexpf(1.0f, rest),
                        .lane = lane,
                        .parts = parts};
  for (int j = 0; j < parts; j++) {
    for (int i = 0; i < p->n; i++) {
      p->x[i][lane + j] = x[j * p->n + i] * b.up * b.up_more;
    }
  }
  return b;
}

/* Sets d and dm of a block and the nearest counts of its parts. */
static inline void nn_q_count(nn_q_parts *p, nn_q_block *b, float count_low, float count_high) {
  float scale = 0.0f, minimum = 0.0f;
  for (int j = b->lane; j < b->lane + b->parts; j++) {
    scale = fabsf(p->scale[j]) > fabsf(scale) ? p->scale[j] : scale;
    minimum = p->minimum[j] > minimum ? p->minimum[j] : minimum;
  }
  /* The largest scale takes the count of largest magnitude. */
  const float top = -count_low > count_high ? count_low : count_high;
  const float d = nn_q_step_f16(b, scale / top, 0.99f, &b->d);
  const float dm = nn_q_step_f16(b, minimum / count_high, 0.99f, &b->dm);
  for (int j = b->lane; j < b->lane + b->parts; j++) {
    const float sc = d == 0.0f ? 0.0f : rintf(p->scale[j] / d), mc = dm == 0.0f ? 0.0f : rintf(p->minimum[j] / dm);
    p->scale_step[j] = d;
    p->minimum_step[j] = dm;
    p->scale_count[j] = sc < count_low ? count_low : sc > count_high ? count_high : sc;
    p->minimum_count[j] = mc > count_high ? count_high : mc;
  }
}

/* d and dm of least error for the counts and the q that were chosen, the q being the nearest. */
static inline void nn_q_refit(nn_q_parts *p, nn_q_block *b, int blocks) {
  float q[NN_Q_LANES], qq[NN_Q_LANES], qx[NN_Q_LANES], x[NN_Q_LANES];
  for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
    const vf minimum = vf_mul(vf_load(p->minimum_step + lane), vf_load(p->minimum_count + lane));
    const vf scale = vf_mul(vf_load(p->scale_step + lane), vf_load(p->scale_count + lane));
    const nn_q_sums sums = nn_q_sum(p, lane, nn_q_inverse(scale), minimum);
    vf sum = vf_set1(0.0f);
    for (int i = 0; i < p->n; i++) {
      sum = vf_add(sum, vf_load(&p->x[i][lane]));
    }
    vf_store(q + lane, sums.q);
    vf_store(qq + lane, sums.qq);
    vf_store(qx + lane, sums.qx);
    vf_store(x + lane, sum);
  }
  for (; blocks > 0; blocks--, b++) {
    double ss = 0.0, sm = 0.0, mm = 0.0, sx = 0.0, mx = 0.0; /* of the normal equations */
    for (int j = b->lane; j < b->lane + b->parts; j++) {
      const double sc = (double)p->scale_count[j], mc = (double)p->minimum_count[j];
      ss += sc * sc * (double)qq[j];
      sm += sc * mc * (double)q[j];
      mm += mc * mc * p->n;
      sx += sc * (double)qx[j];
      mx += mc * (double)x[j];
    }
    const double determinant = ss * mm - sm * sm;
    double d = ss > 0.0 ? sx / ss : 0.0, dm = 0.0;
    if (determinant > 0.0) {
      d = (sx * mm - sm * mx) / determinant;
      dm = (sx * sm - ss * mx) / determinant;
    }
    uint16_t d_half, dm_half;
    const float d_new = nn_q_step_f16(b, (float)d, 0.0f, &d_half);
    const float dm_new = nn_q_step_f16(b, dm > 0.0 ? (float)dm : 0.0f, 0.0f, &dm_half);
    float scale[NN_Q_LANES] = {0}, minimum[NN_Q_LANES] = {0}, error[NN_Q_LANES], before = 0.0f, after = 0.0f;
    for (int j = b->lane; j < b->lane + b->parts; j++) {
      scale[j] = d_new * p->scale_count[j];
      minimum[j] = dm_new * p->minimum_count[j];
    }
    for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
      vf_store(error + lane, nn_q_error(p, lane, vf_load(scale + lane), vf_load(minimum + lane)));
    }
    for (int j = b->lane; j < b->lane + b->parts; j++) {
      before += p->error[j];
      after += error[j];
    }
    if (after < before) {
      b->d = d_half;
      b->dm = dm_half;
      for (int j = b->lane; j < b->lane + b->parts; j++) {
        p->scale_step[j] = d_new;
        p->minimum_step[j] = dm_new;
      }
    }
  }
}

/* Chooses everything for the blocks of the lanes; q gets the quants less the least one. */
static inline void nn_q_choose(nn_q_parts *p, nn_q_block *b, int blocks, float count_low, float count_high,
                               uint8_t q[NN_QK][NN_Q_LANES]) {
  const int symmetric = p->low < 0.0f;
  for (int j = 0; j < NN_Q_LANES; j++) {
    p->scale[j] = p->minimum[j] = 0.0f;
    p->error[j] = FLT_MAX;
  }
  if (symmetric) {
    nn_q_search_symmetric(p);
  } else {
    nn_q_search_asymmetric(p);
  }
  for (int i = 0; i < blocks; i++) {
    nn_q_count(p, b + i, count_low, count_high);
  }
  for (int i = 0; i < NN_Q_REFITS; i++) {
    nn_q_neighbours(p, count_low, count_high, symmetric ? 0 : 1);
    nn_q_refit(p, b, blocks);
  }
  nn_q_neighbours(p, count_low, count_high, symmetric ? 0 : 1);
  for (int lane = 0; lane < NN_Q_LANES; lane += VF) {
    const vf minimum = vf_mul(vf_load(p->minimum_step + lane), vf_load(p->minimum_count + lane));
    const vf scale = vf_mul(vf_load(p->scale_step + lane), vf_load(p->scale_count + lane)),
             inverse = nn_q_inverse(scale);
    for (int i = 0; i < p->n; i++) {
      float whole[VF];
      vf_store(whole, vf_sub(nn_q_nearest(p, i, lane, inverse, minimum), vf_set1(p->low)));
      for (int l = 0; l < VF; l++) {
        q[i][lane + l] = (uint8_t)whole[l];
      }
    }
  }
}

#endif

/* How a row's options choose its token; and the choice by one block. */
#ifndef NN_KERNELS_DECODE_SAMPLE_CUH
#define NN_KERNELS_DECODE_SAMPLE_CUH

#include "abi/decode.h"
#include "numbers/philox.h"

#include "kernels/decode_border.cuh"
#include "kernels/decode_workspace.h"

struct option_rules {
  nn_rule temperature, top_k, top_p, min_p, steps;

  /* Whether the options of row r are what they must be; what is not is reported, or only found. */
  __device__ bool hold(const nn_sample_args &a, int64_t r, bool report = true) const {
    const float t = a.temperature[r];
    if (!(t >= 0.0f && t < __int_as_float(0x7f800000))) {
      if (report) {
        temperature.broken(r, t);
      }
      return false;
    }
    if (a.top_k != nullptr && a.top_k[r] < 1) {
      if (report) {
        top_k.broken_by(r, a.top_k[r]);
      }
      return false;
    }
    if (a.top_p != nullptr && !(a.top_p[r] > 0.0f && a.top_p[r] <= 1.0f)) {
      if (report) {
        top_p.broken(r, a.top_p[r]);
      }
      return false;
    }
    if (a.min_p != nullptr && !(a.min_p[r] >= 0.0f && a.min_p[r] <= 1.0f)) {
      if (report) {
        min_p.broken(r, a.min_p[r]);
      }
      return false;
    }
    if (a.steps[r] < 0) {
      if (report) {
        steps.broken_by(r, a.steps[r]);
      }
      return false;
    }
    return true;
  }
};

/* What is asked of a row whose first token is known. */
struct choice {
  int32_t id;     /* where nothing is drawn */
  bool draws;     /* else the token is `id` */
  uint64_t top_k; /* 0: no limit */
  double top_p;   /* 1: no limit */
  weigher weight; /* of all tokens that may be drawn, before any limit */
  float min_p;

  __device__ __forceinline__ choice(const nn_sample_args &a, int64_t number, uint64_t first) {
    const uint32_t best = key_of_token(first);
    const float temperature = a.temperature[number];
    const bool infinite = best == KEY_OF_INFINITY;                       /* then only those are left, all alike */
    const float inverse = 1.0f / temperature, largest = 3.402823466e38f; /* 0 times it must be 0 */
    const float scale = infinite ? 0.0f : inverse < largest ? inverse : largest;
    id = best == 0 ? 0 : index_of_token(first);
    draws = best != 0 && temperature != 0.0f && (a.top_k == nullptr || a.top_k[number] != 1);
    top_k = a.top_k != nullptr && a.top_k[number] < a.vocab ? (uint64_t)a.top_k[number] : 0;
    top_p = a.top_p == nullptr ? 1.0 : (double)a.top_p[number];
    weight = {{infinite ? KEY_OF_INFINITY : 1, INT32_MAX}, infinite ? 0.0f : logit_of(best), scale, 0.0f};
    min_p = a.min_p == nullptr ? 0.0f : a.min_p[number];
  }
};

/* word * 2^-32 of the sum of all, of the row's draw. */
static __device__ __forceinline__ uint64_t drawn_weight(const nn_sample_args &a, int64_t number, uint64_t all) {
  const uint32_t word = nn_philox((uint64_t)a.seeds[number], (uint64_t)a.steps[number], 0).w[0];
  return __umul64hi(all, (uint64_t)word << 32);
}

/* The first index whose cumulative weight, from the row's first token on, is above the target. */
template <class T, int N, int THREADS>
static __device__ int32_t draw(const row<T, N, THREADS> &r, const weigher &weight, uint64_t target, shared_row *s) {
  uint64_t before = 0, total = 0;
  for (int64_t first = r.first; first < r.end && before <= target; first += THREADS * N) {
    const int64_t i = first + (int64_t)threadIdx.x * N;
    uint64_t weights[N] = {}, sum = 0;
    if (i < r.end) {
      float x[N];
      nn_load(x, r.logits + i);
#pragma unroll
      for (int e = 0; e < N; e++) {
        weights[e] = weight(key_of(x[e]), (int32_t)i + e);
        sum += weights[e];
      }
    }
    uint64_t cumulative = before + scan_block<THREADS>(sum, s->warps, &total);
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (cumulative <= target && cumulative + weights[e] > target) {
        s->found = (int32_t)i + e;
      }
      cumulative += weights[e];
    }
    before += total;
  }
  __syncthreads();
  return s->found;
}

/* How many tokens of a row may be drawn before any limit, where top_k asks; `of_thread` is first_token's count. */
template <class ROW>
static __device__ uint64_t tokens_there(const ROW &r, const choice &c, uint32_t of_thread, uint64_t *shared) {
  uint64_t all = 0;
  if (c.top_k != 0 && c.weight.last.key == KEY_OF_INFINITY) {
    all = sum_of(r, one_each{c.weight.last}, shared);
  } else if (c.top_k != 0) {
    scan_block<ROW::THREADS>(of_thread, shared, &all);
  }
  return all;
}

/* The token of a row that draws, of `there` tokens that may be. Every thread of the block comes to the same decisions:
 * they rest on what lies in memory and on sums of the block. */
template <class ROW>
static __device__ int32_t sample_row(const nn_sample_args &a, int64_t number, const ROW &r, const choice &c,
                                     uint64_t there, shared_row *s) {
  weigher weight = c.weight;
  uint64_t all;
  if (c.top_k != 0 && c.top_k < there) {
    weight.last = find_border(r, one_each{weight.last}, [&](uint64_t) { return (double)c.top_k; }, s, all);
  }
  if (c.top_p < 1.0) {
    weight.last = find_border(r, weight, [&](uint64_t of_all) { return c.top_p * (double)of_all; }, s, all);
  } else {
    all = sum_of(r, weight, s->warps);
  }
  if (c.min_p > 0.0f) {
    weight.least = c.min_p;
    all = sum_of(r, weight, s->warps);
  }
  return draw(r, weight, drawn_weight(a, number, all), s);
}

/* A row over several blocks (decode_parts.cu). */
int32_t nn_sample_parts(nncuda_ctx *ctx, const nn_sample_args *a, const option_rules &rules, const nn_sample_space &s);

#endif

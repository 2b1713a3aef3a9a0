/*
 * Choosing tokens. A block takes a row and never sorts it: the border of top_k and of top_p, the last token that may
 * still be drawn, is found by a radix search over the keys of the tokens, which adds up counts or weights a bucket.
 *
 * The order of tokens, higher logit first, then lower index, is that of their keys: 32-bit numbers that compare as the
 * logits do, equal for 0 and -0, and 0 for what is never drawn (NaN and -inf). Weights are added up as whole numbers of
 * 2^-40 of the largest: such sums are exact, so that neither their order nor that of the atomic additions decides a
 * bit.
 *
 * A row is read again in each pass, from the second cache: 128256 logits are 251 or 501 KiB. At the 64 bytes a cycle
 * that a multiprocessor gets from there a pass takes 4 to 8 thousand cycles. There are six passes with top_p: one for
 * the largest token, four of the search, one to draw; with top_k as well, ten, and one more with min_p. What several
 * multiprocessors would have to tell each other between the passes takes as long by other kernels, about 3 us each.
 */
#include "abi/decode.h"
#include "numbers/philox.h"

#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

constexpr int THREADS = 1024;
constexpr int ROUND_BITS = 8; /* of the key, in one round of the radix search */
constexpr int BUCKETS = 1 << ROUND_BITS;
/* Logits have few exponents, so that the lanes of a warp meet in a few buckets, and additions to one word wait for one
 * another: of each bucket there is a copy for every two lanes, in banks of their own. More bits a round, and so fewer
 * rounds, would leave no room for copies. By count. */
constexpr int COPIES = 16;
constexpr uint32_t KEY_OF_INFINITY = 0xff800000u;

static __device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t u = __float_as_uint(x + 0.0f); /* -0 becomes 0 */
  const uint32_t key = u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
  /* Below are -inf and negative NaN, above positive NaN. */
  return key - 0x00800000u <= KEY_OF_INFINITY - 0x00800000u ? key : 0;
}

static __device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}

/* ---- sums over a block ---- */

struct larger_number {
  static __device__ __forceinline__ uint64_t of(uint64_t a, uint64_t b) { return a > b ? a : b; }
};

/* Sum of the threads before this one, and of all. Begins with a barrier, so `shared` (one a warp) may be used again. */
static __device__ __forceinline__ uint64_t scan_block(uint64_t x, uint64_t *shared, uint64_t *total) {
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const uint64_t sum = nn_warp_scan(x);
  __syncthreads();
  if (lane == NN_WARP - 1) {
    shared[warp] = sum;
  }
  __syncthreads();
  const uint64_t of_warps = nn_warp_scan(shared[lane]);
  *total = __shfl_sync(NN_ALL_LANES, of_warps, NN_WARP - 1);
  const uint64_t before = __shfl_sync(NN_ALL_LANES, of_warps, warp == 0 ? 0 : warp - 1);
  return sum - x + (warp == 0 ? 0 : before);
}
static_assert(THREADS / NN_WARP == NN_WARP, "a lane a warp");

/* The largest, in every thread; begins with a barrier. */
static __device__ __forceinline__ uint64_t max_block(uint64_t x, uint64_t *shared) {
  __syncthreads();
  return nn_block_reduce<larger_number, THREADS>(x, shared, (uint64_t)0);
}

/* ---- a row ---- */

/* The last token that may be drawn: none with a lower key, and of those with this key none with a higher index. */
struct border {
  uint32_t key;
  int32_t index;

  __device__ __forceinline__ bool allows(uint32_t of_key, int32_t at) const {
    return of_key > key || (of_key == key && at <= index);
  }
};

template <class T, int N> struct row {
  const T *logits;
  int32_t vocab;

  /* visit(key, index) for every token, a thread those of its own; a thread's are in rising order. */
  template <class VISIT> __device__ __forceinline__ void each(VISIT visit) const {
    constexpr int AHEAD = 2; /* loads under way */
    for (int64_t first = (int64_t)threadIdx.x * N; first < vocab; first += AHEAD * THREADS * N) {
      nn_vector<T, N> some[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int64_t i = first + j * THREADS * N;
        some[j] = nn_load_raw<N>(logits + (i < vocab ? i : first));
      }
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int64_t i = first + j * THREADS * N;
        if (i < vocab) {
          float x[N];
          nn_widen(x, some[j]);
#pragma unroll
          for (int e = 0; e < N; e++) {
            visit(key_of(x[e]), (int32_t)i + e);
          }
        }
      }
    }
  }
};

/* What a token weighs: nothing after the border, below the row of +inf, or where that is less than `least`. */
struct weigher {
  border last;
  float most, scale, least;

  /* exp((logit - largest) / temperature) in units of 2^-40. */
  __device__ __forceinline__ uint64_t of_key(uint32_t key) const {
    const float x = key == KEY_OF_INFINITY ? 0.0f : logit_of(key);
    const float weight = expf((x - most) * scale);
    return weight >= least ? __float2ull_rn(weight * 0x1p40f) : 0;
  }

  __device__ __forceinline__ uint64_t operator()(uint32_t key, int32_t index) const {
    return last.allows(key, index) ? of_key(key) : 0;
  }
};

struct one_each {
  border last;

  __device__ __forceinline__ uint64_t of_key(uint32_t) const { return 1; }
  __device__ __forceinline__ uint64_t operator()(uint32_t key, int32_t index) const { return last.allows(key, index); }
};

struct shared_row {
  /* Halves of the buckets' sums: shared memory adds 32 bits at a time. */
  uint32_t low[BUCKETS][COPIES], high[BUCKETS][COPIES];
  uint64_t warps[NN_WARP];
  uint64_t above, here; /* of the bucket found: the sum before it, and its own */
  uint32_t bucket;
  int32_t found;
};

static __device__ __forceinline__ void add_to_bucket(shared_row *s, uint32_t bucket, uint64_t x) {
  const int copy = threadIdx.x % COPIES;
  const uint32_t low = (uint32_t)x, before = atomicAdd(&s->low[bucket][copy], low);
  const uint32_t high = (uint32_t)(x >> 32) + (before + low < before);
  if (high != 0) {
    atomicAdd(&s->high[bucket][copy], high);
  }
}

/* The index of the `wanted`-th token (from 1) with this key; the last one where there are fewer. */
template <class T, int N>
static __device__ int32_t nth_of_key(const row<T, N> &r, uint32_t key, uint64_t wanted, shared_row *s) {
  uint64_t before = 0;
  for (int64_t first = 0; first < r.vocab && before < wanted; first += THREADS * N) {
    const int64_t i = first + (int64_t)threadIdx.x * N;
    uint32_t in[N] = {};
    uint64_t count = 0, total;
    if (i < r.vocab) {
      float x[N];
      nn_load(x, r.logits + i);
#pragma unroll
      for (int e = 0; e < N; e++) {
        in[e] = key_of(x[e]) == key;
        count += in[e];
      }
    }
    uint64_t number = before + scan_block(count, s->warps, &total);
#pragma unroll
    for (int e = 0; e < N; e++) {
      number += in[e];
      if (in[e] && number == wanted) {
        s->found = (int32_t)i + e;
      }
    }
    before += total;
  }
  __syncthreads();
  return s->found;
}

/*
 * The border of the shortest run of first tokens whose measures (their number, or their weights) reach the target,
 * which is target_of the measures of all together, and at most that.
 */
template <class T, int N, class MEASURE, class TARGET_OF>
static __device__ border find_border(const row<T, N> &r, const MEASURE &measure, TARGET_OF target_of, shared_row *s,
                                     uint64_t &sum_to_border) {
  uint32_t prefix = 0, known = 0; /* bits of the border's key */
  uint64_t above = 0;             /* measure of the tokens with a larger key */
  double target = 0.0;
  for (int shift = 32 - ROUND_BITS; shift >= 0; shift -= ROUND_BITS) {
    const uint32_t mask = BUCKETS - 1;
    for (int i = threadIdx.x; i < BUCKETS * COPIES; i += THREADS) {
      s->low[i / COPIES][i % COPIES] = s->high[i / COPIES][i % COPIES] = 0;
    }
    __syncthreads();
    r.each([&](uint32_t key, int32_t index) {
      if ((key & known) == prefix) {
        const uint64_t x = measure(key, index);
        if (x != 0) {
          add_to_bucket(s, key >> shift & mask, x);
        }
      }
    });
    __syncthreads();
    /* Four threads a bucket, from the highest down; the first of them has its sum. */
    constexpr int LANES = THREADS / BUCKETS;
    const int bucket = BUCKETS - 1 - (int)threadIdx.x / LANES, lane = threadIdx.x % LANES;
    uint64_t sum = 0, total;
#pragma unroll
    for (int copy = lane; copy < COPIES; copy += LANES) {
      sum += (uint64_t)s->high[bucket][copy] << 32 | s->low[bucket][copy];
    }
    sum = nn_warp_sum<LANES>(sum);
    sum = lane == 0 ? sum : 0;
    const uint64_t before = above + scan_block(sum, s->warps, &total);
    if (known == 0) { /* the first round has all of them */
      target = target_of(total);
    }
    if (sum != 0 && (double)before < target && (double)(before + sum) >= target) {
      s->bucket = (uint32_t)bucket;
      s->above = before;
      s->here = sum;
    }
    __syncthreads();
    above = s->above;
    prefix |= s->bucket << shift;
    known |= mask << shift;
    __syncthreads();
  }
  /* All that are left have the same key, and so the same measure. */
  const uint64_t each = measure.of_key(prefix), count = s->here / each;
  uint64_t wanted = (uint64_t)ceil((target - (double)above) / (double)each);
  wanted = wanted < 1 ? 1 : wanted > count ? count : wanted;
  while (wanted > 1 && (double)(above + (wanted - 1) * each) >= target) {
    wanted--; /* the quotient was rounded up */
  }
  sum_to_border = above + wanted * each;
  if (wanted == count) { /* all of them, as far as the border before this one lets through */
    return {prefix, prefix == measure.last.key ? measure.last.index : INT32_MAX};
  }
  return {prefix, nth_of_key(r, prefix, wanted, s)};
}

/* The first index whose cumulative weight is above word * 2^-32 of the sum of all. */
template <class T, int N>
static __device__ int32_t draw(const row<T, N> &r, const weigher &weight, uint64_t all, uint32_t word, shared_row *s) {
  const uint64_t target = __umul64hi(all, (uint64_t)word << 32);
  uint64_t before = 0, total = 0;
  for (int64_t first = 0; first < r.vocab && before <= target; first += THREADS * N) {
    const int64_t i = first + (int64_t)threadIdx.x * N;
    uint64_t weights[N] = {}, sum = 0;
    if (i < r.vocab) {
      float x[N];
      nn_load(x, r.logits + i);
#pragma unroll
      for (int e = 0; e < N; e++) {
        weights[e] = weight(key_of(x[e]), (int32_t)i + e);
        sum += weights[e];
      }
    }
    uint64_t cumulative = before + scan_block(sum, s->warps, &total);
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

template <class T, int N, class MEASURE>
static __device__ uint64_t sum_of(const row<T, N> &r, const MEASURE &measure, shared_row *s) {
  uint64_t sum = 0, total;
  r.each([&](uint32_t key, int32_t index) { sum += measure(key, index); });
  scan_block(sum, s->warps, &total);
  return total;
}

/* The first token in the order: its key above its index, turned round so that the lower one is larger. `count`: this
 * thread's tokens that may be drawn. */
template <class T, int N>
static __device__ uint64_t first_token(const row<T, N> &r, uint64_t *shared, uint32_t *count = nullptr) {
  uint64_t best = 0;
  uint32_t there = 0;
  r.each([&](uint32_t key, int32_t index) {
    const uint64_t x = (uint64_t)key << 32 | (uint32_t)~index;
    best = x > best ? x : best;
    there += key != 0;
  });
  if (count != nullptr) {
    *count = there;
  }
  return max_block(best, shared);
}

/* ---- the rows of a call ---- */

struct option_rules {
  nn_rule temperature, top_k, top_p, min_p, steps;
};

static __device__ bool options_hold(const nn_sample_args &a, int64_t r, const option_rules &rules) {
  const float temperature = a.temperature[r];
  if (!(temperature >= 0.0f && temperature < __int_as_float(0x7f800000))) {
    rules.temperature.broken(r, temperature);
    return false;
  }
  if (a.top_k != nullptr && a.top_k[r] < 1) {
    rules.top_k.broken_by(r, a.top_k[r]);
    return false;
  }
  if (a.top_p != nullptr && !(a.top_p[r] > 0.0f && a.top_p[r] <= 1.0f)) {
    rules.top_p.broken(r, a.top_p[r]);
    return false;
  }
  if (a.min_p != nullptr && !(a.min_p[r] >= 0.0f && a.min_p[r] <= 1.0f)) {
    rules.min_p.broken(r, a.min_p[r]);
    return false;
  }
  if (a.steps[r] < 0) {
    rules.steps.broken_by(r, a.steps[r]);
    return false;
  }
  return true;
}

/* Every thread of the block comes to the same decisions: they rest on what lies in memory and on sums of the block. */
template <class T, int N> static __device__ int32_t sample_row(const nn_sample_args &a, int64_t number, shared_row *s) {
  const row<T, N> r = {static_cast<const T *>(a.logits) + number * a.vocab, (int32_t)a.vocab};
  uint32_t there;
  const uint64_t first = first_token(r, s->warps, &there);
  const uint32_t best = (uint32_t)(first >> 32);
  const float temperature = a.temperature[number];
  if (best == 0) {
    return 0;
  }
  if (temperature == 0.0f || (a.top_k != nullptr && a.top_k[number] == 1)) {
    return (int32_t)~(uint32_t)first;
  }
  const bool infinite = best == KEY_OF_INFINITY; /* then only those are left, all alike */
  border last = {infinite ? KEY_OF_INFINITY : 1, INT32_MAX};
  if (a.top_k != nullptr && a.top_k[number] < a.vocab) {
    const one_each count = {last};
    const uint64_t top_k = (uint64_t)a.top_k[number];
    uint64_t all;
    if (infinite) {
      all = sum_of(r, count, s);
    } else {
      scan_block(there, s->warps, &all);
    }
    if (top_k < all) {
      last = find_border(r, count, [=](uint64_t) { return (double)top_k; }, s, all);
    }
  }
  const float inverse = 1.0f / temperature, largest = 3.402823466e38f; /* 0 times it must be 0 */
  const float scale = infinite ? 0.0f : inverse < largest ? inverse : largest;
  weigher weight = {last, infinite ? 0.0f : logit_of(best), scale, 0.0f};
  const double top_p = a.top_p == nullptr ? 1.0 : (double)a.top_p[number];
  uint64_t all;
  if (top_p < 1.0) {
    weight.last = find_border(r, weight, [=](uint64_t of_all) { return top_p * (double)of_all; }, s, all);
  } else {
    all = sum_of(r, weight, s);
  }
  if (a.min_p != nullptr && a.min_p[number] > 0.0f) {
    weight.least = a.min_p[number];
    all = sum_of(r, weight, s);
  }
  const uint32_t word = nn_philox((uint64_t)a.seeds[number], (uint64_t)a.steps[number], 0).w[0];
  return draw(r, weight, all, word, s);
}

// sass: sample_kernel<nn_bf16, 8> on sm_90: at least 2 LDG.128 under way, at most 64 registers
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) sample_kernel(nn_sample_args a, option_rules rules) {
  __shared__ shared_row s;
  for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
    if (threadIdx.x == 0) {
      s.found = options_hold(a, number, rules);
    }
    __syncthreads();
    const bool holds = s.found != 0;
    __syncthreads();
    const int32_t id = holds ? sample_row<T, N>(a, number, &s) : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      a.ids[number] = id;
    }
  }
}

template <class T, int N> static __global__ void __launch_bounds__(THREADS) argmax_kernel(nn_argmax_args a) {
  __shared__ uint64_t shared[NN_WARP];
  for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
    const row<T, N> r = {static_cast<const T *>(a.logits) + number * a.vocab, (int32_t)a.vocab};
    const uint64_t first = first_token(r, shared);
    if (threadIdx.x == 0) {
      a.ids[number] = first >> 32 == 0 ? 0 : (int32_t)~(uint32_t)first;
    }
  }
}

/* ---- log-probabilities ---- */

constexpr int MOST_LISTED = 128;

/* The first tokens of a row in any order: the key above the index, turned round so that the lower one is larger. */
struct first_tokens {
  uint64_t tokens[MOST_LISTED];
  int32_t count;
};

struct logprob_of {
  border last; /* of the tokens that may be drawn */
  double most, log_sum;

  __device__ __forceinline__ float operator()(uint32_t key, int32_t index) const {
    const double x = key == KEY_OF_INFINITY ? 0.0 : (double)logit_of(key);
    return last.allows(key, index) ? (float)(x - most - log_sum) : __int_as_float(0xff800000);
  }
};

/* Lists the first tokens of row `number`. */
template <class T, int N>
static __device__ void list_first(const nn_logprobs_args &a, int64_t number, const row<T, N> &r,
                                  const logprob_of &logprob, shared_row *s, first_tokens *f) {
  const one_each count = {logprob.last};
  border last = logprob.last;
  uint64_t listed = sum_of(r, count, s);
  if (listed > (uint64_t)a.n) {
    last = find_border(r, count, [=](uint64_t) { return (double)a.n; }, s, listed);
  }
  if (threadIdx.x == 0) {
    f->count = 0;
  }
  __syncthreads();
  r.each([&](uint32_t key, int32_t index) {
    if (last.allows(key, index)) {
      f->tokens[atomicAdd(&f->count, 1)] = (uint64_t)key << 32 | (uint32_t)~index;
    }
  });
  __syncthreads();
  const int32_t i = (int32_t)threadIdx.x;
  int32_t at = i, id = -1;
  float x = __int_as_float(0xff800000);
  if (i < f->count) {
    const uint64_t token = f->tokens[i];
    at = 0;
    for (int32_t j = 0; j < f->count; j++) {
      at += f->tokens[j] > token;
    }
    id = (int32_t)~(uint32_t)token;
    x = logprob((uint32_t)(token >> 32), id);
  }
  if (i < a.n && a.top_ids != nullptr) {
    a.top_ids[number * a.n + at] = id;
  }
  if (i < a.n && a.top_logprobs != nullptr) {
    a.top_logprobs[number * a.n + at] = x;
  }
  __syncthreads();
}
static_assert(MOST_LISTED <= THREADS, "a thread a token");

template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1) logprobs_kernel(nn_logprobs_args a, nn_range ids) {
  __shared__ shared_row s;
  __shared__ first_tokens f;
  for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
    const row<T, N> r = {static_cast<const T *>(a.logits) + number * a.vocab, (int32_t)a.vocab};
    const uint32_t best = (uint32_t)(first_token(r, s.warps) >> 32);
    const bool infinite = best == KEY_OF_INFINITY;
    const border last = {infinite ? KEY_OF_INFINITY : 1, INT32_MAX};
    const weigher weight = {last, infinite || best == 0 ? 0.0f : logit_of(best), infinite ? 0.0f : 1.0f, 0.0f};
    const uint64_t all = sum_of(r, weight, &s);
    const logprob_of logprob = {last, (double)weight.most, best == 0 ? 0.0 : log((double)all * 0x1p-40)};
    if (threadIdx.x == 0 && ids.holds(number, a.ids[number])) {
      const int32_t id = a.ids[number];
      a.logprobs[number] = logprob(key_of(nn_to_float(r.logits[id])), id);
    }
    if (a.top_ids != nullptr || a.top_logprobs != nullptr) {
      list_first(a, number, r, logprob, &s, &f);
    }
  }
}

static dim3 row_blocks(int64_t rows) {
  const int64_t most = 1 << 16;
  return dim3((unsigned)(rows < most ? rows : most));
}

template <class T> static int32_t sample_launch(nncuda_ctx *ctx, const nn_sample_args *a) {
  const bool wide = nn_aligned_16(a->logits) && nn_rows_16(a->vocab, a->vocab, a->dtype);
  const option_rules rules = {nn_rule_of(ctx, "temperature", "finite and at least 0"),
                              nn_rule_of(ctx, "top_k", "at least 1"), nn_rule_of(ctx, "top_p", "above 0 and at most 1"),
                              nn_rule_of(ctx, "min_p", "0 to 1"), nn_rule_of(ctx, "steps", "at least 0")};
  return nn_launch(ctx, wide ? sample_kernel<T, nn_per_16<T>> : sample_kernel<T, 1>, row_blocks(a->rows), dim3(THREADS),
                   0, *a, rules);
}

#define SAMPLE_KERNEL(op)                                                                                              \
  NN_KERNEL_OF(op, nn_sample_args) { NN_SWITCH_FLOATS(a->dtype, return sample_launch<T>(ctx, a)); }

SAMPLE_KERNEL(sample)
SAMPLE_KERNEL(topk_sample)
SAMPLE_KERNEL(topp_sample)
SAMPLE_KERNEL(minp_sample)

template <class T> static int32_t argmax_launch(nncuda_ctx *ctx, const nn_argmax_args *a) {
  const bool wide = nn_aligned_16(a->logits) && nn_rows_16(a->vocab, a->vocab, a->dtype);
  return nn_launch(ctx, wide ? argmax_kernel<T, nn_per_16<T>> : argmax_kernel<T, 1>, row_blocks(a->rows), dim3(THREADS),
                   0, *a);
}

NN_KERNEL(argmax) { NN_SWITCH_FLOATS(a->dtype, return argmax_launch<T>(ctx, a)); }

template <class T> static int32_t logprobs_launch(nncuda_ctx *ctx, const nn_logprobs_args *a) {
  const bool wide = nn_aligned_16(a->logits) && nn_rows_16(a->vocab, a->vocab, a->dtype);
  return nn_launch(ctx, wide ? logprobs_kernel<T, nn_per_16<T>> : logprobs_kernel<T, 1>, row_blocks(a->rows),
                   dim3(THREADS), 0, *a, nn_range_of(ctx, "ids", 0, a->vocab - 1));
}

NN_KERNEL(logprobs) { NN_SWITCH_FLOATS(a->dtype, return logprobs_launch<T>(ctx, a)); }

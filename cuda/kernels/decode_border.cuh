/*
 * The border of top_k and of top_p, the last token that may still be drawn, found by one block without sorting: a radix
 * search over the keys of the tokens, which adds up counts or weights a bucket.
 *
 * A row is read again in each pass, from the second cache: 128256 logits are 251 or 501 KiB. At the 64 bytes a cycle
 * that a multiprocessor gets from there a pass takes 4 to 8 thousand cycles. There are six passes with top_p: one for
 * the largest token, four of the search, one to draw; with top_k as well, ten, and one more with min_p.
 */
#ifndef NN_KERNELS_DECODE_BORDER_CUH
#define NN_KERNELS_DECODE_BORDER_CUH

#include "kernels/decode_row.cuh"

constexpr int ROUND_BITS = 8; /* of the key, in one round of the radix search */
constexpr int BUCKETS = 1 << ROUND_BITS;
/* Logits have few exponents, so that the lanes of a warp meet in a few buckets, and additions to one word wait for one
 * another: of each bucket there is a copy for every two lanes, in banks of their own. More bits a round, and so fewer
 * rounds, would leave no room for copies. By count. */
constexpr int COPIES = 16;

struct shared_row {
  /* Halves of the buckets' sums: shared memory adds 32 bits at a time. */
  uint32_t low[BUCKETS][COPIES], high[BUCKETS][COPIES];
  uint64_t warps[NN_WARP];
  uint64_t above, here; /* of the bucket found: the sum before it, and its own */
  uint32_t bucket;
  int32_t found;
};

/* Adds to a sum kept in halves. */
static __device__ __forceinline__ void add_to_halves(uint32_t *of_low, uint32_t *of_high, uint64_t x) {
  const uint32_t low = (uint32_t)x, before = atomicAdd(of_low, low);
  const uint32_t high = (uint32_t)(x >> 32) + (before + low < before);
  if (high != 0) {
    atomicAdd(of_high, high);
  }
}

/* The index of the `wanted`-th token (from 1) with this key; the last one where there are fewer. */
template <class T, int N, int THREADS>
static __device__ int32_t nth_of_key(const row<T, N, THREADS> &r, uint32_t key, uint64_t wanted, shared_row *s) {
  uint64_t before = 0;
  for (int64_t first = r.first; first < r.end && before < wanted; first += THREADS * N) {
    const int64_t i = first + (int64_t)threadIdx.x * N;
    uint32_t in[N] = {};
    uint64_t count = 0, total;
    if (i < r.end) {
      float x[N];
      nn_load(x, r.logits + i);
#pragma unroll
      for (int e = 0; e < N; e++) {
        in[e] = key_of(x[e]) == key;
        count += in[e];
      }
    }
    uint64_t number = before + scan_block<THREADS>(count, s->warps, &total);
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

/* Of tokens that measure `each`, and `here` together: how many it takes to reach the target from `above`. */
static __device__ __forceinline__ uint64_t equals_to_target(double target, uint64_t above, uint64_t each,
                                                            uint64_t here) {
  const uint64_t count = here / each;
  uint64_t wanted = (uint64_t)ceil((target - (double)above) / (double)each);
  wanted = wanted < 1 ? 1 : wanted > count ? count : wanted;
  while (wanted > 1 && (double)(above + (wanted - 1) * each) >= target) {
    wanted--; /* the quotient was rounded up */
  }
  return wanted;
}

/*
 * The border of the shortest run of first tokens whose measures (their number, or their weights) reach the target,
 * which is target_of the measures of all together, and at most that.
 */
template <class ROW, class MEASURE, class TARGET_OF>
static __device__ border find_border(const ROW &r, const MEASURE &measure, TARGET_OF target_of, shared_row *s,
                                     uint64_t &sum_to_border) {
  constexpr int THREADS = ROW::THREADS;
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
          const uint32_t bucket = key >> shift & mask, copy = threadIdx.x % COPIES;
          add_to_halves(&s->low[bucket][copy], &s->high[bucket][copy], x);
        }
      }
    });
    __syncthreads();
    /* A few threads a bucket, from the highest down; the first of them has its sum. */
    constexpr int LANES = THREADS / BUCKETS;
    static_assert(LANES >= 1 && COPIES % LANES == 0, "as many copies for each");
    const int bucket = BUCKETS - 1 - (int)threadIdx.x / LANES, lane = threadIdx.x % LANES;
    uint64_t sum = 0, total;
#pragma unroll
    for (int copy = lane; copy < COPIES; copy += LANES) {
      sum += (uint64_t)s->high[bucket][copy] << 32 | s->low[bucket][copy];
    }
    sum = nn_warp_sum<LANES>(sum);
    sum = lane == 0 ? sum : 0;
    const uint64_t before = above + scan_block<THREADS>(sum, s->warps, &total);
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
  const uint64_t each = measure.of_key(prefix), wanted = equals_to_target(target, above, each, s->here);
  sum_to_border = above + wanted * each;
  if (wanted == s->here / each) { /* all of them, as far as the border before this one lets through */
    return {prefix, prefix == measure.last.key ? measure.last.index : INT32_MAX};
  }
  return {prefix, nth_of_key(r, prefix, wanted, s)};
}

#endif

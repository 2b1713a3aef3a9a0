/*
 * What changes logits before a token is drawn: penalties, biases, masks, and the lists of tokens that penalties read. A
 * block takes a row; lists are short, so that one block is enough. By count.
 */
#include "abi/decode.h"

#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

constexpr int THREADS = 256;

static dim3 row_blocks(int64_t rows) {
  const int64_t most = 65535; /* also of a grid's second dimension */
  return dim3((unsigned)(rows < most ? rows : most));
}

/* ---- lists of tokens ---- */

struct count_rules {
  nn_range ids, lengths;
  nn_rule full;
};

/* Moves elements at .. length-1 of both lists one place on, from the end, so that none is overwritten before it is
 * read. Every thread of the block must come. */
static __device__ void make_place(int32_t *list, int32_t *counts, int64_t at, int64_t length) {
  for (int64_t end = length; end > at; end -= THREADS) {
    const int64_t i = end - 1 - threadIdx.x;
    int32_t id = 0, count = 0;
    if (i >= at) {
      id = list[i];
      count = counts[i];
    }
    __syncthreads();
    if (i >= at) {
      list[i + 1] = id;
      counts[i + 1] = count;
    }
    __syncthreads();
  }
}

static __global__ void __launch_bounds__(THREADS) count_kernel(nn_count_tokens_args a, count_rules rules) {
  __shared__ int64_t shared[NN_WARP];
  __shared__ int32_t goes_on;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    if (threadIdx.x == 0) {
      goes_on = rules.ids.holds(r, a.ids[r]) && rules.lengths.holds(r, a.seen_lengths[r]) && a.seen_lengths[r] >= 0;
    }
    __syncthreads();
    if (!goes_on) {
      __syncthreads();
      continue;
    }
    int32_t *const list = a.seen_ids + r * a.capacity, *const counts = a.seen_counts + r * a.capacity;
    const int64_t length = a.seen_lengths[r];
    const int32_t id = a.ids[r];
    int64_t below = 0;
    for (int64_t i = threadIdx.x; i < length; i += THREADS) {
      below += list[i] < id;
    }
    const int64_t at = nn_block_sum<THREADS>(below, shared);
    const bool there = at < length && list[at] == id;
    __syncthreads(); /* all have read it */
    if (there) {
      if (threadIdx.x == 0) {
        counts[at] += counts[at] < INT32_MAX;
      }
    } else if (length == a.capacity) {
      if (threadIdx.x == 0) {
        rules.full.broken_by(r, length);
      }
    } else {
      make_place(list, counts, at, length);
      if (threadIdx.x == 0) {
        list[at] = id;
        counts[at] = 1;
        a.seen_lengths[r] = (int32_t)length + 1;
      }
    }
    __syncthreads();
  }
}

NN_KERNEL(count_tokens) {
  const count_rules rules = {nn_range_of(ctx, "ids", 0, a->vocab - 1),
                             nn_range_of(ctx, "seen_lengths", -1, a->capacity).noted("the capacity"),
                             nn_rule_of(ctx, "seen_lengths", "below the capacity where a token is new")};
  return nn_launch(ctx, count_kernel, row_blocks(a->rows), dim3(THREADS), 0, *a, rules);
}

/* ---- penalties ---- */

/* Whether element i is an id, above that before it in its row, which begins at `first`. */
static __device__ __forceinline__ bool ascends(nn_range range, const int32_t *ids, int64_t first, int64_t i) {
  range.low = i == first ? 0 : (int64_t)ids[i - 1] + 1;
  return range.holds(i, ids[i]);
}

static nn_range ascending(nncuda_ctx *ctx, const char *name, int64_t vocab) {
  return nn_range_of(ctx, name, 0, vocab - 1).noted("ascending in its row");
}

struct penalty_rules {
  nn_rule presence, frequency, repetition, counts;
  nn_range lengths, ids;
};

static __device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }

static __device__ bool penalties_hold(const nn_penalize_logits_args &a, int64_t r, const penalty_rules &rules) {
  if (!is_finite(a.presence[r])) {
    rules.presence.broken(r, a.presence[r]);
    return false;
  }
  if (!is_finite(a.frequency[r])) {
    rules.frequency.broken(r, a.frequency[r]);
    return false;
  }
  if (!is_finite(a.repetition[r]) || a.repetition[r] <= 0.0f) {
    rules.repetition.broken(r, a.repetition[r]);
    return false;
  }
  return rules.lengths.holds(r, a.seen_lengths[r]);
}

template <class T>
static __global__ void __launch_bounds__(THREADS) penalize_kernel(nn_penalize_logits_args a, penalty_rules rules) {
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    if (!penalties_hold(a, r, rules)) {
      continue;
    }
    T *const logits = static_cast<T *>(a.logits) + r * a.vocab;
    const float presence = a.presence[r], frequency = a.frequency[r], repetition = a.repetition[r];
    const int64_t first = r * a.capacity;
    for (int64_t i = first + threadIdx.x; i < first + a.seen_lengths[r]; i += THREADS) {
      const int32_t count = a.seen_counts[i];
      if (count < 0) {
        rules.counts.broken_by(i, count);
        continue;
      }
      if (!ascends(rules.ids, a.seen_ids, first, i)) {
        continue;
      }
      T *const logit = logits + a.seen_ids[i];
      float x = nn_to_float(*logit);
      x = x > 0.0f ? x / repetition : x * repetition;
      if (count > 0) {
        x -= frequency * (float)count + presence;
      }
      *logit = nn_from_float<T>(x);
    }
  }
}

NN_KERNEL(penalize_logits) {
  const penalty_rules rules = {nn_rule_of(ctx, "presence", "finite"),
                               nn_rule_of(ctx, "frequency", "finite"),
                               nn_rule_of(ctx, "repetition", "finite and above 0"),
                               nn_rule_of(ctx, "seen_counts", "at least 0"),
                               nn_range_of(ctx, "seen_lengths", -1, a->capacity).noted("the capacity"),
                               ascending(ctx, "seen_ids", a->vocab)};
  NN_SWITCH_FLOATS(a->dtype,
                   return nn_launch(ctx, penalize_kernel<T>, row_blocks(a->rows), dim3(THREADS), 0, *a, rules));
}

/* ---- biases ---- */

struct bias_rules {
  nn_rule first, bias;
  nn_range offsets, ids;

  /* Whether the row's biases, from .. end-1, are such. */
  __device__ bool hold(int64_t r, int32_t from, int32_t end) const {
    if (r == 0 && from != 0) {
      first.broken_by(0, from);
      return false;
    }
    nn_range range = offsets;
    range.low = from;
    return from >= 0 && from <= range.high && range.holds(r + 1, end); /* else it was reported as an end */
  }
};

template <class T>
static __global__ void __launch_bounds__(THREADS) bias_kernel(nn_bias_logits_args a, bias_rules rules) {
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int32_t first = a.offsets[r], end = a.offsets[r + 1];
    if (!rules.hold(r, first, end)) {
      continue;
    }
    T *const logits = static_cast<T *>(a.logits) + r * a.vocab;
    for (int64_t i = first + (int64_t)threadIdx.x; i < end; i += THREADS) {
      if (!is_finite(a.bias[i])) {
        rules.bias.broken(i, a.bias[i]);
      } else if (ascends(rules.ids, a.ids, first, i)) {
        T *const logit = logits + a.ids[i];
        *logit = nn_from_float<T>(nn_to_float(*logit) + a.bias[i]);
      }
    }
  }
}

NN_KERNEL(bias_logits) {
  const bias_rules rules = {nn_rule_of(ctx, "offsets", "0"), nn_rule_of(ctx, "bias", "finite"),
                            nn_range_of(ctx, "offsets", 0, a->biases).noted("the number of biases"),
                            ascending(ctx, "ids", a->vocab)};
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, bias_kernel<T>, row_blocks(a->rows), dim3(THREADS), 0, *a, rules));
}

/* ---- masks ---- */

template <class T>
static __global__ void __launch_bounds__(THREADS) mask_kernel(nn_mask_logits_args a, nn_range range) {
  for (int64_t r = blockIdx.y; r < a.rows; r += gridDim.y) {
    const int32_t of = a.mask_of[r];
    if (!range.holds(r, of) || of < 0) {
      continue;
    }
    const int32_t *const mask = a.masks + of * a.words;
    T *const logits = static_cast<T *>(a.logits) + r * a.vocab;
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < a.vocab; t += (int64_t)gridDim.x * THREADS) {
      const uint32_t word = t / 32 < a.words ? (uint32_t)mask[t / 32] : 0;
      if (!(word >> (t % 32) & 1u)) {
        logits[t] = nn_from_float<T>(__int_as_float(0xff800000));
      }
    }
  }
}

NN_KERNEL(mask_logits) {
  constexpr int64_t EACH = 8; /* logits a thread, at least */
  const int64_t wanted = nn_ceil_div(a->vocab, THREADS * EACH), most = 65535;
  const dim3 grid((unsigned)(wanted < most ? wanted : most), row_blocks(a->rows).x);
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, mask_kernel<T>, grid, dim3(THREADS), 0, *a,
                                              nn_range_of(ctx, "mask_of", -1, a->n - 1)));
}

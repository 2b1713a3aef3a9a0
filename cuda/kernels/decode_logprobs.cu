/* Log-probabilities: a block takes a row, whose first tokens it finds by the search for the border of so many. */
#include "abi/decode.h"

#include "kernels/decode_border.cuh"

constexpr int THREADS = 1024;
constexpr int MOST_LISTED = 128;

/* The first tokens of a row (token_of), in any order. */
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
template <class ROW>
static __device__ void list_first(const nn_logprobs_args &a, int64_t number, const ROW &r, const logprob_of &logprob,
                                  shared_row *s, first_tokens *f) {
  const one_each count = {logprob.last};
  border last = logprob.last;
  uint64_t listed = sum_of(r, count, s->warps);
  if (listed > (uint64_t)a.n) {
    last = find_border(r, count, [=](uint64_t) { return (double)a.n; }, s, listed);
  }
  if (threadIdx.x == 0) {
    f->count = 0;
  }
  __syncthreads();
  r.each([&](uint32_t key, int32_t index) {
    if (last.allows(key, index)) {
      f->tokens[atomicAdd(&f->count, 1)] = token_of(key, index);
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
    id = index_of_token(token);
    x = logprob(key_of_token(token), id);
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
    const row<T, N, THREADS> r = {static_cast<const T *>(a.logits) + number * a.vocab, 0, (int32_t)a.vocab};
    const uint32_t best = key_of_token(first_token(r, s.warps));
    const bool infinite = best == KEY_OF_INFINITY;
    const border last = {infinite ? KEY_OF_INFINITY : 1, INT32_MAX};
    const weigher weight = {last, infinite || best == 0 ? 0.0f : logit_of(best), infinite ? 0.0f : 1.0f, 0.0f};
    const uint64_t all = sum_of(r, weight, s.warps);
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

template <class T> static int32_t logprobs_launch(nncuda_ctx *ctx, const nn_logprobs_args *a) {
  const bool wide = wide_rows(a->logits, a->vocab, a->dtype);
  return nn_launch(ctx, wide ? logprobs_kernel<T, nn_per_16<T>> : logprobs_kernel<T, 1>, row_blocks(a->rows),
                   dim3(THREADS), 0, *a, nn_range_of(ctx, "ids", 0, a->vocab - 1));
}

NN_KERNEL(logprobs) { NN_SWITCH_FLOATS(a->dtype, return logprobs_launch<T>(ctx, a)); }

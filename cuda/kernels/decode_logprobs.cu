/*
 * Log-probabilities. A block finds the first tokens of its row by the search for the border of so many. Few rows are
 * cut into parts, a block each, in two launches:
 *
 *   1. The first token of each part, and its first n, of which the row's are some.
 *   2. What the part's tokens weigh, once the row's first is known. The block of a row that ends last adds up the
 * parts, and lists the row's first tokens from theirs.
 *
 * The sums are of whole numbers: all bits are those of one block alone.
 */
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

/* visit(token) for each of the first n tokens of a row, or part, that the border allows, in any order. */
template <class ROW, class VISIT>
static __device__ __forceinline__ void each_first(const ROW &r, border last, int64_t n, shared_row *s, VISIT visit) {
  const one_each count = {last};
  uint64_t listed = sum_of(r, count, s->warps);
  if (listed > (uint64_t)n) {
    last = find_border(r, count, [=](uint64_t) { return (double)n; }, s, listed);
  }
  r.each([&](uint32_t key, int32_t index) {
    if (last.allows(key, index)) {
      visit(token_of(key, index));
    }
  });
}

/* Writes the tokens of *f in their order, and what they have; of a row `number`. */
static __device__ void put_first(const nn_logprobs_args &a, int64_t number, const logprob_of &logprob,
                                 const first_tokens *f) {
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

/* What a row's tokens weigh and have, of a row with this first token. */
struct row_weights {
  bool infinite, none;
  weigher weight;

  __device__ __forceinline__ explicit row_weights(uint32_t best)
      : infinite(best == KEY_OF_INFINITY), none(best == 0), weight{{infinite ? KEY_OF_INFINITY : 1, INT32_MAX},
                                                                   infinite || none ? 0.0f : logit_of(best),
                                                                   infinite ? 0.0f : 1.0f,
                                                                   0.0f} {}
  __device__ __forceinline__ logprob_of logprob(uint64_t all) const {
    return {weight.last, (double)weight.most, none ? 0.0 : log((double)all * 0x1p-40)};
  }
};

/* The token that is asked for; by one thread. */
template <class T>
static __device__ __forceinline__ void put_asked(const nn_logprobs_args &a, int64_t number, const nn_range &ids,
                                                 const logprob_of &logprob) {
  const int32_t id = a.ids[number];
  if (ids.holds(number, id)) {
    a.logprobs[number] = logprob(key_of(nn_to_float(static_cast<const T *>(a.logits)[number * a.vocab + id])), id);
  }
}

static __device__ __forceinline__ bool lists(const nn_logprobs_args &a) {
  return a.n > 0 && (a.top_ids != nullptr || a.top_logprobs != nullptr);
}

/* ---- a block a row ---- */

template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1) logprobs_kernel(nn_logprobs_args a, nn_range ids) {
  __shared__ shared_row s;
  __shared__ first_tokens f;
  for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
    const row<T, N, THREADS> r = {static_cast<const T *>(a.logits) + number * a.vocab, 0, (int32_t)a.vocab};
    const row_weights row_of(key_of_token(first_token(r, s.warps)));
    const logprob_of logprob = row_of.logprob(sum_of(r, row_of.weight, s.warps));
    if (threadIdx.x == 0) {
      put_asked<T>(a, number, ids, logprob);
    }
    if (lists(a)) {
      if (threadIdx.x == 0) {
        f.count = 0;
      }
      __syncthreads();
      each_first(r, logprob.last, a.n, &s, [&](uint64_t token) { f.tokens[atomicAdd(&f.count, 1)] = token; });
      __syncthreads();
      put_first(a, number, logprob, &f);
    }
  }
}

/* ---- a block a part ---- */

template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1) first_kernel(nn_logprobs_args a, nn_logprobs_space space) {
  __shared__ shared_row s;
  __shared__ int32_t count;
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t part = blockIdx.y * space.cut.parts + blockIdx.x;
  const auto r = row_part<T, N, THREADS>(a.logits, a.vocab, space.cut, blockIdx.y, blockIdx.x);
  const uint64_t first = first_token(r, s.warps);
  if (threadIdx.x == 0) {
    space.first[part] = first;
    count = 0;
  }
  if (!lists(a)) {
    return;
  }
  __syncthreads();
  uint64_t *const listed = space.listed + part * a.n;
  each_first(r, border{1, INT32_MAX}, a.n, &s, [&](uint64_t token) { listed[atomicAdd(&count, 1)] = token; });
  __syncthreads();
  for (int64_t i = count + (int64_t)threadIdx.x; i < a.n; i += THREADS) {
    listed[i] = 0;
  }
}

/* Tokens of the parts' lists among which the row's are sought; where more are left, the whole row is searched. */
constexpr int MOST_LEFT = NN_SAMPLE_SORTED;

struct shared_parts {
  uint64_t warps[NN_WARP];
  first_tokens first;
  int32_t is_last, count;
  union {
    uint64_t left[MOST_LEFT];
    shared_row row;
  };
};

/* Leaves in s->left those of the parts' first tokens that may be the row's: the largest last token of a full list is
 * reached by n of them at least, so that what is below is not. False where they are too many. */
static __device__ bool gather_left(const nn_logprobs_args &a, int64_t number, const nn_logprobs_space &space,
                                   const border &last, shared_parts *s) {
  const int32_t n = (int32_t)a.n, parts = (int32_t)space.cut.parts;
  const uint64_t *const listed = space.listed + number * parts * n;
  uint64_t least = 0;
  for (int32_t part = threadIdx.x / NN_WARP; part < parts; part += THREADS / NN_WARP) {
    uint64_t inverse = 0; /* of the lowest, all bits 1 where the list is not full */
    for (int32_t i = threadIdx.x % NN_WARP; i < n; i += NN_WARP) {
      inverse = larger_number::of(inverse, ~listed[part * n + i]);
    }
    least = larger_number::of(least, ~nn_warp_reduce<larger_number>(inverse));
  }
  least = max_block<THREADS>(least, s->warps);
  if (threadIdx.x == 0) {
    s->count = 0;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < parts * n; i += THREADS) {
    const uint64_t token = listed[i];
    if (token != 0 && token >= least && last.allows(key_of_token(token), index_of_token(token))) {
      const int32_t to = atomicAdd(&s->count, 1);
      if (to < MOST_LEFT) {
        s->left[to] = token;
      }
    }
  }
  __syncthreads();
  return s->count <= MOST_LEFT;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    weigh_kernel(nn_logprobs_args a, nn_range ids, nn_logprobs_space space, unsigned *arrivals) {
  __shared__ shared_parts s;
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t number = blockIdx.y, parts = space.cut.parts;
  const row_weights row_of(key_of_token(first_of_parts(space.first + number * parts, parts)));
  const uint64_t sum =
      sum_of(row_part<T, N, THREADS>(a.logits, a.vocab, space.cut, number, blockIdx.x), row_of.weight, s.warps);
  if (threadIdx.x == 0) {
    space.sums[number * parts + blockIdx.x] = sum;
  }
  if (!nn_is_last_block(arrivals + number, (unsigned)parts, &s.is_last)) {
    return;
  }
  uint64_t all = 0;
  for (int64_t part = threadIdx.x % NN_WARP; part < parts; part += NN_WARP) {
    all += nn_from_others(space.sums + number * parts + part);
  }
  const logprob_of logprob = row_of.logprob(nn_warp_sum(all));
  if (threadIdx.x == 0) {
    put_asked<T>(a, number, ids, logprob);
    s.first.count = 0;
  }
  if (!lists(a)) {
    return;
  }
  const auto enter = [&](uint64_t token) { s.first.tokens[atomicAdd(&s.first.count, 1)] = token; };
  if (gather_left(a, number, space, logprob.last, &s)) {
    for (int32_t i = threadIdx.x; i < s.count; i += THREADS) {
      const uint64_t token = s.left[i];
      int32_t larger = 0;
      for (int32_t j = 0; j < s.count; j++) {
        larger += s.left[j] > token;
      }
      if (larger < a.n) {
        enter(token);
      }
    }
  } else {
    const row<T, N, THREADS> whole = {static_cast<const T *>(a.logits) + number * a.vocab, 0, (int32_t)a.vocab};
    each_first(whole, logprob.last, a.n, &s.row, enter);
  }
  __syncthreads();
  put_first(a, number, logprob, &s.first);
}

/* ---- the launch ---- */

template <class T, int N>
static int32_t launch_parts(nncuda_ctx *ctx, const nn_logprobs_args *a, const nn_logprobs_space &space,
                            const nn_range &ids) {
  const dim3 grid((unsigned)space.cut.parts, (unsigned)a->rows);
  const int32_t status = nn_launch_ahead(ctx, first_kernel<T, N>, grid, dim3(THREADS), 0, *a, space);
  return status != NNCUDA_SUCCESS
             ? status
             : nn_launch_ahead(ctx, weigh_kernel<T, N>, grid, dim3(THREADS), 0, *a, ids, space, nn_gpu_arrivals(ctx));
}

template <class T, int N> static int32_t launch(nncuda_ctx *ctx, const nn_logprobs_args *a) {
  const nn_range ids = nn_range_of(ctx, "ids", 0, a->vocab - 1);
  const nn_logprobs_space space = nn_logprobs_lay_out(a, nn_workspace_of(ctx));
  return space.cut.parts > 1
             ? launch_parts<T, N>(ctx, a, space, ids)
             : nn_launch(ctx, logprobs_kernel<T, N>, dim3(row_blocks(a->rows)), dim3(THREADS), 0, *a, ids);
}

NN_KERNEL(logprobs) {
  const bool wide = wide_rows(a->logits, a->vocab, a->dtype);
  NN_SWITCH_FLOATS(a->dtype, return wide ? launch<T, nn_per_16<T>>(ctx, a) : launch<T, 1>(ctx, a));
}

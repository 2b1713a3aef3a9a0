/*
 * Draws from rows that are cut into parts, a block each, so that few rows fill the device: three launches, each of
 * which reads the logits once, where a block alone reads them six to eleven times.
 *
 *   1. The first token of each part, and its lowest. The blocks also clear the row's sums.
 *   2. With a limit: counts and weights of the row's tokens by bucket, 2048 equal steps of (largest - logit) /
 *      temperature over what weighs anything. A block adds up its part in shared memory, then to the row's sums.
 *   3. Every block finds, from those sums, the bucket of each border. Tokens before it are allowed, and their weights
 * are added up by part; those in it are listed. The block that comes last in its row sorts the list, finds the borders
 *      in it, then the part in which the draw falls, and the token in that part.
 *
 * So the border itself is found among the few tokens of a bucket. Where they are more than the list holds, as in a row
 * of equal logits, the last block draws from the whole row by itself (decode_sample.cuh). All sums are of whole
 * numbers: the token is the same as one block's alone, whatever the number of parts.
 *
 * No block waits for another: the order of the launches stands between the steps, and a counter finds the last block.
 * A row has 24 KiB of sums, which every block of step 3 reads from the second cache.
 */
#include "kernels/decode_sample.cuh"

constexpr int THREADS = 512;
constexpr int STEPS = NN_SAMPLE_BUCKETS, EACH = STEPS / THREADS; /* buckets, and those of a thread */
constexpr int MOST = NN_SAMPLE_SORTED, SORTED = MOST / THREADS;  /* tokens of a list, and those of a thread */
static_assert(EACH * THREADS == STEPS && SORTED * THREADS == MOST && MOST > 2, "as many for each thread");
static_assert(NN_SAMPLE_PARTS == 2 * NN_WARP, "two parts a lane");

struct smaller_number {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return a < b ? a : b; }
};

/* ---- 1. the first tokens ---- */

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) first_kernel(nn_sample_args a, nn_sample_space s) {
  __shared__ uint64_t shared[NN_WARP], lowest[NN_WARP];
  const int64_t part = blockIdx.x, number = blockIdx.y;
  uint64_t first = 0;
  uint32_t low = 0xffffffffu;
  row_part<T, N, THREADS>(a.logits, a.vocab, s.cut, number, part).each([&](uint32_t key, int32_t index) {
    first = larger_number::of(first, token_of(key, index));
    low = smaller_number::of(low, key - 1u); /* 0, never drawn, is the highest */
  });
  first = nn_block_reduce<larger_number, THREADS>(first, shared, (uint64_t)0);
  low = (uint32_t)nn_block_reduce<smaller_number, THREADS>((uint64_t)low, lowest, (uint64_t)0xffffffffu);
  if (threadIdx.x == 0) {
    s.first[number * s.cut.parts + part] = first;
    s.lowest[number * s.cut.parts + part] = low;
  }
  for (int64_t i = part * THREADS + threadIdx.x; i < STEPS; i += s.cut.parts * THREADS) {
    s.weights[number * STEPS + i] = 0;
    s.counts[number * STEPS + i] = 0;
  }
  if (part == 0 && threadIdx.x < 2) {
    s.found[number * 2 + threadIdx.x] = 0;
  }
}

/* ---- a row, once its first token is known ---- */

/* The least that weighs anything is 2^-41, which is exp(-28.4). */
constexpr float WEIGHTLESS = 29.0f;

struct row_choice {
  choice c;
  float factor; /* of a power of the weights, to the number of its bucket */

  /* Each warp of a block comes here; each finds the same. */
  static __device__ __forceinline__ row_choice of(const nn_sample_args &a, const nn_sample_space &s, int64_t number) {
    const int lane = threadIdx.x % NN_WARP;
    uint64_t first = 0;
    uint32_t low = 0xffffffffu;
    for (int64_t part = lane; part < s.cut.parts; part += NN_WARP) {
      first = larger_number::of(first, s.first[number * s.cut.parts + part]);
      low = smaller_number::of(low, s.lowest[number * s.cut.parts + part]);
    }
    first = nn_warp_reduce<larger_number>(first);
    low = nn_warp_reduce<smaller_number>(low);
    row_choice x = {choice(a, number, first), 0.0f};
    if (x.c.draws && x.c.weight.last.key != KEY_OF_INFINITY) {
      const float span = fminf(WEIGHTLESS, -x.c.weight.power(low + 1u));
      x.factor = span > 1e-30f ? (float)STEPS / span : 0.0f;
    }
    return x;
  }

  __device__ __forceinline__ bool limited() const { return c.top_k != 0 || c.top_p < 1.0; }

  /* The bucket of a token with this power, or STEPS if it weighs nothing. It rises in the order of tokens: each
   * operation on the way rounds monotonically. */
  __device__ __forceinline__ int bucket_of(float power) const {
    const float at = -power * factor;
    return !(-power <= WEIGHTLESS) ? STEPS : at < (float)(STEPS - 1) ? (int)at : STEPS - 1;
  }

  /* visit(bucket, power, key, index) for every token of the block's part that may be drawn and weighs anything. */
  template <class ROW, class VISIT> __device__ __forceinline__ void each(const ROW &r, VISIT visit) const {
    r.each([&](uint32_t key, int32_t index) {
      if (c.weight.last.allows(key, index)) {
        const float power = c.weight.power(key);
        const int bucket = bucket_of(power);
        if (bucket < STEPS) {
          visit(bucket, power, key, index);
        }
      }
    });
  }
};

/* ---- 2. counts and weights by bucket ---- */

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    bucket_kernel(nn_sample_args a, option_rules rules, nn_sample_space s) {
  __shared__ uint32_t low[STEPS], high[STEPS], counts[STEPS];
  const int64_t number = blockIdx.y;
  const row_choice x = row_choice::of(a, s, number);
  if (!x.c.draws || !x.limited() || !rules.hold(a, number, false)) {
    return;
  }
  for (int i = threadIdx.x; i < STEPS; i += THREADS) {
    low[i] = high[i] = counts[i] = 0;
  }
  __syncthreads();
  x.each(row_part<T, N, THREADS>(a.logits, a.vocab, s.cut, number, blockIdx.x),
         [&](int bucket, float power, uint32_t, int32_t) {
           add_to_halves(&low[bucket], &high[bucket], x.c.weight.of_power(power));
           atomicAdd(&counts[bucket], 1u);
         });
  __syncthreads();
  for (int i = threadIdx.x; i < STEPS; i += THREADS) {
    if (counts[i] != 0) {
      atomicAdd(&s.counts[number * STEPS + i], counts[i]);
      atomicAdd(reinterpret_cast<unsigned long long *>(&s.weights[number * STEPS + i]),
                (unsigned long long)high[i] << 32 | low[i]);
    }
  }
}

/* ---- 3. the borders and the draw ---- */

/* Where the borders lie. */
struct buckets_found {
  int first, last; /* where the border of the draw may be; all tokens before are allowed. STEPS: there is none */
  int of_k;        /* of top_k's border; STEPS: it has none */
  uint32_t k_before, k_here;                 /* tokens before that bucket, and in it */
  uint64_t before_first, before_k, k_weight; /* weights before `first`; before of_k, and in it */
  uint64_t all;                              /* of all tokens */
};

struct shared_choice {
  buckets_found at;
  uint64_t warps[NN_WARP];
  uint32_t low[NN_SAMPLE_PARTS], high[NN_SAMPLE_PARTS]; /* weights of what may be drawn, by part */
  uint32_t count;                                       /* of the list */
  int32_t is_last, crossing, part;
  uint64_t into; /* the target, from the part's first token on */
  union {
    uint64_t list[MOST];
    shared_row row;
  };
};

/* A thread's buckets: what lies before them, and they themselves. */
struct bucket_sums {
  uint64_t before, weights[EACH];
  uint32_t counts[EACH];

  /* The bucket in which the weights reach the target, which is above 0 and at most that of all, in *found. */
  __device__ __forceinline__ void reach(double target, int *found, uint64_t *before_found) const {
    uint64_t sum = before;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      if ((double)sum < target && (double)(sum + weights[e]) >= target) {
        *found = threadIdx.x * EACH + e;
        if (before_found != nullptr) {
          *before_found = sum;
        }
      }
      sum += weights[e];
    }
  }
};

/* Finds s->at. */
static __device__ void find_buckets(const row_choice &x, const nn_sample_space &space, int64_t number,
                                    shared_choice *s) {
  buckets_found *const at = &s->at;
  if (threadIdx.x == 0) {
    *at = {STEPS, STEPS, STEPS, 0, 0, 0, 0, 0, 0};
  }
  if (!x.limited()) {
    __syncthreads();
    return;
  }
  bucket_sums b;
  uint64_t sum = 0, count = 0, total;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int64_t i = number * STEPS + threadIdx.x * EACH + e;
    b.weights[e] = space.weights[i];
    b.counts[e] = space.counts[i];
    sum += b.weights[e];
    count += b.counts[e];
  }
  b.before = scan_block<THREADS>(sum, s->warps, &total);
  const uint64_t all = total;
  uint64_t counted = scan_block<THREADS>(count, s->warps, &total);
  if (x.c.top_k != 0) {
    uint64_t weight = b.before;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      if (counted < x.c.top_k && counted + b.counts[e] >= x.c.top_k) {
        at->of_k = threadIdx.x * EACH + e;
        at->k_before = (uint32_t)counted;
        at->k_here = b.counts[e];
        at->before_k = weight;
        at->k_weight = b.weights[e];
      }
      counted += b.counts[e];
      weight += b.weights[e];
    }
  }
  if (threadIdx.x == 0) {
    at->all = all;
  }
  __syncthreads();
  const bool cut = at->of_k != STEPS;
  if (x.c.top_p < 1.0) {
    /* top_p's share is of the weight up to top_k's border, which is between these two. */
    const double least = x.c.top_p * (double)(cut ? at->before_k : all);
    const double most = x.c.top_p * (double)(cut ? at->before_k + at->k_weight : all);
    if (least == 0.0 && threadIdx.x == 0) {
      at->first = 0;
    }
    b.reach(least, &at->first, &at->before_first);
    b.reach(most, &at->last, nullptr);
  } else if (cut && threadIdx.x == 0) {
    at->first = at->last = at->of_k;
    at->before_first = at->before_k;
  }
  __syncthreads();
}

/* Sorts a list in shared memory, the largest first; `size` is a power of two. */
static __device__ void sort_list(uint64_t *list, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += THREADS) {
        const int left = i / step * step * 2 + i % step, right = left + step;
        const uint64_t x = list[left], y = list[right];
        if ((x < y) == ((left & run) == 0)) {
          list[left] = y;
          list[right] = x;
        }
      }
    }
  }
  __syncthreads();
}

/* The tokens of the list, which is sorted, up to the border: how many. */
static __device__ int find_in_list(const row_choice &x, int n, shared_choice *s) {
  const buckets_found &at = s->at;
  const bool cut = at.of_k != STEPS;
  /* Those of top_k's bucket are the last of the list, and some of them lie before its border. */
  const int first_k = cut ? n - (int)at.k_here : n, end = cut ? first_k + (int)(x.c.top_k - at.k_before) : n;
  if (!(x.c.top_p < 1.0)) {
    return end;
  }
  const int own = threadIdx.x * SORTED;
  uint64_t weights[SORTED], sum = 0, of_k = 0, up_to_k;
#pragma unroll
  for (int e = 0; e < SORTED; e++) {
    weights[e] = own + e < end ? x.c.weight.of_key(key_of_token(s->list[own + e])) : 0;
    sum += weights[e];
    of_k += own + e >= first_k ? weights[e] : 0;
  }
  scan_block<THREADS>(of_k, s->warps, &up_to_k);
  const double target = x.c.top_p * (double)(cut ? at.before_k + up_to_k : at.all);
  uint64_t total, before = at.before_first + scan_block<THREADS>(sum, s->warps, &total);
#pragma unroll
  for (int e = 0; e < SORTED; e++) {
    if ((double)before < target && (double)(before + weights[e]) >= target) {
      s->crossing = own + e;
    }
    before += weights[e];
  }
  __syncthreads();
  /* The tokens with the key of that one, which all weigh the same: from where, how many, and what lies before. */
  const uint32_t key = key_of_token(s->list[s->crossing]);
  uint64_t equals = 0, earlier = 0, weight = 0;
#pragma unroll
  for (int e = 0; e < SORTED; e++) {
    const uint32_t its = own + e < end ? key_of_token(s->list[own + e]) : 0;
    equals += its == key;
    earlier += its > key;
    weight += its > key ? weights[e] : 0;
  }
  uint64_t all_equals, all_earlier, all_weight;
  scan_block<THREADS>(equals, s->warps, &all_equals);
  scan_block<THREADS>(earlier, s->warps, &all_earlier);
  scan_block<THREADS>(weight, s->warps, &all_weight);
  const uint64_t each = x.c.weight.of_key(key);
  return (int)(all_earlier + equals_to_target(target, at.before_first + all_weight, each, all_equals * each));
}

/* The row's token, from its parts' sums and its list. */
template <class T, int N>
static __device__ int32_t finish_row(const nn_sample_args &a, const nn_sample_space &space, int64_t number,
                                     row_choice x, shared_choice *s) {
  const uint32_t found = nn_from_others(&space.found[number * 2]);
  if (found > MOST) {
    const row<T, N, THREADS> whole = {static_cast<const T *>(a.logits) + number * a.vocab, 0, (int32_t)a.vocab};
    const uint64_t there = x.c.top_k == 0 ? 0 : sum_of(whole, one_each{x.c.weight.last}, s->warps);
    return sample_row(a, number, whole, x.c, there, &s->row);
  }
  const int n = (int)found;
  if (n > 0) {
    int size = 2;
    while (size < n) {
      size *= 2;
    }
    for (int i = threadIdx.x; i < size; i += THREADS) {
      s->list[i] = i < n ? nn_from_others(&space.near[number * MOST + i]) : 0;
    }
    sort_list(s->list, size);
  }
  for (int i = threadIdx.x; i < NN_SAMPLE_PARTS; i += THREADS) {
    const uint64_t sum = i < space.cut.parts ? nn_from_others(&space.sums[number * space.cut.parts + i]) : 0;
    s->low[i] = (uint32_t)sum;
    s->high[i] = (uint32_t)(sum >> 32);
  }
  const int allowed = n > 0 ? find_in_list(x, n, s) : 0;
  x.c.weight.least = x.c.min_p;
  if (allowed > 0) {
    const uint64_t token = s->list[allowed - 1];
    x.c.weight.last = {key_of_token(token), index_of_token(token)};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < allowed; i += THREADS) {
    const int64_t part = index_of_token(s->list[i]) / space.cut.length;
    add_to_halves(&s->low[part], &s->high[part], x.c.weight.of_key(key_of_token(s->list[i])));
  }
  __syncthreads();
  if (threadIdx.x < NN_WARP) { /* two parts a lane */
    const int i = 2 * (int)threadIdx.x;
    const uint64_t one = (uint64_t)s->high[i] << 32 | s->low[i];
    const uint64_t both = one + ((uint64_t)s->high[i + 1] << 32 | s->low[i + 1]), through = nn_warp_scan(both);
    const uint64_t target = drawn_weight(a, number, __shfl_sync(NN_ALL_LANES, through, NN_WARP - 1));
    if (through - both <= target && target < through) {
      const uint64_t into = target - (through - both);
      s->part = i + (into >= one);
      s->into = into >= one ? into - one : into;
    }
  }
  __syncthreads();
  return draw(row_part<T, N, THREADS>(a.logits, a.vocab, space.cut, number, s->part), x.c.weight, s->into, &s->row);
}

// sass: choose_kernel<nn_bf16, 8> on sm_90: at least 2 LDG.128 under way, at most 80 registers
template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    choose_kernel(nn_sample_args a, option_rules rules, nn_sample_space space) {
  __shared__ shared_choice s;
  const int64_t part = blockIdx.x, number = blockIdx.y;
  const row_choice x = row_choice::of(a, space, number);
  const bool holds = rules.hold(a, number, false);
  if (!holds || !x.c.draws) {
    if (part == 0 && threadIdx.x == 0) {
      a.ids[number] = rules.hold(a, number) ? x.c.id : 0;
    }
    return;
  }
  find_buckets(x, space, number, &s);
  if (threadIdx.x == 0) {
    s.count = 0;
  }
  __syncthreads();
  const buckets_found at = s.at;
  weigher weight = x.c.weight;
  weight.least = x.c.min_p;
  uint64_t sum = 0, total;
  x.each(row_part<T, N, THREADS>(a.logits, a.vocab, space.cut, number, part),
         [&](int bucket, float power, uint32_t key, int32_t index) {
           if (bucket < at.first) {
             sum += weight.of_power(power);
           } else if (bucket <= at.last || bucket == at.of_k) {
             const uint32_t to = atomicAdd(&s.count, 1u);
             if (to < MOST) {
               s.list[to] = token_of(key, index);
             }
           }
         });
  scan_block<THREADS>(sum, s.warps, &total);
  if (threadIdx.x == 0) {
    space.sums[number * space.cut.parts + part] = total;
    s.crossing = s.count == 0 ? 0 : (int32_t)atomicAdd(&space.found[number * 2], s.count);
  }
  __syncthreads();
  const int64_t to = s.crossing;
  for (int64_t i = threadIdx.x; i < s.count && to + i < MOST; i += THREADS) {
    space.near[number * MOST + to + i] = s.list[i];
  }
  if (!nn_is_last_block(&space.found[number * 2 + 1], (unsigned)space.cut.parts, &s.is_last)) {
    return;
  }
  const int32_t id = finish_row<T, N>(a, space, number, x, &s);
  if (threadIdx.x == 0) {
    a.ids[number] = id;
  }
}

template <class T, int N>
static int32_t launch_parts(nncuda_ctx *ctx, const nn_sample_args *a, const option_rules &rules,
                            const nn_sample_space &s) {
  const dim3 grid((unsigned)s.cut.parts, (unsigned)a->rows), block(THREADS);
  int32_t status = nn_launch(ctx, first_kernel<T, N>, grid, block, 0, *a, s);
  if (status == NNCUDA_SUCCESS && (a->top_k != nullptr || a->top_p != nullptr)) {
    status = nn_launch(ctx, bucket_kernel<T, N>, grid, block, 0, *a, rules, s);
  }
  return status == NNCUDA_SUCCESS ? nn_launch(ctx, choose_kernel<T, N>, grid, block, 0, *a, rules, s) : status;
}

int32_t nn_sample_parts(nncuda_ctx *ctx, const nn_sample_args *a, const option_rules &rules, const nn_sample_space &s) {
  const bool wide = wide_rows(a->logits, a->vocab, a->dtype);
  NN_SWITCH_FLOATS(a->dtype, return wide ? launch_parts<T, nn_per_16<T>>(ctx, a, rules, s)
                                         : launch_parts<T, 1>(ctx, a, rules, s));
}

/*
 * What choosing a token knows of a row of logits: its tokens in order, what each weighs, and sums over all of them.
 *
 * The order of tokens, higher logit first, then lower index, is that of their keys: 32-bit numbers that compare as the
 * logits do, equal for 0 and -0, and 0 for what is never drawn (NaN and -inf). Weights are added up as whole numbers of
 * 2^-40 of the largest: such sums are exact, so that neither their order, nor that of atomic additions, nor the number
 * of blocks that share a row decides a bit.
 */
#ifndef NN_KERNELS_DECODE_ROW_CUH
#define NN_KERNELS_DECODE_ROW_CUH

#include "kernels/decode_workspace.h"

#include "kernels/number.cuh"
#include "kernels/reduce.cuh"
#include "kernels/shared_work.cuh"

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

/* A token as a number that is larger the earlier it comes in the order: the key above the index, turned round. */
static __device__ __forceinline__ uint64_t token_of(uint32_t key, int32_t index) {
  return (uint64_t)key << 32 | (uint32_t)~index;
}
static __device__ __forceinline__ uint32_t key_of_token(uint64_t token) { return (uint32_t)(token >> 32); }
static __device__ __forceinline__ int32_t index_of_token(uint64_t token) { return (int32_t)~(uint32_t)token; }

/* ---- sums over a block ---- */

struct larger_number {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return a > b ? a : b; }
};

/* Sum of the threads before this one, and of all. Begins with a barrier, so `shared` (one a warp) may be used again. */
template <int THREADS>
static __device__ __forceinline__ uint64_t scan_block(uint64_t x, uint64_t *shared, uint64_t *total) {
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const uint64_t sum = nn_warp_scan(x);
  __syncthreads();
  if (lane == NN_WARP - 1) {
    shared[warp] = sum;
  }
  __syncthreads();
  const uint64_t of_warps = nn_warp_scan(lane < THREADS / NN_WARP ? shared[lane] : 0);
  *total = __shfl_sync(NN_ALL_LANES, of_warps, NN_WARP - 1);
  const uint64_t before = __shfl_sync(NN_ALL_LANES, of_warps, warp == 0 ? 0 : warp - 1);
  return sum - x + (warp == 0 ? 0 : before);
}

/* The largest, in every thread; begins with a barrier. */
template <int THREADS> static __device__ __forceinline__ uint64_t max_block(uint64_t x, uint64_t *shared) {
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

/* Tokens first .. end-1 of a row, which a block of THREADS threads reads in vectors of N; `first` is a multiple of N,
 * and so is `end` unless the row's does not allow N > 1. */
template <class T, int N, int THREADS_> struct row {
  static constexpr int THREADS = THREADS_;
  const T *logits;
  int32_t first, end;

  /* visit(key, index) for every token, a thread those of its own; a thread's are in rising order. */
  template <class VISIT> __device__ __forceinline__ void each(VISIT visit) const {
    constexpr int AHEAD = 2; /* loads under way */
    for (int64_t at = first + (int64_t)threadIdx.x * N; at < end; at += AHEAD * THREADS * N) {
      nn_vector<T, N> some[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int64_t i = at + j * THREADS * N;
        some[j] = nn_load_raw<N>(logits + (i < end ? i : at));
      }
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int64_t i = at + j * THREADS * N;
        if (i < end) {
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

/* Part `part` of row `number`, where rows are cut. */
template <class T, int N, int THREADS>
static __device__ __forceinline__ row<T, N, THREADS> row_part(const void *logits, int64_t vocab,
                                                              const nn_row_parts &cut, int64_t number, int64_t part) {
  const int64_t first = part * cut.length, end = first + cut.length;
  return {static_cast<const T *>(logits) + number * vocab, (int32_t)first, (int32_t)(end < vocab ? end : vocab)};
}

/* The first token of a row, in every lane, from those of its parts; whole warps come here. */
static __device__ __forceinline__ uint64_t first_of_parts(const uint64_t *first, int64_t parts) {
  uint64_t best = 0;
  for (int64_t part = threadIdx.x % NN_WARP; part < parts; part += NN_WARP) {
    best = larger_number::of(best, nn_from_others(first + part));
  }
  return nn_warp_reduce<larger_number>(best);
}

/* What a token weighs: nothing after the border, below the row of +inf, or where that is less than `least`. */
struct weigher {
  border last;
  float most, scale, least;

  /* (logit - largest) / temperature. */
  __device__ __forceinline__ float power(uint32_t key) const {
    const float x = key == KEY_OF_INFINITY ? 0.0f : logit_of(key);
    return (x - most) * scale;
  }

  /* exp of that in units of 2^-40. */
  __device__ __forceinline__ uint64_t of_power(float x) const {
    const float weight = expf(x);
    return weight >= least ? __float2ull_rn(weight * 0x1p40f) : 0;
  }

  __device__ __forceinline__ uint64_t of_key(uint32_t key) const { return of_power(power(key)); }

  __device__ __forceinline__ uint64_t operator()(uint32_t key, int32_t index) const {
    return last.allows(key, index) ? of_key(key) : 0;
  }
};

struct one_each {
  border last;

  __device__ __forceinline__ uint64_t of_key(uint32_t) const { return 1; }
  __device__ __forceinline__ uint64_t operator()(uint32_t key, int32_t index) const { return last.allows(key, index); }
};

template <class ROW, class MEASURE>
static __device__ uint64_t sum_of(const ROW &r, const MEASURE &measure, uint64_t *shared) {
  uint64_t sum = 0, total;
  r.each([&](uint32_t key, int32_t index) { sum += measure(key, index); });
  scan_block<ROW::THREADS>(sum, shared, &total);
  return total;
}

/* The first token in the order. `count`: this thread's tokens that may be drawn. */
template <class ROW> static __device__ uint64_t first_token(const ROW &r, uint64_t *shared, uint32_t *count = nullptr) {
  uint64_t best = 0;
  uint32_t there = 0;
  r.each([&](uint32_t key, int32_t index) {
    best = larger_number::of(best, token_of(key, index));
    there += key != 0;
  });
  if (count != nullptr) {
    *count = there;
  }
  return max_block<ROW::THREADS>(best, shared);
}

/* Whether rows of logits are read 16 bytes at a time. */
static inline bool wide_rows(const void *logits, int64_t vocab, int32_t dtype) {
  return nn_aligned_16(logits) && nn_rows_16(vocab, vocab, dtype);
}

/* Blocks for rows, one a row; many of them take several in turn. */
static inline unsigned row_blocks(int64_t rows) {
  const int64_t most = 65535; /* also across y */
  return (unsigned)(rows < most ? rows : most);
}

#endif

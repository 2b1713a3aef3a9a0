/*
 * Attention over paged caches (Kwon et al. 2023, "PagedAttention"). Each page of 128 keys gives a row (a query of one
 * head) its own maximum m, sum s of the powers of two below it, and output o; what follows is merged into what came
 * before, from (M, S, O) = (-FLT_MAX, 0, 0): M' = max(M, m), a = 2^(M - M'), b = 2^(m - M'), S' = fma(S, a, s b), O' =
 * fma(O, a, o b), and the result is O / S (Dao 2023, "FlashAttention-2"). Pages are merged so within each run of pages,
 * then the runs; a row has at most 64, of a length that follows from the keys that it sees (nn_run_length).
 *
 * For prompts a block goes through the pages of its rows and merges both as it goes. In decoding a block has a run, and
 * the last block of a row merges the runs. What a row sums, and in which order, does not depend on the other rows of
 * its block, and keys that it does not see take no part, not even times zero: so a token has the same bits in any
 * company.
 *
 * A block has the rows of one key head, as in attention.cuh, and 128 threads: one a key for the scores; for the output
 * each has 8 columns of some of the rows. Arithmetic is in f32. A page of q8_0 is widened as it is read. What
 * tensor cores can multiply goes another way: attention_paged_mma.cuh.
 *
 * A call with a window, a soft cap or sinks is a VARIANT, and goes this way whatever its format: its rows begin within
 * a page, and what lies before must not be multiplied by zero. A row's runs are counted from its first page. A sink is
 * added to the sum at the end.
 */
#ifndef NN_KERNELS_ATTENTION_PAGED_CUH
#define NN_KERNELS_ATTENTION_PAGED_CUH

#include "kernels/attention.cuh"
#include "kernels/paged.cuh"

constexpr int THREADS = NN_PAGE_TOKENS, WARPS = THREADS / NN_WARP;
constexpr float LEAST = -3.402823466e38f;

/*
 * Rows of a block, by padded head_dim: as many as leave the sums of a thread, of a page and of all before it, in
 * registers; in decoding, where a group is all there is, fewer. Values pass through shared memory
 * CHUNK keys at a time. By count.
 */
template <int D> constexpr int PREFILL_ROWS = D <= 128 ? 32 : 16;
constexpr int DECODE_ROWS = 8, CHUNK = 32;

template <int D, int ROWS> struct paged_layout {
  static constexpr int ACROSS = D / 8, LINES = THREADS / ACROSS; /* threads across a row, and rows at once */
  static constexpr int EACH = (ROWS + LINES - 1) / LINES;        /* rows of a thread */
  static constexpr int ITEMS = CHUNK / LINES, AT_ONCE = ITEMS < 4 ? ITEMS : 4; /* runs of 8 values of a thread */
  static constexpr int LD = NN_PAGE_TOKENS + 4;
  /* Queries, powers, values, and of each row three maxima and sums, and what two merges multiply by. */
  static constexpr size_t powers = sizeof(float) * ROWS * D, values = powers + sizeof(float) * ROWS * LD,
                          state = values + sizeof(float) * CHUNK * D, bytes = state + sizeof(float) * ROWS * 10;
};

struct paged_attention {
  nn_paged sequences;
  const void *q;
  const uint8_t *k, *v;
  void *out;
  float *partial; /* decoding: [batch][heads][most_runs][dim + 2], output, maximum and sum of a run */
  int64_t most_runs;
  float *before; /* prompts of more pages than runs, on tensor cores: as `out`, the sums of the runs before */
  int64_t ld_q, page_bytes, row_bytes;
  int32_t heads, kv_heads, group, dim, each; /* tokens of a block */
  int32_t dtype, format;                     /* of q and out; of pages */
  nn_split factor;                           /* scale * log2(e) */
  bool wide;                                 /* rows of pages are runs of 16 bytes */
  bool variant;
  /* Of a VARIANT: a score of each head, or null; keys that a row sees at most; what bounds scores, or 0. */
  const float *sinks;
  int64_t window;
  float cap;
};

/* A decoding step appends to its pages and reads them in one kernel, so no load may take them for constant. */
constexpr bool PAGES_STAY = false;

/* Elements d .. d+7 of a row of a page, in two steps so that many loads are under way before the first is waited for:
 * `load` leaves the words as they come, `get` makes numbers of them; zeros past the row's end. */
template <class F> struct page_8 {
  static constexpr int EACH = nn_per_16<F> < 8 ? nn_per_16<F> : 8, RUNS = 8 / EACH; /* of at most 16 bytes */
  nn_vector<F, EACH> words[RUNS];

  static __device__ __forceinline__ bool whole(int d, const paged_attention &p) { return p.wide && d + 8 <= p.dim; }

  __device__ __forceinline__ void load(const uint8_t *row, int d, const paged_attention &p) {
    if (whole(d, p)) {
#pragma unroll
      for (int i = 0; i < RUNS; i++) {
        words[i] = nn_load_raw<EACH>(reinterpret_cast<const F *>(row) + d + i * EACH);
      }
    }
  }

  __device__ __forceinline__ void get(float (&to)[8], const uint8_t *row, int d, const paged_attention &p) const {
    if (whole(d, p)) {
#pragma unroll
      for (int i = 0; i < RUNS; i++) {
        float some[EACH];
        nn_widen(some, words[i]);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
          to[i * EACH + e] = some[e];
        }
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
      to[e] = d + e < p.dim ? nn_number_at<F, PAGES_STAY>(row + (d + e) * (int)sizeof(F)) : 0.0f;
    }
  }
};

template <> struct page_8<nn_q8_0> {
  using S = nn_stored<NNCUDA_FORMAT_Q8_0>;
  uint32_t quants[nn_words_touched<8>], scale[nn_words_touched<2>];

  static __device__ __forceinline__ const uint8_t *block(const uint8_t *row, int d) {
    return row + d / S::BLOCK * S::BYTES;
  }

  __device__ __forceinline__ void load(const uint8_t *row, int d, const paged_attention &) {
    nn_load_touched<2, PAGES_STAY>(scale, block(row, d));
    nn_load_touched<8, PAGES_STAY>(quants, block(row, d) + 2 + d % S::BLOCK);
  }

  __device__ __forceinline__ void get(float (&to)[8], const uint8_t *row, int d, const paged_attention &) const {
    uint32_t number[1], bytes[2];
    nn_shift_touched<2>(number, scale, block(row, d));
    nn_shift_touched<8>(bytes, quants, block(row, d) + 2 + d % S::BLOCK);
    const float by = nn_low_f16(number[0]);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      to[e] = by * (float)(int8_t)(bytes[e / 4] >> (8 * (e % 4)));
    }
  }
};

/* The rows of a block: row r is token r / group of head r % group, counted from the first ones. */
struct paged_rows {
  nn_paged_sequence sequence;
  int64_t token; /* of row 0, among all */
  int32_t head, group, count;
  int64_t seen; /* keys that row 0 sees */

  __device__ __forceinline__ int32_t further(int32_t r) const { return (int32_t)((uint32_t)r / (uint32_t)group); }
  __device__ __forceinline__ int64_t sees(int32_t r) const { return seen + further(r); }
  /* The first key of the window. */
  __device__ __forceinline__ int64_t from(int32_t r, int64_t window) const {
    const int64_t key = sees(r) - window;
    return key < 0 ? 0 : key;
  }
  __device__ __forceinline__ int64_t at(int32_t r, int64_t ld, int32_t dim) const {
    const int32_t on = further(r);
    return (token + on) * ld + (int64_t)(head + r - on * group) * dim;
  }
};

/* Where the parts of shared memory lie. */
template <int D, int ROWS> struct paged_space {
  using L = paged_layout<D, ROWS>;
  float *q, *powers, *values;
  float *part_peak, *part_sum, *run_peak, *run_sum, *peak, *sum; /* of a page, of its run, of the runs before it */
  float *old_factor, *part_factor;                               /* of the run, and of the page that joins it */
  float *before_factor, *run_factor; /* of the runs before, and of a whole run that joins them; negative: none does */

  __device__ __forceinline__ explicit paged_space(unsigned char *shared)
      : q(reinterpret_cast<float *>(shared)), powers(reinterpret_cast<float *>(shared + L::powers)),
        values(reinterpret_cast<float *>(shared + L::values)), part_peak(reinterpret_cast<float *>(shared + L::state)),
        part_sum(part_peak + ROWS), run_peak(part_sum + ROWS), run_sum(run_peak + ROWS), peak(run_sum + ROWS),
        sum(peak + ROWS), old_factor(sum + ROWS), part_factor(old_factor + ROWS), before_factor(part_factor + ROWS),
        run_factor(before_factor + ROWS) {}
};

/* One page: its maximum and sum of each row in shared memory, its output in `part`. `before`: keys in earlier pages. */
template <bool VARIANT, class F, int D, int ROWS>
__device__ __forceinline__ void page_part(const paged_attention &p, const paged_rows &rows,
                                          const paged_space<D, ROWS> &space, const uint8_t *keys, const uint8_t *values,
                                          int64_t before, float (&part)[paged_layout<D, ROWS>::EACH][8]) {
  using L = paged_layout<D, ROWS>;
  const int key = threadIdx.x, lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t most = rows.sees(rows.count - 1) - before;
  const int count = most < NN_PAGE_TOKENS ? (int)most : (int)NN_PAGE_TOKENS; /* of keys that a row sees */
  /* The first key of the page that row r sees. */
  const auto from = [&](int r) {
    const int64_t key = VARIANT ? rows.from(r, p.window) - before : 0;
    return key < 0 ? 0 : key < NN_PAGE_TOKENS ? (int)key : (int)NN_PAGE_TOKENS;
  };
  const int least = from(0);
  float score[ROWS] = {};
  if (key < count && key >= least) {
    const uint8_t *const row = keys + key * p.row_bytes;
    constexpr int AHEAD = ROWS <= DECODE_ROWS ? 4 : 2; /* registers of a prompt are full of scores and outputs */
#pragma unroll 1
    for (int first = 0; first < D && first < p.dim; first += 8 * AHEAD) {
      page_8<F> loaded[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (first + 8 * i < p.dim) {
          loaded[i].load(row, first + 8 * i, p);
        }
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        const int d = first + 8 * i;
        if (d >= p.dim) {
          break;
        }
        float k[8];
        loaded[i].get(k, row, d, p);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
          for (int e = 0; e < 8; e += 4) {
            float q[4];
            nn_load_4(q, space.q + r * D + d + e);
#pragma unroll
            for (int j = 0; j < 4; j++) {
              score[r] = fmaf(q[j], k[e + j], score[r]);
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    space.powers[r * L::LD + key] = score[r];
  }
  __syncthreads();
  for (int r = warp; r < rows.count; r += WARPS) {
    float *const power = space.powers + r * L::LD;
    const int64_t seen = rows.sees(r) - before;
    const int first = from(r);
    float peak = LEAST, sum = 0.0f;
#pragma unroll
    for (int i = lane; i < NN_PAGE_TOKENS; i += NN_WARP) {
      if (VARIANT && p.cap != 0.0f) {
        power[i] = p.cap * tanhf(power[i]);
      }
      peak = i < seen && i >= first ? nn_larger::of(power[i], peak) : peak;
    }
    peak = nn_warp_max(peak);
#pragma unroll
    for (int i = lane; i < NN_PAGE_TOKENS; i += NN_WARP) {
      const float x = i < seen && i >= first ? nn_exp2_approx(power[i] - peak) : 0.0f;
      power[i] = x;
      sum += x;
    }
    sum = nn_warp_sum(sum);
    if (lane == 0) {
      space.part_peak[r] = peak;
      space.part_sum[r] = sum;
    }
  }
#pragma unroll
  for (int i = 0; i < L::EACH; i++) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      part[i][e] = 0.0f;
    }
  }
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  for (int first = least / CHUNK * CHUNK; first < count; first += CHUNK) {
    __syncthreads();
#pragma unroll
    for (int begin = 0; begin < L::ITEMS; begin += L::AT_ONCE) {
      page_8<F> loaded[L::AT_ONCE];
#pragma unroll
      for (int i = 0; i < L::AT_ONCE; i++) {
        const int n = line + (begin + i) * L::LINES;
        if (first + n < count && column < p.dim) {
          loaded[i].load(values + (first + n) * p.row_bytes, column, p);
        }
      }
#pragma unroll
      for (int i = 0; i < L::AT_ONCE; i++) {
        const int n = line + (begin + i) * L::LINES;
        if (first + n < count && column < p.dim) {
          float x[8];
          loaded[i].get(x, values + (first + n) * p.row_bytes, column, p);
          float4 *const to = reinterpret_cast<float4 *>(space.values + n * D + column);
          to[0] = make_float4(x[0], x[1], x[2], x[3]);
          to[1] = make_float4(x[4], x[5], x[6], x[7]);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < L::EACH; i++) {
      const int r = line + i * L::LINES;
      if (r >= rows.count || column >= p.dim) {
        continue;
      }
      const int64_t left = rows.sees(r) - before - first;
      const int here = (int)(left < 0 ? 0 : left < CHUNK ? left : CHUNK);
#pragma unroll 4
      for (int n = VARIANT && from(r) > first ? from(r) - first : 0; n < here; n++) {
        const float power = space.powers[r * L::LD + first + n];
        float v[4];
#pragma unroll
        for (int e = 0; e < 8; e += 4) {
          nn_load_4(v, space.values + n * D + column + e);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            part[i][e + j] = fmaf(power, v[j], part[i][e + j]);
          }
        }
      }
    }
  }
}

/* Element d of the query that begins at element `at` of q. */
struct plain_query {
  const paged_attention &p;
  __device__ __forceinline__ float operator()(int64_t at, int d) const { return nn_element_of(p.q, at + d, p.dtype); }
};

/* A block's queries, multiplied by the factor of their scores; zeros beyond rows and columns. */
template <int D, int ROWS, class QUERY>
__device__ __forceinline__ void load_queries(const paged_attention &p, const paged_rows &rows, const QUERY &query,
                                             const paged_space<D, ROWS> &space) {
  for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
    const int r = i / D, d = i % D;
    space.q[i] = r < rows.count && d < p.dim ? nn_times(query(rows.at(r, p.ld_q, p.dim), d), p.factor) : 0.0f;
  }
}

/* Of a VARIANT: what the sum of row r, whose maximum is `peak`, is larger by. */
__device__ __forceinline__ float sink_of(const paged_attention &p, const paged_rows &rows, int32_t r, float peak) {
  if (p.sinks == nullptr) {
    return 0.0f;
  }
  return nn_exp2_approx(p.sinks[rows.head + r % rows.group] * 1.44269504f - peak);
}

/* What both calls have in common; `offsets`: null in decoding. */
inline paged_attention paged_attention_of(nncuda_ctx *ctx, const nn_flash_attention_paged_args *a,
                                          const int32_t *offsets) {
  const int64_t row_bytes = a->page_bytes / (a->kv_heads * NN_PAGE_TOKENS);
  return {nn_paged_of(ctx, offsets, a->lengths, a->page_table, offsets == nullptr ? a->batch : a->tokens, a->batch,
                      a->max_pages, a->pages),
          a->q,
          static_cast<const uint8_t *>(a->k_pages),
          static_cast<const uint8_t *>(a->v_pages),
          a->out,
          nullptr,
          0,
          nullptr,
          a->ld_q,
          a->page_bytes,
          row_bytes,
          (int32_t)a->heads,
          (int32_t)a->kv_heads,
          (int32_t)(a->heads / a->kv_heads),
          (int32_t)a->head_dim,
          1,
          a->dtype,
          a->format,
          nn_split_of(a->softcap == 0.0f ? (double)a->scale * NN_LOG2E : (double)a->scale / a->softcap),
          nn_aligned_16(a->k_pages, a->v_pages) && row_bytes % 16 == 0,
          nn_paged_is_variant(a) != 0,
          a->sinks,
          a->window == 0 || a->window > INT32_MAX ? (int64_t)INT32_MAX : a->window,
          (float)((double)a->softcap * NN_LOG2E)};
}

/* Runs `statement` with F the type of a page's elements and D the padded head_dim. */
#define PAGED_SWITCH_DIM(dim, ...)                                                                                     \
  if ((dim) <= 64) {                                                                                                   \
    constexpr int D = 64;                                                                                              \
    __VA_ARGS__;                                                                                                       \
  } else if ((dim) <= 128) {                                                                                           \
    constexpr int D = 128;                                                                                             \
    __VA_ARGS__;                                                                                                       \
  } else {                                                                                                             \
    constexpr int D = 256;                                                                                             \
    __VA_ARGS__;                                                                                                       \
  }
#define PAGED_SWITCH(p, format, ...) NN_SWITCH_PAGES(format, PAGED_SWITCH_DIM((p).dim, __VA_ARGS__))

#endif

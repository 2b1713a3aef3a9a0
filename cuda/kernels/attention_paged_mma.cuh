/*
 * A page of keys on the tensor cores (mma.sync, sm_80+), for caches in f16, bf16, q8_0 and e4m3: what
 * attention_paged.cuh says of a page, with another order of its sums. Prompts and decoding share it, so that a token
 * has the same bits in both.
 *
 * mma multiplies 16-bit numbers exactly and adds in f32. A query is f32, and so are the powers of two of a page: each
 * is written as a sum of 16-bit parts, two of f16 (22 bits and a sign) or three of bf16 (24 bits), and so nothing is
 * lost that f32 arithmetic would keep:
 *
 *   score   for each part a chain of mma over the head's elements, 16 at a time; the chains are added from the smallest
 *           part up, then multiplied by the factor
 *   m, s    as before; of s, a lane adds its keys (2t and 2t + 1 of every eight) in their order, then four lanes
 *   output  for each part a chain of mma over the page's keys, 16 at a time; added likewise
 *
 * f16 has few exponents. A row of queries is multiplied by a power of two that puts its largest element between 2^14
 * and 2^15, and a power by 2^15: what the low part then drops is below 2^-40 of the largest.
 *
 * Numbers of e4m3 are multiplied as the same ones of f16. Blocks of q8_0 have whole numbers, exact in bf16, and a
 * scale. A score is the sum over its blocks, one fma each, of scale times the block's product; a power is multiplied by
 * a value's scale before it is split.
 *
 * Keys that a row does not see are powers of 0, and values that no row of the block sees are 0, too. Values that some
 * rows see and some do not are multiplied by 0 there, which gives NaN if they are infinite: then the tokens of the
 * block are taken one after another, the last one first, and the values that the next one does not see become 0 in
 * between. Zeros change no sum, so that a row's bits follow from what it sees alone.
 */
#ifndef NN_KERNELS_ATTENTION_PAGED_MMA_CUH
#define NN_KERNELS_ATTENTION_PAGED_MMA_CUH

#include "kernels/attention_paged_stage.cuh"

/* The sum of a number's parts, the smallest first. It is never -0: a merge into nothing and no merge are the same. */
template <int PARTS, int COUNT>
__device__ __forceinline__ float joined(const float (&parts)[PARTS][COUNT][4], int n, int e) {
  float x = parts[PARTS - 1][n][e] + 0.0f;
#pragma unroll
  for (int part = PARTS - 2; part >= 0; part--) {
    x += parts[part][n][e];
  }
  return x;
}

/* One page after another, for the rows of a warp: in its lane's registers are rows `row[half]`, and of them the columns
 * 8n + 2t and 8n + 2t + 1 of the warp's sums. */
template <class L> struct paged_pages {
  using T = typename L::T;
  static constexpr bool IS_F16 = nn_mma_type<T>::is_f16;
  static constexpr float UP = IS_F16 ? 32768.0f : 1.0f;
  static constexpr int GROUP =
      L::MY_KEYS < 32 || L::PARTS > 2 ? 2 : 4; /* eights of keys whose parts are in registers */

  const paged_attention &p;
  unsigned char *const shared;
  const paged_block &block;
  paged_loader<L> &loader;
  const uint32_t address;
  const int lane, pair, across, first_row;
  float score[NN_PAGE_TOKENS / 8][4];
  int sees[2], seen[2]; /* keys of all, and of the page; none where there is no row */
  float peak[2], sum[2];

  __device__ __forceinline__ paged_pages(const paged_attention &of, unsigned char *space, paged_loader<L> &from)
      : p(of), shared(space), block(from.block), loader(from), address(nn_shared_address(space)),
        lane(threadIdx.x % NN_WARP), pair(2 * (lane % 4)), across(threadIdx.x / NN_WARP % L::ACROSS),
        first_row(threadIdx.x / NN_WARP / L::ACROSS * 16) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      sees[half] = row(half) < block.rows.count ? (int)block.rows.sees(row(half)) : 0;
    }
  }

  /* Whether the warp has rows. */
  __device__ __forceinline__ bool busy() const { return first_row < block.rows.count; }
  __device__ __forceinline__ int row(int half) const { return first_row + lane / 4 + 8 * half; }
  /* The lane's first column among the warp's, and the first of two among the warp's 8n .. 8n + 7. */
  __device__ __forceinline__ int column() const { return (int)nn_anew(across * L::COLUMNS + pair); }
  static __device__ __forceinline__ int column(int first, int n) {
    constexpr int EACH = L::COLUMNS / 8;
    return n / EACH * VALUE_COLUMNS + n % EACH * 8 + first;
  }
  /* Where a row is in `out`. */
  __device__ __forceinline__ int64_t out_at(int half) const {
    return block.rows.at(row(half), (int64_t)p.heads * p.dim, p.dim);
  }
  /* Pages of a row's runs. */
  __device__ __forceinline__ int run_length(int half) const {
    return (int)nn_run_length(nn_ceil_div(sees[half], NN_PAGE_TOKENS));
  }
  /* Maximum and sum of a row's runs before. Each lane keeps them by itself: lanes of other rows may be elsewhere. */
  __device__ __forceinline__ float2 &before(int half) const {
    return reinterpret_cast<float2 *>(shared + L::sums)[half * L::THREADS + threadIdx.x];
  }

  /* Page i, which begins `before` keys on: its scores, maximum and sum. */
  __device__ __forceinline__ void begin(int i) {
    const int count = block.count(i);
#pragma unroll
    for (int c = 0; c < L::CHUNKS; c++) {
      if (c * L::KEYS < count) {
        const uint32_t keys = next<L::D, L::KEYS, L::KEY_WORDS>(count - c * L::KEYS, p.dim);
        if (busy()) {
          multiply_keys(c, keys);
        } else {
          no_scores(c);
        }
      } else {
        no_scores(c);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int left = sees[half] - i * (int)NN_PAGE_TOKENS;
      seen[half] = left < 0 ? 0 : left < NN_PAGE_TOKENS ? left : (int)NN_PAGE_TOKENS;
    }
    first_values = next<VALUE_COLUMNS, NN_PAGE_TOKENS, L::VALUE_WORDS>(count, p.dim);
    peak[0] = peak[1] = sum[0] = sum[1] = 0.0f;
    if (!busy()) {
      return;
    }
    if constexpr (L::ACROSS > 1) {
      const float *const scores = reinterpret_cast<const float *>(shared + L::scores);
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float2 two = *reinterpret_cast<const float2 *>(scores + row(half) * L::SCORE_LD + 8 * n + pair);
          score[n][2 * half] = two.x;
          score[n][2 * half + 1] = two.y;
        }
      }
    }
    softmax();
  }

  /* The page's output, which is merged into `run` of the rows that see some of the page. */
  __device__ __forceinline__ void finish(int i, const float2 (&factor)[2], float (&run)[L::SUMS][4]) {
    const int count = block.count(i);
    uint32_t power[L::IN_BLOCKS ? 1 : NN_PAGE_TOKENS / 16][L::PARTS][4];
    if constexpr (!L::IN_BLOCKS) {
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 16; n++) {
        split_powers(power[n], n, nullptr, 0);
      }
    }
#pragma unroll
    for (int c = 0; c < L::CHUNKS; c++) {
      const int width = p.dim - c * VALUE_COLUMNS;
      if (width <= 0) {
        break;
      }
      const uint32_t values = c == 0 ? first_values : next<VALUE_COLUMNS, NN_PAGE_TOKENS, L::VALUE_WORDS>(count, width);
      int token = infinite_values(i, count, values) ? block.rows.further(block.rows.count - 1) : -1;
      do {
        if (token >= 0) {
          hide_value((int)block.rows.seen + token - i * (int)NN_PAGE_TOKENS, values);
        }
        bool joins[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          joins[half] = seen[half] > 0 && (token < 0 || (int)block.rows.seen + token == sees[half]);
        }
        if (!busy()) {
          /* but it comes to the barriers */
        } else if constexpr (L::IN_BLOCKS) {
          multiply_blocks(c, values, factor, joins, run);
        } else {
          multiply_values(c, values, power, factor, joins, run);
        }
        token--;
      } while (token >= 0);
    }
  }

private:
  uint32_t first_values; /* columns of the page's values */

  /* Where there are no scores. They must not seem to come from the page before: they would keep their registers. */
  __device__ __forceinline__ void no_scores(int c) {
    if constexpr (L::ACROSS == 1) {
#pragma unroll
      for (int n = 0; n < L::KEYS / 8; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          score[c * L::KEYS / 8 + n][e] = 0.0f;
        }
      }
    }
  }

  /* Waits for the next stage and starts to load one more; the address of its tile. */
  template <int WIDTH, int ROWS, int WORDS> __device__ __forceinline__ uint32_t next(int count, int width) {
    nn_copy_async_wait<L::STAGES - 2>();
    __syncthreads(); /* the stage is there, and the one before no longer needed */
    loader.next();
    const int here = loader.stage; /* where the load after the last that is under way will go */
    if constexpr (L::WIDENED) {
      widen_numbers<L, WIDTH, ROWS, WORDS>(p, shared, here, count, width);
      __syncthreads();
      return address + L::tile;
    }
    return address + L::ring + here * L::STAGE;
  }

  /* Scores of the warp's keys of chunk c: to registers, or where the warps of a row exchange them. */
  __device__ __forceinline__ void multiply_keys(int c, uint32_t keys) {
    const nn_mma_lane<L::D> place(nn_anew(threadIdx.x));
    const float2 *const factors = reinterpret_cast<const float2 *>(shared + L::factors);
    const float2 factor[2] = {factors[row(0)], factors[row(1)]};
#pragma unroll
    for (int group = 0; group < L::MY_KEYS / (8 * GROUP); group++) {
      const int key = across * L::MY_KEYS + group * 8 * GROUP; /* of the stage */
      float part[L::PARTS][GROUP][4] = {}, total[GROUP][4] = {};
#pragma unroll
      for (int d = 0; d < L::D / 16; d++) {
        uint32_t a[L::PARTS][4];
#pragma unroll
        for (int i = 0; i < L::PARTS; i++) {
          place.load_a(a[i], address + i * L::q_part, first_row, d);
        }
#pragma unroll
        for (int n = 0; n < GROUP / 2; n++) {
          uint32_t b[4];
          place.load_b(b, keys, key + 16 * n, d);
#pragma unroll
          for (int i = 0; i < L::PARTS; i++) {
            nn_mma_m16n8k16<T>(part[i][2 * n], a[i], b[0], b[1]);
            nn_mma_m16n8k16<T>(part[i][2 * n + 1], a[i], b[2], b[3]);
          }
        }
        if (L::IN_BLOCKS && d % 2 == 1) {
          const float *const scales = reinterpret_cast<const float *>(shared + L::scales) + d / 2;
#pragma unroll
          for (int n = 0; n < GROUP; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              const float scale = scales[(key + 8 * n + pair + e % 2) * L::KEY_BLOCKS];
              total[n][e] = fmaf(scale, joined(part, n, e), total[n][e]);
#pragma unroll
              for (int i = 0; i < L::PARTS; i++) {
                part[i][n][e] = 0.0f;
              }
            }
          }
        }
      }
#pragma unroll
      for (int n = 0; n < GROUP; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float x[2];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const float product = L::IN_BLOCKS ? total[n][2 * half + e] : joined(part, n, 2 * half + e);
            x[e] = nn_times(product, nn_split{factor[half].x, factor[half].y});
          }
          if constexpr (L::ACROSS > 1) {
            float *const scores = reinterpret_cast<float *>(shared + L::scores);
            *reinterpret_cast<float2 *>(scores + row(half) * L::SCORE_LD + c * L::KEYS + key + 8 * n + pair) =
                make_float2(x[0], x[1]);
          } else {
            score[(c * L::KEYS + group * 8 * GROUP) / 8 + n][2 * half] = x[0];
            score[(c * L::KEYS + group * 8 * GROUP) / 8 + n][2 * half + 1] = x[1];
          }
        }
      }
    }
  }

  /* Scores become powers of two, 0 for keys that are not seen. */
  __device__ __forceinline__ void softmax() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int mine = seen[half] - pair;
      float top = LEAST, total = 0.0f;
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          top = 8 * n + e < mine ? nn_larger::of(score[n][2 * half + e], top) : top;
        }
      }
      top = nn_warp_reduce<nn_larger, 4>(top);
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float &x = score[n][2 * half + e];
          x = 8 * n + e < mine ? nn_exp2_approx(x - top) : 0.0f;
          total += x;
        }
      }
      peak[half] = top;
      sum[half] = nn_warp_sum<4>(total);
    }
  }

  /* Powers of keys 16n to 16n + 15 as parts; multiplied by the scales of block `block` of these values, if any. */
  __device__ __forceinline__ void split_powers(uint32_t (&parts)[L::PARTS][4], int n, const float *scales, int block) {
#pragma unroll
    for (int i = 0; i < 4; i++) { /* rows g, g + 8, keys 2t and 2t + 1; then the same of keys eight further */
      float x[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        x[e] = score[2 * n + i / 2][i % 2 * 2 + e] * UP;
        if (L::IN_BLOCKS) {
          const int key = 16 * n + 8 * (i / 2) + e;
          x[e] = key < seen[i % 2] - pair ? x[e] * scales[(key + pair) * L::VALUE_BLOCKS + block] : 0.0f;
        }
      }
      uint32_t split[L::PARTS];
      split_pair<T>(split, x[0], x[1]);
#pragma unroll
      for (int part = 0; part < L::PARTS; part++) {
        parts[part][i] = split[part];
      }
    }
  }

  template <int COUNT>
  __device__ __forceinline__ void merge(const float (&part)[L::PARTS][COUNT][4], int n, const float2 (&factor)[2],
                                        const bool (&joins)[2], float (&to)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (joins[e / 2]) {
        to[e] = nn_merged(to[e], joined(part, n, e) * (1.0f / UP), factor[e / 2]);
      }
    }
  }

  __device__ __forceinline__ void multiply_values(int c, uint32_t values,
                                                  const uint32_t (&power)[NN_PAGE_TOKENS / 16][L::PARTS][4],
                                                  const float2 (&factor)[2], const bool (&joins)[2],
                                                  float (&run)[L::SUMS][4]) const {
    const nn_mma_lane<VALUE_COLUMNS> place(nn_anew(threadIdx.x));
#pragma unroll
    for (int two = 0; two < L::COLUMNS / 16; two++) {
      float part[L::PARTS][2][4] = {};
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 16; n++) {
        uint32_t b[4];
        load_values(b, place, values, n, two);
#pragma unroll
        for (int i = 0; i < L::PARTS; i++) {
          nn_mma_m16n8k16<T>(part[i][0], power[n][i], b[0], b[1]);
          nn_mma_m16n8k16<T>(part[i][1], power[n][i], b[2], b[3]);
        }
      }
#pragma unroll
      for (int n = 0; n < 2; n++) {
        merge(part, n, factor, joins, run[c * (L::COLUMNS / 8) + 2 * two + n]);
      }
    }
  }

  __device__ __forceinline__ void multiply_blocks(int c, uint32_t values, const float2 (&factor)[2],
                                                  const bool (&joins)[2], float (&run)[L::SUMS][4]) {
    const nn_mma_lane<VALUE_COLUMNS> place(nn_anew(threadIdx.x));
    constexpr int WIDE = L::COLUMNS < 32 ? 1 : 2; /* a block's sixteens of columns that the warp has */
    const float *const scales = reinterpret_cast<const float *>(shared + L::scales);
#pragma unroll
    for (int some = 0; some < L::COLUMNS / (16 * WIDE); some++) {
      const int block = (across * L::COLUMNS + some * 16 * WIDE) / 32;
      float part[L::PARTS][2 * WIDE][4] = {};
#pragma unroll
      for (int n = 0; n < NN_PAGE_TOKENS / 16; n++) {
        uint32_t a[L::PARTS][4];
        split_powers(a, n, scales, block);
#pragma unroll
        for (int two = 0; two < WIDE; two++) {
          uint32_t b[4];
          load_values(b, place, values, n, some * WIDE + two);
#pragma unroll
          for (int i = 0; i < L::PARTS; i++) {
            nn_mma_m16n8k16<T>(part[i][2 * two], a[i], b[0], b[1]);
            nn_mma_m16n8k16<T>(part[i][2 * two + 1], a[i], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 2 * WIDE; n++) {
        merge(part, n, factor, joins, run[c * (L::COLUMNS / 8) + some * 2 * WIDE + n]);
      }
    }
  }

  /* Values of keys 16n to 16n + 15 and the warp's columns 16 * two to 16 * two + 15 of the stage. */
  __device__ __forceinline__ void load_values(uint32_t (&b)[4], const nn_mma_lane<VALUE_COLUMNS> &place,
                                              uint32_t values, int n, int two) const {
    if constexpr (L::ACROSS == 1) {
      place.load_b_rows(b, values, 16 * n, two);
    } else { /* where a warp's columns begin is not known when this is compiled */
      const int sixteen = across * (L::COLUMNS / 16) + two;
      nn_ldmatrix_x4_transposed(b, values + 16 * n * nn_mma_tile<VALUE_COLUMNS>::ROW + place.row_a +
                                       (place.unit_a ^ (uint32_t)sixteen << 5));
    }
  }

  /* Whether, of values that some rows of the block see and some do not, one is infinite or NaN. */
  __device__ __forceinline__ bool infinite_values(int i, int count, uint32_t values) const {
    const int least = (int)block.rows.seen - i * (int)NN_PAGE_TOKENS;
    if (L::IN_BLOCKS || least >= count) {
      return false;
    }
    bool *const found = reinterpret_cast<bool *>(shared + L::flags + 4 * L::STAGES);
    if (threadIdx.x == 0) {
      *found = false;
    }
    __syncthreads();
    constexpr int WORDS = nn_mma_tile<VALUE_COLUMNS>::ROW / 4;
    constexpr uint32_t LOW = IS_F16 ? 0x7c00u : 0x7f80u, HIGH = LOW << 16;
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(shared + (values - address));
    for (int w = (least < 0 ? 0 : least) * WORDS + threadIdx.x; w < count * WORDS; w += L::THREADS) {
      if ((words[w] & LOW) == LOW || (words[w] & HIGH) == HIGH) {
        *found = true;
      }
    }
    __syncthreads();
    return *found;
  }

  /* The values of key `key` become 0 when all warps have used them. */
  __device__ __forceinline__ void hide_value(int key, uint32_t values) const {
    __syncthreads();
    constexpr int WORDS = nn_mma_tile<VALUE_COLUMNS>::ROW / 4;
    if (key >= 0 && key < NN_PAGE_TOKENS) {
      uint32_t *const words = reinterpret_cast<uint32_t *>(shared + (values - address)) + key * WORDS;
      for (int w = threadIdx.x; w < WORDS; w += L::THREADS) {
        words[w] = 0;
      }
    }
    __syncthreads();
  }
};

#endif

/*
 * How pages and queries come to the tensor cores (attention_paged_mma.cuh): the numbers that are multiplied, the ring
 * of stages that K and V pass through, and numbers of 8 bits, blocks of q8_0 or e4m3, on their way from a stage to a
 * tile of 16 bits.
 */
#ifndef NN_KERNELS_ATTENTION_PAGED_STAGE_CUH
#define NN_KERNELS_ATTENTION_PAGED_STAGE_CUH

#include "kernels/attention_mma.cuh"
#include "kernels/attention_paged.cuh"
#include "kernels/instructions_registers.cuh"

/* What is multiplied for a page's elements of type F: pairs of T, f32 numbers as PARTS of them. */
template <class F> struct paged_operand {
  using T = nn_bf16;
  static constexpr int PARTS = 3;
};
template <> struct paged_operand<float> {
  static constexpr int PARTS = 0; /* f32 arithmetic serves */
};
template <> struct paged_operand<nn_f16> {
  using T = nn_f16;
  static constexpr int PARTS = 2;
};
template <> struct paged_operand<nn_e4m3> : paged_operand<nn_f16> {}; /* f16 has all its numbers */

/* Two numbers as sums of parts, the largest first. */
template <class T, int PARTS> __device__ __forceinline__ void split_pair(uint32_t (&parts)[PARTS], float a, float b) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    parts[i] = nn_pair<T>(a, b);
    const float2 kept = nn_mma_type<T>::is_f16 ? nn_f16x2_to_f32x2(parts[i]) : nn_bf16x2_to_f32x2(parts[i]);
    a -= kept.x;
    b -= kept.y;
  }
}

/*
 * K and V pass through a ring of stages of 16 KiB: 8192 / D keys, or 64 columns of a page's values. A block has
 * ROW_WARPS times 16 rows, and of each ACROSS warps, which share the keys of a stage and the columns. Prompts have as
 * many rows as registers hold: a lane's sums, D / 2 / ACROSS, and its powers, 64 and with three parts 96. With one warp
 * a row's scores stay in registers, and three stages let two blocks fit a multiprocessor of sm_90. Decoding has a
 * group's heads, 16 rows; four stages a block and two blocks have 128 KiB of K and V under way, more than latency times
 * bandwidth asks for. By count.
 */
constexpr int STAGE_ELEMENTS = 8192, VALUE_COLUMNS = STAGE_ELEMENTS / NN_PAGE_TOKENS;
template <int PARTS> struct paged_prompt_tile {
  static constexpr int ACROSS = PARTS == 2 ? 1 : 2, ROW_WARPS = 4 / ACROSS, STAGES = 3;
};
struct paged_decode_tile {
  static constexpr int ROW_WARPS = 1, ACROSS = 4, STAGES = 4;
};

template <class FORMAT, int DIM, class TILE> struct paged_mma_layout {
  using F = FORMAT;
  using T = typename paged_operand<F>::T;
  static constexpr bool IN_BLOCKS = nn_in_blocks<F>, WIDENED = IN_BLOCKS || sizeof(F) == 1;
  static constexpr int D = DIM, PARTS = paged_operand<F>::PARTS;
  static constexpr int ACROSS = TILE::ACROSS, WARPS = TILE::ROW_WARPS * ACROSS, THREADS = NN_WARP * WARPS;
  static constexpr int ROWS = 16 * TILE::ROW_WARPS, STAGES = TILE::STAGES;
  static constexpr int KEYS = STAGE_ELEMENTS / D, CHUNKS = NN_PAGE_TOKENS / KEYS; /* of keys, and as many of columns */
  static constexpr int MY_KEYS = KEYS / ACROSS, COLUMNS = VALUE_COLUMNS / ACROSS; /* a warp's of a stage */
  static constexpr int SUMS = CHUNKS * COLUMNS / 8;                               /* columns of a warp, in eights */
  static constexpr int SCORE_LD = NN_PAGE_TOKENS + 8;
  /* Numbers of 8 bits: blocks of 32, if any; bytes of a row of a stage as words of memory, at most. */
  static constexpr int KEY_BLOCKS = D / 32, VALUE_BLOCKS = VALUE_COLUMNS / 32, BLOCK_BYTES = IN_BLOCKS ? 34 : 32;
  static constexpr int KEY_WORDS = nn_words_touched<BLOCK_BYTES * KEY_BLOCKS>,
                       VALUE_WORDS = nn_words_touched<BLOCK_BYTES * VALUE_BLOCKS>;
  static constexpr int RAW = 4 * NN_PAGE_TOKENS * VALUE_WORDS;
  static_assert(!WIDENED || 4 * KEYS * KEY_WORDS <= RAW, "both fit a stage");
  static constexpr int TILE_BYTES = 2 * STAGE_ELEMENTS, STAGE = WIDENED ? RAW : TILE_BYTES;

  static constexpr int q_part = nn_mma_tile<D>::bytes(ROWS), ring = PARTS * q_part, tile = ring + STAGES * STAGE,
                       scales = tile + (WIDENED ? TILE_BYTES : 0),
                       scores = scales + (IN_BLOCKS ? 4 * STAGE_ELEMENTS / 32 : 0),
                       factors = scores + (ACROSS > 1 ? 4 * ROWS * SCORE_LD : 0), sums = factors + 8 * ROWS,
                       flags = sums + 16 * THREADS, block = (flags + 4 * (STAGES + 1) + 15) / 16 * 16;
  static constexpr size_t bytes = block + 96;
};

/* What a block works on, in shared memory: registers are full of sums. Positions of keys are below 2^31. */
struct paged_block {
  paged_rows rows;
  int64_t head_at;        /* of its key head in a page */
  const int32_t *numbers; /* of its sequence's pages */
  int32_t limit;          /* keys that any row sees */

  __device__ __forceinline__ paged_block(const paged_attention &p, const paged_rows &of, int32_t kv_head)
      : rows(of), head_at(kv_head * NN_PAGE_TOKENS * p.row_bytes),
        numbers(p.sequences.page_table + of.sequence.index * p.sequences.max_pages),
        limit((int32_t)of.sees(of.count - 1)) {}

  /* Keys of page i that any row sees. */
  __device__ __forceinline__ int count(int i) const {
    const int left = limit - i * (int)NN_PAGE_TOKENS;
    return left < NN_PAGE_TOKENS ? left : (int)NN_PAGE_TOKENS;
  }
};

/* Whether one of the pages first .. end - 1 is out of range: all of them are looked at once, before the first is read.
 * By all threads of a block. */
template <class L>
__device__ __forceinline__ bool bad_pages(const paged_attention &p, unsigned char *shared, int first, int end) {
  int *const bad = reinterpret_cast<int *>(shared + L::flags) + L::STAGES;
  if (threadIdx.x == 0) {
    *bad = 0;
  }
  __syncthreads();
  const int64_t before = reinterpret_cast<const paged_block *>(shared + L::block)->numbers - p.sequences.page_table;
  for (int i = first + threadIdx.x; i < end; i += L::THREADS) {
    if (!p.sequences.page.holds(before + i, p.sequences.page_table[before + i])) {
      *bad = 1;
    }
  }
  __syncthreads();
  const bool found = *bad != 0;
  __syncthreads();
  return found;
}

/* Brings the stages of pages into the ring, in the order in which they are needed. */
template <class L> struct paged_loader {
  const paged_attention &p;
  unsigned char *const shared;
  const paged_block &block;
  int stage = 0;  /* the next one's place */
  int begun, end; /* pages that have been begun, counted from the sequence's first; where they end */

  __device__ __forceinline__ paged_loader(const paged_attention &of, unsigned char *space, int first, int after)
      : p(of), shared(space), block(*reinterpret_cast<const paged_block *>(space + L::block)), begun(first),
        end(after) {
    look_ahead();
    for (int i = 0; i < L::STAGES - 1; i++) {
      next();
    }
  }

  /* Starts to load the next stage, if there is one, and closes its group. */
  __device__ __forceinline__ void next() {
    if (left == 0 && begun < end) {
      at = number * p.page_bytes + block.head_at;
      left = (block.count(begun) + L::KEYS - 1) / L::KEYS + value_stages();
      begun++;
      look_ahead();
    }
    if (left > 0) {
      const int count = block.count(begun - 1), values = value_stages();
      if (left > values) {
        const int first = (count + L::KEYS - 1) / L::KEYS * L::KEYS - (left - values) * L::KEYS;
        load<L::D, L::KEYS, L::KEY_WORDS>(p.k + at + first * p.row_bytes, count - first, p.dim);
      } else {
        const int column = (values - left) * VALUE_COLUMNS;
        const int skip = L::IN_BLOCKS ? column / 32 * 34 : column * (int)sizeof(typename L::F);
        load<VALUE_COLUMNS, NN_PAGE_TOKENS, L::VALUE_WORDS>(p.v + at + skip, count, p.dim - column);
      }
      left--;
    }
    stage = stage + 1 == L::STAGES ? 0 : stage + 1;
    nn_copy_async_commit();
  }

private:
  int64_t at = 0;     /* of the page and head */
  int left = 0;       /* stages of the page */
  int32_t number = 0; /* of the page that comes next: the load is under way while others are used */

  __device__ __forceinline__ void look_ahead() { number = begun < end ? block.numbers[begun] : 0; }
  __device__ __forceinline__ int value_stages() const { return (p.dim + VALUE_COLUMNS - 1) / VALUE_COLUMNS; }

  /* Rows of at most WIDTH elements of which there are `width`; zeros beyond, and from row `count` on. */
  template <int WIDTH, int ROWS, int WORDS>
  __device__ __forceinline__ void load(const uint8_t *from, int count, int width) const {
    unsigned char *const to = shared + L::ring + stage * L::STAGE;
    const int thread = (int)nn_anew(threadIdx.x), row_bytes = (int)p.row_bytes;
    if (L::WIDENED && !L::IN_BLOCKS && p.wide) { /* rows of a stage lie close */
      constexpr int ACROSS = WIDTH / 16;
      const int unit = thread % ACROSS;
#pragma unroll 2
      for (int r = thread / ACROSS; r < ROWS && r < count; r += L::THREADS / ACROSS) {
        if (unit * 16 < width) {
          nn_copy_async<16>(nn_shared_address(to + r * WIDTH + 16 * unit), from + r * row_bytes + 16 * unit);
        }
      }
    } else if constexpr (L::WIDENED) {
      const int elements = width < WIDTH ? width : WIDTH, bytes = L::IN_BLOCKS ? elements / 32 * 34 : elements;
#pragma unroll 1
      for (int i = thread; i < ROWS * WORDS; i += L::THREADS) {
        const int r = i / WORDS, word = i % WORDS;
        const uint8_t *const row = from + r * row_bytes;
        const int before = (int)(reinterpret_cast<uintptr_t>(row) & 3);
        if (r < count && 4 * word < before + bytes) {
          nn_copy_async<4>(nn_shared_address(to + 4 * i), row - before + 4 * word);
        }
      }
      if (thread == 0) { /* where in its first word the first row begins */
        reinterpret_cast<int *>(shared + L::flags)[stage] = (int)(reinterpret_cast<uintptr_t>(from) & 3);
      }
    } else if (p.wide) {
      constexpr int ACROSS = WIDTH / 8;
      const int unit = thread % ACROSS;
#pragma unroll 2
      for (int r = thread / ACROSS; r < ROWS; r += L::THREADS / ACROSS) {
        nn_copy_async<16>(nn_shared_address(to + nn_mma_tile<WIDTH>::at(r, unit)), from + r * row_bytes + 16 * unit,
                          r < count && unit * 8 < width ? 16 : 0);
      }
    } else {
#pragma unroll 1
      for (int i = thread; i < ROWS * WIDTH / 8; i += L::THREADS) {
        const int r = i / (WIDTH / 8), unit = i % (WIDTH / 8);
        uint32_t x[4] = {};
        if (r < count && unit * 8 < width) {
          nn_bytes_at<16, PAGES_STAY>(x, from + r * row_bytes + 16 * unit);
        }
        *reinterpret_cast<uint4 *>(to + nn_mma_tile<WIDTH>::at(r, unit)) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }
};

/* The numbers of a stage, of blocks the whole ones, in a tile of WIDTH columns, and the scales of blocks
 * [row][WIDTH / 32]; zeros as above. */
template <class L, int WIDTH, int ROWS, int WORDS>
__device__ __forceinline__ void widen_numbers(const paged_attention &p, unsigned char *shared, int stage, int count,
                                              int width) {
  const uint32_t *const raw = reinterpret_cast<const uint32_t *>(shared + L::ring + stage * L::STAGE);
  const int begins = reinterpret_cast<const int *>(shared + L::flags)[stage];
  float *const scales = reinterpret_cast<float *>(shared + L::scales);
  constexpr int ACROSS = WIDTH / 8;
#pragma unroll 2
  for (int i = (int)nn_anew(threadIdx.x); i < ROWS * ACROSS; i += L::THREADS) {
    const int r = i / ACROSS, unit = i % ACROSS;
    uint32_t x[4] = {};
    float scale = 0.0f;
    if (r < count && unit * 8 < width) {
      const bool close = !L::IN_BLOCKS && p.wide;
      const int row_at = close ? 0 : (begins + r * (int)(p.row_bytes & 3)) & 3;
      const int block = row_at + unit / 4 * L::BLOCK_BYTES;
      const uint32_t *const row = raw + r * (close ? WIDTH / 4 : WORDS);
      const int at = block + (L::IN_BLOCKS ? 2 : 0) + unit % 4 * 8, by = 8 * (at % 4);
      const uint32_t last = at % 4 != 0 ? row[at / 4 + 2] : 0u;
      const uint32_t bytes[2] = {__funnelshift_r(row[at / 4], row[at / 4 + 1], by),
                                 __funnelshift_r(row[at / 4 + 1], last, by)};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const uint32_t two = bytes[e / 2] >> (16 * (e % 2));
        x[e] = L::IN_BLOCKS ? nn_pair<typename L::T>((float)(int8_t)two, (float)(int8_t)(two >> 8))
                            : nn_e4m3x2_to_f16x2((uint16_t)two);
      }
      if constexpr (L::IN_BLOCKS) {
        const uint32_t head = row[block / 4], tail = block % 4 == 3 ? row[block / 4 + 1] : 0u;
        scale = nn_low_f16(__funnelshift_r(head, tail, 8 * (block % 4)));
      }
    }
    *reinterpret_cast<uint4 *>(shared + L::tile + nn_mma_tile<WIDTH>::at(r, unit)) = make_uint4(x[0], x[1], x[2], x[3]);
    if (L::IN_BLOCKS && unit % 4 == 0) {
      scales[r * (WIDTH / 32) + unit / 4] = scale;
    }
  }
}

/* A block's queries as parts, and what their products are multiplied by; zeros beyond rows and columns. */
template <class L, class QUERY>
__device__ __forceinline__ void split_queries(const paged_attention &p, const paged_rows &rows, const QUERY &query,
                                              unsigned char *shared) {
  const int lane = threadIdx.x % NN_WARP;
  float2 *const factors = reinterpret_cast<float2 *>(shared + L::factors);
  constexpr int AT_ONCE =
      2; /* rows whose loads are under way together: of a group of eight heads all that a warp has */
  static_assert(L::ROWS % (L::WARPS * AT_ONCE) == 0);
#pragma unroll 1
  for (int first = threadIdx.x / NN_WARP; first < L::ROWS; first += L::WARPS * AT_ONCE) {
    float x[AT_ONCE][L::D / 64][2];
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      const int r = first + j * L::WARPS;
#pragma unroll
      for (int i = 0; i < L::D / 64; i++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int d = 64 * i + 2 * lane + e;
          x[j][i][e] = r < rows.count && d < p.dim ? query(rows.at(r, p.ld_q, p.dim), d) : 0.0f;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      const int r = first + j * L::WARPS;
      float most = 0.0f;
#pragma unroll
      for (int i = 0; i < L::D / 64; i++) {
        most = fmaxf(fmaxf(most, fabsf(x[j][i][0])), fabsf(x[j][i][1]));
      }
      float up = 1.0f, down = 1.0f;
      if (nn_mma_type<typename L::T>::is_f16) {
        /* The exponent of the largest becomes 14; as far as both factors are normal numbers. */
        const int exponent = __float_as_int(nn_warp_max(most)) >> 23;
        const int held = exponent < 15 ? 15 : exponent > 254 ? 141 : exponent;
        up = __int_as_float((268 - held) << 23);
        down = __int_as_float((held - 14) << 23);
      }
#pragma unroll
      for (int i = 0; i < L::D / 64; i++) {
        uint32_t parts[L::PARTS];
        split_pair<typename L::T>(parts, x[j][i][0] * up, x[j][i][1] * up);
        const int d = 64 * i + 2 * lane;
#pragma unroll
        for (int part = 0; part < L::PARTS; part++) {
          unsigned char *const to = shared + part * L::q_part + nn_mma_tile<L::D>::at(r, d / 8) + d % 8 * 2;
          *reinterpret_cast<uint32_t *>(to) = parts[part];
        }
      }
      if (lane == 0) {
        factors[r] = make_float2(p.factor.high * down, p.factor.low * down);
      }
    }
  }
}

/* By all threads of a block: what it works on. */
template <class L>
__device__ __forceinline__ void describe_block(const paged_attention &p, const paged_rows &rows, int32_t kv_head,
                                               unsigned char *shared) {
  static_assert(L::block + sizeof(paged_block) <= L::bytes, "it has its place");
  if (threadIdx.x == 0) {
    *reinterpret_cast<paged_block *>(shared + L::block) = paged_block(p, rows, kv_head);
  }
  __syncthreads();
}

/* What a block begins with; its queries are there when it returns. */
template <class L, class QUERY>
__device__ __forceinline__ void begin_block(const paged_attention &p, const paged_rows &rows, int32_t kv_head,
                                            const QUERY &query, unsigned char *shared) {
  split_queries<L>(p, rows, query, shared);
  describe_block<L>(p, rows, kv_head, shared);
}

#endif

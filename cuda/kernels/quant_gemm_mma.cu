/*
 * Products with weights in blocks on the tensor cores (mma.sync of signed bytes, from sm_80): prompts.
 *
 * One instruction multiplies a part, 32 columns, of 16 rows of the weights with the same of 8 rows of x (tokens). Its
 * sums are whole numbers and exact. Each becomes a float and goes into its result before the next part does, with the
 * roundings of quant_gemm_rows.cu: a row has the same bits here and there.
 *
 * A tile's parts are unpacked once, to signed bytes in shared memory. Of two stages one is multiplied, while the parts
 * of the next are on their way to registers, and its codes, asynchronously, to shared memory. Rows of bytes there are
 * units of 16, swizzled so that no two rows of an ldmatrix meet in a bank.
 *
 * A warp of the large tile does 16 instructions of the tensor cores for a part, each followed by 3 of f32
 * arithmetic for each of its 4 results a lane (4 with minima, 6 in q3_k and q6_k, 10 in q2_k). In q4_0 that is 352
 * instructions with all that goes with it (nvcc 13.0, sm_90): 14 reads of shared memory, addresses, and a seventh or so
 * for what 128 tokens share, to unpack the next part. So ordinary arithmetic sets the pace: of a quarter of a
 * multiprocessor the tensor cores take 128 clocks, the f32 arithmetic 192 (384 on sm_80), the instructions 352. With
 * dp4a the products alone would take 1024. A large tile reads 4 KiB of codes, 1 KiB of their units and, in q4_0, 2.25
 * KiB of weights for half a million products.
 */
#include "kernels/quant_interleaved.cuh"
#include "kernels/quant_prepare.cuh"

#include "kernels/instructions.cuh"

/* Below sm_80, where the host does not choose them, the kernels are empty. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool USED = false;
#else
constexpr bool USED = true;
#endif

/* Warps side by side along the rows of the weights and along the tokens; a warp has PANELS x 16 rows and OCTETS x 8
 * tokens. A stage is STEPS parts of every row. */
template <int ROW_WARPS_, int TOKEN_WARPS_, int PANELS_, int OCTETS_, int STEPS_, int BLOCKS_> struct quant_tile {
  static constexpr int ROW_WARPS = ROW_WARPS_, TOKEN_WARPS = TOKEN_WARPS_, BLOCKS = BLOCKS_;
  static constexpr int PANELS = PANELS_, OCTETS = OCTETS_, STEPS = STEPS_;
  static constexpr int THREADS = ROW_WARPS * TOKEN_WARPS * NN_WARP;
  static constexpr int ROWS = ROW_WARPS * PANELS * 16, TOKENS = TOKEN_WARPS * OCTETS * 8;
  static constexpr int PARTS_EACH = ROWS * STEPS / THREADS, UNITS_EACH = TOKENS * STEPS / THREADS;
  static constexpr int CODES_EACH = UNITS_EACH * 2; /* runs of 16 bytes */
  static_assert(PARTS_EACH * THREADS == ROWS * STEPS && UNITS_EACH * THREADS == TOKENS * STEPS, "a thread has as many");
  static_assert(OCTETS % 2 == 0, "an ldmatrix loads two octets");
  /* Sums on their way to y: a lane has rows g and tokens 2t, which 4 more a token keeps in banks of their own. */
  static constexpr int SUMS_ROW = ROWS + 4;
};

/* Large tiles where they fill the multiprocessors; else small ones, whose stages are long, since few blocks must have
 * enough loads under way. What has more words to hold takes a smaller share: the two sums of each part that has
 * factors, and rows side by side, whose words may each lie across two of memory. By count. */
template <int FORMAT>
using large_tile =
    quant_tile<2, 4, nn_stored<FORMAT>::HAS_FACTORS ? 2 : 4, 4, nn_stored<FORMAT>::HAS_FACTORS ? 4 : 2, 1>;
template <int FORMAT, bool INTERLEAVED>
using small_tile = quant_tile<1, 4, 2, 2, nn_stored<FORMAT>::HAS_FACTORS || INTERLEAVED ? 4 : 8, 2>;

/* A stage: bytes of the weights and codes, then what makes numbers of the sums: of each step the terms of the rows
 * (scale; minimum; two factors; q2_k: minimum and what multiplies it in the halves) and of the tokens (d; total, where
 * there are minima; q2_k: the sums of the halves). */
template <class TILE, int FORMAT> struct quant_stage {
  using S = nn_stored<FORMAT>;
  static constexpr bool LEAST = nn_has_part_minima<FORMAT>;
  static constexpr int ROW_TERMS = 1 + S::HAS_MINIMUM + 2 * S::HAS_FACTORS + 3 * LEAST;
  static constexpr int TOKEN_TERMS = 1 + S::HAS_MINIMUM + 2 * LEAST;
  static constexpr int CODES = TILE::ROWS * TILE::STEPS * NN_PART, ROWS = CODES + TILE::TOKENS * TILE::STEPS * NN_PART;
  static constexpr int UNITS = ROWS + TILE::STEPS * ROW_TERMS * TILE::ROWS * 4;
  static constexpr int BYTES = UNITS + TILE::STEPS * TOKEN_TERMS * TILE::TOKENS * 4;
  static constexpr int SUMS = TILE::TOKENS * TILE::SUMS_ROW * 4;
  static constexpr int SHARED = 2 * BYTES > SUMS ? 2 * BYTES : SUMS;

  /* Run `run` of 16 bytes of a row of weights or codes: eight rows of one run fill the banks. */
  static __device__ __forceinline__ int run_at(int row, int run) {
    constexpr int RUNS = 2 * TILE::STEPS;
    return (row * RUNS + (run ^ (RUNS < 8 ? row * RUNS / 8 % RUNS : row % 8))) * 16;
  }
  /* Terms of rows g and g + 8 of sixteen are neighbours, as are a lane's tokens 2t and 2t + 1. */
  static __device__ __forceinline__ int row_term_at(int step, int term, int row) {
    const int place = row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
    return ROWS + ((step * ROW_TERMS + term) * TILE::ROWS + place) * 4;
  }
  static __device__ __forceinline__ int token_term_at(int step, int term, int token) {
    return UNITS + ((step * TOKEN_TERMS + term) * TILE::TOKENS + token) * 4;
  }
};

/* The product of which a block has a tile: columns of one matrix, or of a gate and then of the other factor. */
struct quant_work {
  const quant_product &p;
  quant_rows rows; /* of x */
  int64_t column;
  int32_t which, columns, parts; /* columns of y in a tile */

  /* What is read where there is no such token, or part. */
  __device__ __forceinline__ int64_t token(int i) const { return rows.first + (i < rows.count ? i : rows.count - 1); }
  __device__ __forceinline__ int32_t part(int32_t i) const { return i < parts ? i : 0; }
};

/*
 * What a thread loads for a stage: parts of the weights and units of x. `start` leaves the words as they come, `finish`
 * makes bytes and terms of them, when the products of the stage before have been made. Past the end there are others.
 */
template <class TILE, int FORMAT, bool INTERLEAVED> struct quant_load {
  using S = nn_stored<FORMAT>;
  using stage = quant_stage<TILE, FORMAT>;
  const uint8_t *from[TILE::PARTS_EACH]; /* a row, or the sixteen that it is one of */
  int32_t of_sixteen[TILE::PARTS_EACH];
  uint32_t words[TILE::PARTS_EACH][NN_PART_TOUCHES];
  quant_unit unit[TILE::UNITS_EACH];

  /* Item i of this thread among rows x steps. Words of rows side by side are neighbours, else parts of a row. */
  static __device__ __forceinline__ int row_of(int i) {
    const int item = (int)threadIdx.x + i * TILE::THREADS;
    return INTERLEAVED ? item % TILE::ROWS : item / TILE::STEPS;
  }
  static __device__ __forceinline__ int step_of(int i) {
    const int item = (int)threadIdx.x + i * TILE::THREADS;
    return INTERLEAVED ? item / TILE::ROWS : item % TILE::STEPS;
  }

  __device__ __forceinline__ explicit quant_load(const quant_work &work) {
#pragma unroll
    for (int i = 0; i < TILE::PARTS_EACH; i++) {
      const int r = row_of(i);
      const quant_weights &matrix = work.p.matrix[work.which + r / work.columns];
      const int64_t column = work.column + r % work.columns, last = matrix.n - 1;
      const int64_t row = work.rows.group * matrix.n + (column < last ? column : last);
      of_sixteen[i] = INTERLEAVED ? (int32_t)(row % NN_INTERLEAVED_ROWS) : 0;
      from[i] = matrix.w + (row - of_sixteen[i]) * matrix.row_bytes;
    }
  }

  template <class READ> __device__ __forceinline__ void load(nn_part &to, int i, int32_t part, READ read) const {
    if constexpr (INTERLEAVED) {
      nn_load_interleaved_part<FORMAT>(to, from[i], of_sixteen[i], part, read);
    } else {
      nn_load_part<FORMAT>(to, from[i], part, read);
    }
  }

  __device__ __forceinline__ void start(const quant_work &work, int32_t first, uint32_t to) {
    const quant_product &p = work.p;
#pragma unroll
    for (int i = 0; i < TILE::CODES_EACH; i++) {
      const int item = (int)threadIdx.x + i * TILE::THREADS, token = item / (2 * TILE::STEPS);
      const int run = item % (2 * TILE::STEPS), part = work.part(first + run / 2);
      nn_copy_async<16>(to + stage::CODES + stage::run_at(token, run),
                        p.codes + (work.token(token) * work.parts + part) * NN_PART + run % 2 * 16);
    }
#pragma unroll
    for (int i = 0; i < TILE::PARTS_EACH; i++) {
      nn_part none;
      load(none, i, work.part(first + step_of(i)), nn_read_begin{words[i], 0});
    }
#pragma unroll
    for (int i = 0; i < TILE::UNITS_EACH; i++) {
      const int item = (int)threadIdx.x + i * TILE::THREADS;
      unit[i] = p.units[work.token(item / TILE::STEPS) * work.parts + work.part(first + item % TILE::STEPS)];
    }
  }

  __device__ __forceinline__ void finish(const quant_work &work, int32_t first, unsigned char *to) const {
#pragma unroll
    for (int i = 0; i < TILE::PARTS_EACH; i++) {
      const int row = row_of(i), step = step_of(i);
      nn_part part;
      load(part, i, work.part(first + step), nn_read_end{words[i], 0});
      uint32_t bytes[NN_PART_WORDS];
#pragma unroll
      for (int w = 0; w < NN_PART_WORDS; w++) { /* quant - MIDDLE as a signed byte; no byte carries into the next */
        bytes[w] = S::MIDDLE == 0 ? part.quants[w] : (part.quants[w] + (128u - S::MIDDLE) * 0x01010101u) ^ 0x80808080u;
      }
      *reinterpret_cast<uint4 *>(to + stage::run_at(row, 2 * step)) =
          make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
      *reinterpret_cast<uint4 *>(to + stage::run_at(row, 2 * step + 1)) =
          make_uint4(bytes[4], bytes[5], bytes[6], bytes[7]);
      const auto put = [&](int term, float x) {
        *reinterpret_cast<float *>(to + stage::row_term_at(step, term, row)) = x;
      };
      put(0, part.scale);
      if constexpr (S::HAS_MINIMUM) {
        put(1, part.minimum);
      }
      if constexpr (S::HAS_FACTORS) {
        put(1, (float)part.factor[0]);
        put(2, (float)part.factor[1]);
      }
      if constexpr (stage::LEAST) {
        put(3, part.minimum);
        put(4, (float)part.least[0]);
        put(5, (float)part.least[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < TILE::UNITS_EACH; i++) {
      const int item = (int)threadIdx.x + i * TILE::THREADS, token = item / TILE::STEPS, step = item % TILE::STEPS;
      *reinterpret_cast<float *>(to + stage::token_term_at(step, 0, token)) = unit[i].d;
      if constexpr (S::HAS_MINIMUM) {
        *reinterpret_cast<float *>(to + stage::token_term_at(step, 1, token)) = unit[i].total();
      }
      if constexpr (stage::LEAST) {
        *reinterpret_cast<float *>(to + stage::token_term_at(step, 1, token)) = (float)unit[i].low();
        *reinterpret_cast<float *>(to + stage::token_term_at(step, 2, token)) = (float)unit[i].high();
      }
    }
  }
};

/* A whole number below 2^22 as a float in one addition: instructions start their sums at these bits, those of 1.5 *
 * 2^23, whose last place is 1. */
[[maybe_unused]] constexpr int32_t WHOLE_BITS = 0x4b400000;
__device__ __forceinline__ float whole_of(int32_t sum) { return __int_as_float(sum) - 12582912.0f; }

template <class TILE> using quant_sums = float[TILE::PANELS][TILE::OCTETS][4];

__device__ __forceinline__ float2 two_at(const unsigned char *from) { return *reinterpret_cast<const float2 *>(from); }

/* Adds the part of one step. */
template <class TILE, int FORMAT>
__device__ __forceinline__ void multiply_step(quant_sums<TILE> &sums, const unsigned char *stage, int step) {
  using S = nn_stored<FORMAT>;
  using at = quant_stage<TILE, FORMAT>;
  const uint32_t base = nn_shared_address(stage);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP, g = lane / 4, t = lane % 4;
  const int row_warp = warp % TILE::ROW_WARPS, token_warp = warp / TILE::ROW_WARPS;
  uint32_t codes[TILE::OCTETS][2];
  float2 d[TILE::OCTETS], total[TILE::OCTETS], halves[TILE::OCTETS][2];
#pragma unroll
  for (int o = 0; o < TILE::OCTETS; o += 2) {
    const int token = (token_warp * TILE::OCTETS + o) * 8;
    uint32_t both[4];
    nn_ldmatrix_x4(both, base + at::CODES + at::run_at(token + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      codes[o + i / 2][i % 2] = both[i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      d[o + i] = two_at(stage + at::token_term_at(step, 0, token + 8 * i + 2 * t));
      if constexpr (S::HAS_MINIMUM) {
        total[o + i] = two_at(stage + at::token_term_at(step, 1, token + 8 * i + 2 * t));
      }
      if constexpr (at::LEAST) {
        halves[o + i][0] = two_at(stage + at::token_term_at(step, 1, token + 8 * i + 2 * t));
        halves[o + i][1] = two_at(stage + at::token_term_at(step, 2, token + 8 * i + 2 * t));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < TILE::PANELS; i++) {
    const int row = (row_warp * TILE::PANELS + i) * 16;
    uint32_t weights[4];
    nn_ldmatrix_x4(weights, base + at::run_at(row + lane % 16, 2 * step + lane / 16));
    float2 terms[at::ROW_TERMS]; /* of rows g and g + 8 */
#pragma unroll
    for (int e = 0; e < at::ROW_TERMS; e++) {
      terms[e] = two_at(stage + at::row_term_at(step, e, row + g));
    }
#pragma unroll
    for (int o = 0; o < TILE::OCTETS; o++) {
      float whole[4];
      if constexpr (S::HAS_FACTORS) { /* f32 is exact: all stay below 2^24 */
        int32_t low[4] = {WHOLE_BITS, WHOLE_BITS, WHOLE_BITS, WHOLE_BITS};
        int32_t high[4] = {WHOLE_BITS, WHOLE_BITS, WHOLE_BITS, WHOLE_BITS};
        nn_mma_m16n8k16_s8(low, weights[0], weights[1], codes[o][0]);
        nn_mma_m16n8k16_s8(high, weights[2], weights[3], codes[o][1]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          whole[e] = fmaf(whole_of(high[e]), e < 2 ? terms[2].x : terms[2].y,
                          __fmul_rn(whole_of(low[e]), e < 2 ? terms[1].x : terms[1].y));
        }
      } else {
        int32_t products[4] = {WHOLE_BITS, WHOLE_BITS, WHOLE_BITS, WHOLE_BITS};
        nn_mma_m16n8k32_s8(products, weights, codes[o][0], codes[o][1]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          whole[e] = whole_of(products[e]);
        }
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float scale = e < 2 ? terms[0].x : terms[0].y;
        float &sum = sums[i][o][e];
        sum = fmaf(__fmul_rn(e % 2 == 0 ? d[o].x : d[o].y, scale), whole[e], sum);
        if constexpr (S::HAS_MINIMUM) {
          sum = fmaf(e % 2 == 0 ? total[o].x : total[o].y, e < 2 ? terms[1].x : terms[1].y, sum);
        }
        if constexpr (at::LEAST) { /* whole numbers below 2^16 */
          const float low = e % 2 == 0 ? halves[o][0].x : halves[o][0].y;
          const float high = e % 2 == 0 ? halves[o][1].x : halves[o][1].y;
          const float whole_least =
              fmaf(high, e < 2 ? terms[5].x : terms[5].y, __fmul_rn(low, e < 2 ? terms[4].x : terms[4].y));
          sum = fmaf(__fmul_rn(e % 2 == 0 ? d[o].x : d[o].y, e < 2 ? terms[3].x : terms[3].y), whole_least, sum);
        }
      }
    }
  }
}

/* Sums of a tile; all threads of the block call it. Shared memory may be in use again after a barrier. */
template <class TILE, int FORMAT, bool INTERLEAVED>
__device__ __forceinline__ void multiply(quant_sums<TILE> &sums, const quant_work &work, unsigned char *shared) {
  using stage = quant_stage<TILE, FORMAT>;
  const uint32_t ring = nn_shared_address(shared);
  quant_load<TILE, FORMAT, INTERLEAVED> next(work);
  next.start(work, 0, ring);
  nn_copy_async_commit();
  next.finish(work, 0, shared);
  int odd = 0;
  [[maybe_unused]] constexpr int UNROLL = TILE::STEPS <= 2 ? TILE::STEPS : 1;
  for (int32_t first = 0; first < work.parts; first += TILE::STEPS) {
    const bool more = first + TILE::STEPS < work.parts;
    unsigned char *const now = shared + odd * stage::BYTES;
    odd ^= 1;
    nn_copy_async_wait<0>();
    __syncthreads(); /* the stage is there, and the other one is read */
    if (more) {
      next.start(work, first + TILE::STEPS, ring + odd * stage::BYTES);
    }
    nn_copy_async_commit();
    const int count = more ? TILE::STEPS : work.parts - first;
#pragma unroll UNROLL
    for (int step = 0; step < TILE::STEPS; step++) {
      if (step < count) {
        multiply_step<TILE, FORMAT>(sums, now, step);
      }
    }
    if (more) {
      next.finish(work, first + TILE::STEPS, shared + odd * stage::BYTES);
    }
  }
}

/* The tiles of a block: columns of y by blockIdx.x, rows of x in turn. */
template <int FORMAT, bool INTERLEAVED, class TILE>
__device__ __forceinline__ void multiply_tiles(const quant_product &p, int64_t row_tiles, unsigned char *shared) {
  p.check_offsets();
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP, g = lane / 4, t = lane % 4;
  const int row_warp = warp % TILE::ROW_WARPS, token_warp = warp / TILE::ROW_WARPS;
  const bool gated = p.combine == NN_QUANT_SWIGLU;
  const int which = quant_matrix_of(p, blockIdx.x), columns = gated ? TILE::ROWS / 2 : TILE::ROWS;
  const quant_weights &matrix = p.matrix[which];
  quant_work work = {p,     {},      ((int64_t)blockIdx.x - matrix.first_tile) * columns,
                     which, columns, (int32_t)(p.k / NN_PART)};
  for (int64_t tile = blockIdx.y; tile < row_tiles; tile += gridDim.y) {
    if (!quant_find<TILE::TOKENS>(p, tile, work.rows)) {
      return;
    }
    quant_sums<TILE> sums = {};
    multiply<TILE, FORMAT, INTERLEAVED>(sums, work, shared);
    __syncthreads();
    float *const all = reinterpret_cast<float *>(shared); /* token by token, so that writes to y meet in lines */
#pragma unroll
    for (int i = 0; i < TILE::PANELS; i++) {
#pragma unroll
      for (int o = 0; o < TILE::OCTETS; o++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int token = (token_warp * TILE::OCTETS + o) * 8 + 2 * t + e % 2;
          all[token * TILE::SUMS_ROW + (row_warp * TILE::PANELS + i) * 16 + g + e / 2 * 8] = sums[i][o][e];
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < work.rows.count * columns; i += TILE::THREADS) {
      const int token = gated ? i / (TILE::ROWS / 2) : i / TILE::ROWS, c = i - token * columns;
      if (work.column + c < matrix.n) {
        const float *const from = all + token * TILE::SUMS_ROW + c;
        const float sum = gated ? from[columns] * quant_silu(from[0]) : from[0];
        quant_finish(p, work.rows.first + token, matrix.column + work.column + c, sum);
      }
    }
    __syncthreads();
  }
}

// spills: mma_kernel: with q3_k side by side, of which a part touches 38 words, four numbers wait in memory
// Weights in q4_0 (10), q8_0 (14), q4_k (15) and q6_k (17): what a thread loads for a stage is under way at once.
// sass: mma_kernel<10, false> on sm_80, sm_90: at least 7 LDG under way, at least 4 IMMA, at most 224 registers
// sass: mma_kernel<14, false> on sm_80, sm_90: at least 11 LDG under way, at least 4 IMMA, at most 224 registers
// sass: mma_kernel<15, false> on sm_80, sm_90: at least 16 LDG under way, at least 4 IMMA, at most 232 registers
// sass: mma_kernel<17, false> on sm_80, sm_90: at least 24 LDG under way, at least 8 IMMA, at most 248 registers
template <int FORMAT, bool INTERLEAVED, class TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS) mma_kernel(quant_product p, int64_t row_tiles) {
  if constexpr (USED) {
    NN_SHARED_BYTES(shared);
    nn_let_next_start();
    nn_wait_for_kernels();
    quant_prepare_rows<TILE::THREADS>(p);
    multiply_tiles<FORMAT, INTERLEAVED, TILE>(p, row_tiles, shared);
  }
}

/* ---- the launch ---- */

template <class TILE> static int64_t columns_of(const quant_product &p) {
  return p.combine == NN_QUANT_SWIGLU ? TILE::ROWS / 2 : TILE::ROWS;
}

template <class TILE, int FORMAT, bool INTERLEAVED> static int32_t start(nncuda_ctx *ctx, quant_product &p) {
  const int64_t across = quant_column_tiles(p, columns_of<TILE>(p)), down = quant_row_tiles<TILE::TOKENS>(p);
  const int64_t most = 65535;
  return nn_launch_ahead(ctx, mma_kernel<FORMAT, INTERLEAVED, TILE>,
                         dim3((unsigned)across, (unsigned)(down < most ? down : most)), dim3(TILE::THREADS),
                         quant_stage<TILE, FORMAT>::SHARED, p, down);
}

template <int FORMAT, bool INTERLEAVED> static int32_t run(nncuda_ctx *ctx, quant_product &p, int64_t rows) {
  using large = large_tile<FORMAT>;
  const int64_t groups = p.offsets == nullptr ? 1 : p.groups;
  const int64_t tiles = quant_column_tiles(p, columns_of<large>(p)) * nn_ceil_div(rows, large::TOKENS) * groups;
  return rows > large::TOKENS / 2 && tiles >= nn_gpu_sms(ctx)
             ? start<large, FORMAT, INTERLEAVED>(ctx, p)
             : start<small_tile<FORMAT, INTERLEAVED>, FORMAT, INTERLEAVED>(ctx, p);
}

int32_t quant_run_mma(nncuda_ctx *ctx, quant_product &p, int64_t rows) {
  if (p.matrix[0].interleaved) {
    NN_SWITCH_BLOCKS(p.matrix[0].format, return (run<FORMAT, true>(ctx, p, rows)));
  } else {
    NN_SWITCH_BLOCKS(p.matrix[0].format, return (run<FORMAT, false>(ctx, p, rows)));
  }
  return NNCUDA_ERROR_INTERNAL;
}

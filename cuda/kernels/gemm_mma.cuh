/*
 * Products on the tensor cores by warps (mma.sync): f16 from sm_75, bf16 and tf32 from sm_80. gemm_wmma.cuh has the
 * same for f16 on sm_70, with fragments of its own.
 *
 * A factor's part of a tile lies in shared memory as it lies in global memory, with k or the rows (columns) of C as the
 * contiguous direction, and ldmatrix turns it on the way to the registers where that is needed; so no transpose ever
 * costs a copy. Rows of shared memory are swizzled in units of 16 bytes, so that neither the copies to it nor ldmatrix
 * meet bank conflicts.
 */
#ifndef NN_KERNELS_GEMM_MMA_CUH
#define NN_KERNELS_GEMM_MMA_CUH

#include "kernels/gemm_gather.cuh"

/*
 * Warps of 32 threads each sum WM x WN of a tile. ASYNC: global memory is copied to shared memory behind the products'
 * back (sm_80+), in a ring of STAGES; else it goes through registers, one stage ahead. WIDE: rows are runs of 16 bytes.
 * PAD: bytes behind each row of shared memory, where a layout does not swizzle.
 */
template <int WARPS_M_, int WARPS_N_, int WM_, int WN_, int STAGES_, bool ASYNC_, bool WIDE_, int BLOCKS_, int PAD = 0>
struct gemm_mma_tile {
  static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, WM = WM_, WN = WN_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr bool ASYNC = ASYNC_, WIDE = WIDE_;
  static constexpr int BM = WARPS_M * WM, BN = WARPS_N * WN, THREADS = WARPS_M * WARPS_N * NN_WARP;
  static constexpr int K_BYTES = 64, ROW_BYTES = K_BYTES + PAD, STEPS = 2; /* of 32 bytes of k in a stage */
  static constexpr int A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES, STAGE_BYTES = A_BYTES + B_BYTES;
  /* Sums pass through shared memory 16 rows a warp at a time. */
  static constexpr int SUMS_LD = WN + 8;
  static constexpr int SUMS_BYTES = WARPS_M * WARPS_N * 16 * SUMS_LD * 4;
  static constexpr int STAGES_BYTES = STAGES * STAGE_BYTES;
  static constexpr int TURN_AT = STAGES_BYTES > SUMS_BYTES ? STAGES_BYTES : SUMS_BYTES;
  static constexpr int SHARED = TURN_AT + (int)sizeof(gemm_turn);
};

/*
 * A warp that sums 64 x 64 reads 4 KiB of shared memory for 64 x 64 x 16 products: half of what shared memory delivers
 * while the tensor cores of an sm_80 do them (64 x 32 would be three quarters). Three stages of 128 x 128 are 48 KiB,
 * so two blocks fit everywhere. 64 x 64 tiles fill a GPU with products that have too few large ones. On sm_75 registers
 * also hold what is under way, and for tf32 what is rounded, hence 8 warps. By count.
 */
using gemm_mma_large = gemm_mma_tile<2, 2, 64, 64, 3, true, true, 2>;
using gemm_mma_small = gemm_mma_tile<2, 2, 32, 32, 4, true, true, 4>;
using gemm_mma_large_75 = gemm_mma_tile<2, 4, 64, 32, 2, false, true, 1>;
using gemm_mma_large_tf32 = gemm_mma_tile<2, 4, 64, 32, 3, true, true, 1>;
using gemm_mma_small_tf32 = gemm_mma_tile<2, 2, 32, 32, 4, true, true, 3>;
using gemm_mma_small_75 = gemm_mma_tile<2, 2, 32, 32, 2, false, true, 4>;
using gemm_mma_narrow = gemm_mma_tile<2, 2, 32, 32, 2, false, false, 4>;

/* Where 16 bytes lie in a tile: unit `unit` of row `row`. With k contiguous, rows are 64 bytes and two of them fill the
 * banks; else they are whole lines. Four-byte elements across rows are read one by one, four rows of 8 at a time. */
template <class T, bool ACROSS_MN, int R> struct gemm_mma_layout {
  static constexpr int EACH = 16 / sizeof(T), BK = 64 / sizeof(T);
  static constexpr int UNITS = ACROSS_MN ? R / EACH : 4, ROWS = ACROSS_MN ? BK : R, ROW_BYTES = UNITS * 16;
  static __device__ __forceinline__ int swizzle(int row) {
    return !ACROSS_MN ? row / 2 % 4 : sizeof(T) == 4 ? row % 4 * 2 : row % 8;
  }
  static __device__ __forceinline__ int at(int row, int unit) { return row * ROW_BYTES + (unit ^ swizzle(row)) * 16; }
};

/* Moves one factor's part of a tile to shared memory, BK of k at a time. RUN: of rows that are gates in turn with ups,
 * or 0. */
template <class T, bool ACROSS_MN, class LAYOUT, int THREADS, bool ASYNC, bool WIDE, int RUN = 0>
class gemm_mma_factor {
  using layout = LAYOUT;
  static constexpr int EACH = layout::EACH, BK = layout::BK;
  static constexpr int STEP = THREADS / layout::UNITS, COUNT = layout::ROWS / STEP;
  static_assert(THREADS % layout::UNITS == 0 && COUNT * STEP == layout::ROWS, "whole rows a pass");
  static_assert(STEP % (ACROSS_MN && sizeof(T) == 4 ? 4 : 8) == 0, "every pass has the same swizzle");
  /* Passes are whole pairs of runs, or runs in turn. */
  static constexpr bool IN_TURN = RUN != 0 && STEP == RUN;
  static_assert(RUN == 0 || (!ACROSS_MN && (IN_TURN || STEP % (RUN == 0 ? 1 : 2 * RUN) == 0)),
                "gates and ups are rows of B");

  const T *from; /* this thread's first unit of the next BK */
  int32_t mn;    /* rows or columns of C that are left, from this thread's first */
  int64_t up;    /* from a gate to its up, where runs are in turn */

  /* Which row pass i has, from this thread's first one on, of those that C has, and where it lies. */
  static __device__ __forceinline__ constexpr int32_t passed(int i) {
    return RUN == 0 ? i * STEP : IN_TURN ? i / 2 * RUN : i * (STEP / 2);
  }
  __device__ __forceinline__ int64_t at_pass(int i, int64_t ld) const {
    return IN_TURN && i % 2 == 1 ? passed(i) * ld + up : passed(i) * ld;
  }
  static __device__ __forceinline__ int32_t unit() { return threadIdx.x % layout::UNITS; }
  static __device__ __forceinline__ int32_t first_row() { return threadIdx.x / layout::UNITS; }
  /* How many elements of k are left for this thread's unit, and which rows are there. */
  __device__ __forceinline__ int32_t along(int32_t k) const { return ACROSS_MN ? mn : k - unit() * EACH; }
  __device__ __forceinline__ int32_t rows(int32_t k) const { return (ACROSS_MN ? k : mn) - first_row(); }

public:
  uint4 held[ASYNC ? 1 : COUNT];

  __device__ __forceinline__ void begin(const void *factor, int64_t at, int64_t ld, int64_t first_mn, int32_t valid_mn,
                                        int64_t k, int64_t to_up = 0) {
    const T *base = static_cast<const T *>(factor) + at;
    if constexpr (RUN != 0) {
      const gemm_paired_row<RUN> pair(first_row());
      from = base + (first_mn + pair.row) * ld + (pair.is_up ? to_up : 0) + k + unit() * EACH;
      mn = valid_mn - pair.row + first_row();
      up = to_up;
    } else if (ACROSS_MN) {
      from = base + (k + first_row()) * ld + first_mn + unit() * EACH;
      mn = valid_mn - unit() * EACH;
    } else {
      from = base + (first_mn + first_row()) * ld + k + unit() * EACH;
      mn = valid_mn;
    }
  }

  /* The next BK, of which k are there: asynchronously to shared memory at `stage`. With no bytes nothing is read. */
  __device__ __forceinline__ void copy(uint32_t stage, int64_t ld, int32_t k) {
    const int32_t left = along(k), above = rows(k);
    const int32_t bytes = (left < 0 ? 0 : left < EACH ? left : EACH) * (int32_t)sizeof(T);
    const uint32_t to = stage + layout::at(first_row(), unit());
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      nn_copy_async<16>(to + i * STEP * layout::ROW_BYTES, from + at_pass(i, ld), passed(i) < above ? bytes : 0);
    }
    from += ACROSS_MN ? BK * ld : BK;
  }

  /* The same through registers: `fetch`, later `put`. */
  __device__ __forceinline__ void fetch(int64_t ld, int32_t k) {
    const int32_t left = along(k), above = rows(k);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const T *at = from + at_pass(i, ld);
      const bool there = passed(i) < above;
      if (WIDE && there && left >= EACH) {
        held[i] = *reinterpret_cast<const uint4 *>(at);
      } else {
        static_assert(ASYNC || sizeof(T) == 2, "two elements a register");
        uint32_t word[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          word[e] = there && 2 * e < left ? reinterpret_cast<const uint16_t *>(at)[2 * e] : 0u;
          word[e] |= there && 2 * e + 1 < left ? (uint32_t)reinterpret_cast<const uint16_t *>(at)[2 * e + 1] << 16 : 0u;
        }
        held[i] = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
    from += ACROSS_MN ? BK * ld : BK;
  }

  __device__ __forceinline__ void put(unsigned char *stage) const {
    unsigned char *const to = stage + layout::at(first_row(), unit());
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      *reinterpret_cast<uint4 *>(to + i * STEP * layout::ROW_BYTES) = held[i];
    }
  }
};

/*
 * Reads what mma wants of a factor from shared memory: 16 rows of A, or 16 columns of B, by 16 of k (32 bytes) at once.
 * Register order of A: (rows 0-7, first half of k), (8-15, first), (0-7, second), (8-15, second); of B the middle two
 * change places. Each is what one 8 x 8 matrix of ldmatrix gives; lane l names row l % 8 of matrix l / 8.
 */
template <class T, bool ACROSS_MN, int R, bool IS_A> class gemm_mma_reader {
  using layout = gemm_mma_layout<T, ACROSS_MN, R>;
  uint32_t at;

public:
  __device__ __forceinline__ void begin(int32_t first) {
    const int lane = threadIdx.x % NN_WARP, low = lane / 8 % 2, high = lane / 16;
    const int mn_half = IS_A ? low : high, k_half = IS_A ? high : low;
    if (!ACROSS_MN) {
      at = layout::at(first + lane % 8 + 8 * mn_half, k_half);
    } else if (sizeof(T) == 2) {
      at = layout::at(lane % 8 + 8 * k_half, first / 8 + mn_half);
    } else {
      at = 0;
    }
  }

  /* 16 rows or columns i, the j-th 32 bytes of k of the stage. first + 16 * i stays within what `first` is a multiple
   * of, so that steps and swizzle do not meet. */
  __device__ __forceinline__ void read(uint32_t (&r)[4], uint32_t stage, int i, int j) const {
    if (!ACROSS_MN) {
      nn_ldmatrix_x4(r, stage + ((at + i * 16 * layout::ROW_BYTES) ^ (j * 32)));
    } else {
      nn_ldmatrix_x4_transposed(r, stage + ((at ^ (i * 32)) + j * 16 * layout::ROW_BYTES));
    }
  }

  /* Four-byte elements that lie across: ldmatrix cannot turn those. */
  __device__ __forceinline__ void read_words(uint32_t (&r)[4], const unsigned char *stage, int first, int j) const {
    const int lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const int mn = first + g + 8 * (IS_A ? q % 2 : q / 2), k = j * 8 + t + 4 * (IS_A ? q / 2 : q % 2);
      r[q] = *reinterpret_cast<const uint32_t *>(stage + layout::at(k, mn / 4) + mn % 4 * 4);
    }
  }
};

template <class T> constexpr bool gemm_is_f16 = false;
template <> constexpr bool gemm_is_f16<nn_f16> = true;

/* Which kernels an architecture has code for. */
template <class T, class TILE> __host__ __device__ constexpr bool gemm_mma_used() {
  if (TILE::ASYNC) {
    return GEMM_ARCH >= 80;
  }
  if constexpr (sizeof(T) == 2) {
    constexpr bool is_f16 = gemm_is_f16<T>;
    return TILE::WIDE ? GEMM_ARCH == 75 && is_f16 : GEMM_ARCH >= (is_f16 ? 75 : 80);
  }
  return false;
}

template <class T>
__device__ __forceinline__ void gemm_mma_step(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (sizeof(T) == 2) {
    nn_mma_m16n8k16<T>(d, a, b0, b1);
  } else {
    nn_mma_m16n8k8_tf32(d, a, b0, b1);
  }
}

/* What a warp holds of the factors: of A this step's part and the next one's, of B one part, each piece of which makes
 * way for its successor as soon as it has been used. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE> struct gemm_mma_fragments {
  static constexpr int MI = TILE::WM / 16, NI = TILE::WN / 16;
  static constexpr bool used = gemm_mma_used<T, TILE>();
  using layout_a = gemm_mma_layout<T, TRANS_A, TILE::BM>;
  using layout_b = gemm_mma_layout<T, !TRANS_B, TILE::BN>;
  using sums = float[MI][2 * NI][4];
  gemm_mma_reader<T, TRANS_A, TILE::BM, true> reader_a;
  gemm_mma_reader<T, !TRANS_B, TILE::BN, false> reader_b;
  uint32_t a[2][MI][4], b[NI][4];

  /* Where the warp's own part of the tile begins. */
  __device__ __forceinline__ void place(int32_t row, int32_t column) {
    reader_a.begin(row);
    reader_b.begin(column);
  }

  static __device__ __forceinline__ void clear(sums &sum) {
#pragma unroll
    for (int i = 0; i < MI * 2 * NI * 4; i++) {
      sum[i / (2 * NI * 4)][i / 4 % (2 * NI)][i % 4] = 0.0f;
    }
  }

  /* The tensor cores would cut the bits of an f32 off. */
  static __device__ __forceinline__ void round(uint32_t (&r)[4]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int q = 0; q < 4; q++) {
        r[q] = nn_f32_to_tf32(__uint_as_float(r[q]));
      }
    }
  }

  __device__ __forceinline__ void read_a(uint32_t (&to)[MI][4], unsigned char *stage, int j, int32_t row) {
    const uint32_t shared = nn_shared_address(stage);
#pragma unroll
    for (int i = 0; i < MI; i++) {
      if constexpr (sizeof(T) == 4 && TRANS_A) {
        reader_a.read_words(to[i], stage, row + 16 * i, j);
      } else {
        reader_a.read(to[i], shared, i, j);
      }
      round(to[i]);
    }
  }

  __device__ __forceinline__ void read_b(int i, unsigned char *stage, int j, int32_t column) {
    if constexpr (sizeof(T) == 4 && !TRANS_B) {
      reader_b.read_words(b[i], stage + TILE::A_BYTES, column + 16 * i, j);
    } else {
      reader_b.read(b[i], nn_shared_address(stage) + TILE::A_BYTES, i, j);
    }
    round(b[i]);
  }

  /* Before the first step. */
  __device__ __forceinline__ void begin(unsigned char *stage, int32_t row, int32_t column) {
    read_a(a[0], stage, 0, row);
#pragma unroll
    for (int i = 0; i < NI; i++) {
      read_b(i, stage, 0, column);
    }
  }

  /* A step whose part of A is in a[now]; the next one, if there is one, is the j-th of `stage`. */
  __device__ __forceinline__ void multiply(sums &sum, int now, unsigned char *stage, int j, int32_t row, int32_t column,
                                           bool more = true) {
    if (more) {
      read_a(a[1 - now], stage, j, row);
    }
#pragma unroll
    for (int q = 0; q < NI; q++) {
#pragma unroll
      for (int i = 0; i < MI; i++) {
        gemm_mma_step<T>(sum[i][2 * q], a[now][i], b[q][0], b[q][1]);
        gemm_mma_step<T>(sum[i][2 * q + 1], a[now][i], b[q][2], b[q][3]);
      }
      if (more) {
        read_b(q, stage, j, column);
      }
    }
  }

  /* A whole stage. */
  __device__ __forceinline__ void multiply_stage(sums &sum, unsigned char *stage, int32_t row, int32_t column) {
    begin(stage, row, column);
#pragma unroll
    for (int j = 0; j < TILE::STEPS; j++) {
      multiply(sum, j % 2, stage, j + 1, row, column, j + 1 < TILE::STEPS);
    }
  }

  /* Puts the first 16 rows of sums into memory, rows LD apart; the others move up. */
  template <int LD> static __device__ __forceinline__ void leave(float *to, sums &sum) {
    const int lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < 2 * NI; j++) {
      *reinterpret_cast<float2 *>(to + g * LD + 8 * j + 2 * t) = make_float2(sum[0][j][0], sum[0][j][1]);
      *reinterpret_cast<float2 *>(to + (g + 8) * LD + 8 * j + 2 * t) = make_float2(sum[0][j][2], sum[0][j][3]);
    }
#pragma unroll
    for (int r = 0; r + 1 < MI; r++) {
#pragma unroll
      for (int j = 0; j < 2 * NI; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          sum[r][j][e] = sum[r + 1][j][e];
        }
      }
    }
  }
};

/* Sums of one warp to C, 16 rows at a time through its own part of shared memory, so that rows are written whole. */
template <class T, class TILE, class FRAGMENTS, int GATE>
__device__ __forceinline__ void gemm_mma_store(const gemm_problem &p, const gemm_place &place, unsigned char *memory,
                                               int32_t row, int32_t column, typename FRAGMENTS::sums &sum) {
  constexpr int LD = TILE::SUMS_LD, LANES = gemm_columns<GATE, TILE::WN> / 8, ROWS = NN_WARP / LANES;
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  float *const sums = reinterpret_cast<float *>(memory) + warp * 16 * LD;
  /* Always the first rows of the sums: a quarter of the code. */
#pragma unroll 1
  for (int i = 0; i < TILE::WM / 16; i++) {
    FRAGMENTS::template leave<LD>(sums, sum);
    __syncwarp();
#pragma unroll 1 /* registers are full of sums */
    for (int r = lane / LANES; r < 16; r += ROWS) {
      const float *from = sums + r * LD + lane % LANES * 8;
      const float4 u = *reinterpret_cast<const float4 *>(from), v = *reinterpret_cast<const float4 *>(from + 4);
      const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
      const int32_t at = row + 16 * i + r, to = lane % LANES * 8;
      if constexpr (GATE == GEMM_SWIGLU) {
        gemm_put_swiglu_any<T, 8>(p, place, at, column / 2 + to, x, from + TILE::WN / 2);
      } else if constexpr (GATE == GEMM_SWIGLU_BACKWARD) {
        gemm_put_slopes_any<T>(p, place, at, column + to, x);
      } else if constexpr (GATE == GEMM_GATHERED) {
        gemm_put_gathered_any<T>(p, place, at, column + to, x);
      } else {
        gemm_put<T>(p, place, at, column + to, x);
      }
    }
    __syncwarp();
  }
}

/* The tiles of a block. FRAGMENTS: what a warp holds of the factors in registers, how both lie in shared memory, and
 * the products. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE, class FRAGMENTS, int GATE>
__device__ __forceinline__ void gemm_mma_block(const gemm_problem &p, gemm_blocks blocks) {
  if constexpr (FRAGMENTS::used) {
    constexpr int BM = TILE::BM, BN = TILE::BN, BK = TILE::K_BYTES / (int)sizeof(T);
    NN_SHARED_BYTES(memory);
    const int warp = threadIdx.x / NN_WARP;
    const int32_t row = warp / TILE::WARPS_N * TILE::WM, column = warp % TILE::WARPS_N * TILE::WN;
    FRAGMENTS fragments;
    fragments.place(row, column);
    gemm_turn &turn = *reinterpret_cast<gemm_turn *>(memory + TILE::TURN_AT);
    const gemm_place &place = turn.place;
    for (bool first = true; gemm_next<BM, gemm_columns<GATE, BN>>(p, turn, first, blocks); first = false) {
      gemm_mma_factor<T, TRANS_A, typename FRAGMENTS::layout_a, TILE::THREADS, TILE::ASYNC, TILE::WIDE> a;
      gemm_mma_factor<T, !TRANS_B, typename FRAGMENTS::layout_b, TILE::THREADS, TILE::ASYNC, TILE::WIDE,
                      GATE == GEMM_SWIGLU ? TILE::WN / 2 : 0>
          b;
      a.begin(p.a, place.a, p.lda, place.row, place.rows, place.k_begin);
      b.begin(p.b, place.b, p.ldb, place.column, place.columns, place.k_begin, p.up * p.ldb);
      const int64_t depth = place.k_end - place.k_begin;
      const int32_t stages = (int32_t)nn_ceil_div(depth, BK), last = (int32_t)(depth - (int64_t)(stages - 1) * BK);
      const auto left = [&](int32_t stage) { return stage < stages - 1 ? BK : stage == stages - 1 ? last : 0; };
      typename FRAGMENTS::sums sum;
      FRAGMENTS::clear(sum);
      if constexpr (TILE::ASYNC) {
        constexpr int STAGES = TILE::STAGES, STEPS = TILE::STEPS;
        const uint32_t shared = nn_shared_address(memory);
        const auto copy = [&](int32_t stage, int slot) {
          const uint32_t to = shared + slot * TILE::STAGE_BYTES;
          const int32_t k = left(stage);
          a.copy(to, p.lda, k);
          b.copy(to + TILE::A_BYTES, p.ldb, k);
          nn_copy_async_commit();
        };
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
          copy(i, i);
        }
        nn_copy_async_wait<STAGES - 2>();
        __syncthreads();
        fragments.begin(memory, row, column);
        int slot = 0;
        for (int32_t stage = 0; stage < stages; stage++) {
          const int next = slot + 1 == STAGES ? 0 : slot + 1;
#pragma unroll
          for (int j = 0; j < STEPS; j++) {
            if (j == STEPS - 1) { /* this stage's memory has been read, the next one's is there */
              nn_copy_async_wait<STAGES - 2>();
              __syncthreads();
            }
            if (j == 0) { /* over the stage before this one */
              copy(stage + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);
            }
            fragments.multiply(sum, j % 2, memory + (j == STEPS - 1 ? next : slot) * TILE::STAGE_BYTES, (j + 1) % STEPS,
                               row, column);
          }
          slot = next;
        }
        nn_copy_async_wait<0>();
      } else {
        a.fetch(p.lda, left(0));
        b.fetch(p.ldb, left(0));
        for (int32_t stage = 0; stage < stages; stage++) {
          const int slot = stage % 2;
          a.put(memory + slot * TILE::STAGE_BYTES);
          b.put(memory + slot * TILE::STAGE_BYTES + TILE::A_BYTES);
          __syncthreads(); /* the other slot is written only after the next of these */
          if (stage + 1 < stages) {
            a.fetch(p.lda, left(stage + 1));
            b.fetch(p.ldb, left(stage + 1));
          }
          fragments.multiply_stage(sum, memory + slot * TILE::STAGE_BYTES, row, column);
        }
      }
      __syncthreads(); /* the sums pass through the stages' memory */
      gemm_mma_store<T, TILE, FRAGMENTS, GATE>(p, place, memory, row, column, sum);
      __syncthreads();
    }
  }
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE,
          class FRAGMENTS = gemm_mma_fragments<T, TRANS_A, TRANS_B, TILE>, int GATE = GEMM_PLAIN>
__global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS) gemm_mma_kernel(gemm_problem p) {
  gemm_mma_block<T, TRANS_A, TRANS_B, TILE, FRAGMENTS, GATE>(p, gemm_whole_grid());
}

/* Both products of moe_input_backward: the first blocks take the gate's gradient, the others the tokens'. */
template <class T, class TILE, template <class, bool, bool, class> class FRAGMENTS = gemm_mma_fragments>
__global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS - 1)
    gemm_mma_router_kernel(gemm_problem of_gate, gemm_problem of_tokens) {
  const int64_t block = blockIdx.x, first = of_gate.tiles;
  if (block < first) {
    gemm_mma_block<T, true, false, TILE, FRAGMENTS<T, true, false, TILE>, GEMM_PLAIN>(of_gate, {block, first});
  } else {
    gemm_mma_block<T, false, false, TILE, FRAGMENTS<T, false, false, TILE>, GEMM_GATHERED>(
        of_tokens, {block - first, (int64_t)gridDim.x - first});
  }
}

template <class T, class TILE, template <class, bool, bool, class> class FRAGMENTS = gemm_mma_fragments>
inline int32_t gemm_mma_run_tile(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  if (p.gate == GEMM_SWIGLU) {
    return gemm_start<TILE::BM, TILE::BN / 2, TILE::THREADS>(
        ctx, gemm_mma_kernel<T, false, true, TILE, FRAGMENTS<T, false, true, TILE>, GEMM_SWIGLU>, p, TILE::SHARED);
  }
  if (p.gate == GEMM_SWIGLU_BACKWARD) {
    return gemm_start<TILE::BM, TILE::BN, TILE::THREADS>(
        ctx, gemm_mma_kernel<T, false, false, TILE, FRAGMENTS<T, false, false, TILE>, GEMM_SWIGLU_BACKWARD>, p,
        TILE::SHARED);
  }
  const auto kernel = choice.trans_a   ? choice.trans_b
                                             ? gemm_mma_kernel<T, true, true, TILE, FRAGMENTS<T, true, true, TILE>>
                                             : gemm_mma_kernel<T, true, false, TILE, FRAGMENTS<T, true, false, TILE>>
                        : choice.trans_b ? gemm_mma_kernel<T, false, true, TILE, FRAGMENTS<T, false, true, TILE>>
                                       : gemm_mma_kernel<T, false, false, TILE, FRAGMENTS<T, false, false, TILE>>;
  return gemm_start<TILE::BM, TILE::BN, TILE::THREADS>(ctx, kernel, p, TILE::SHARED);
}

template <class T> struct gemm_mma_tiles {
  using large = gemm_mma_large;
  using small = gemm_mma_small;
};
template <> struct gemm_mma_tiles<float> {
  using large = gemm_mma_large_tf32;
  using small = gemm_mma_small_tf32;
};

/* On an architecture that has products of T. */
template <class T> inline int32_t gemm_mma_launch(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice) {
  if constexpr (sizeof(T) == 2) {
    if (!choice.wide) {
      return gemm_mma_run_tile<T, gemm_mma_narrow>(ctx, p, choice);
    }
    if constexpr (gemm_is_f16<T>) {
      if (nn_gpu_arch(ctx) < 80) {
        return choice.large ? gemm_mma_run_tile<T, gemm_mma_large_75>(ctx, p, choice)
                            : gemm_mma_run_tile<T, gemm_mma_small_75>(ctx, p, choice);
      }
    }
  }
  return choice.large ? gemm_mma_run_tile<T, typename gemm_mma_tiles<T>::large>(ctx, p, choice)
                      : gemm_mma_run_tile<T, typename gemm_mma_tiles<T>::small>(ctx, p, choice);
}

#endif

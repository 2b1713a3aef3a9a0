/*
 * What the kernels of the matrix products share: the products as kernels see them, which tile of which product comes
 * next, and the way from finished sums to C.
 *
 * All six functions of bindings.h are one thing here: `count` products of m x n x k, of which `offsets` may cut m (the
 * experts' rows) or k (their weights' gradients) into groups. Files: gemm.cu plans; gemm_mma.cuh multiplies on the
 * tensor cores, gemm_simt.cuh without them, gemm_rows.cu serves few rows, gemm_wmma.cuh is for sm_70, gemm_wgmma.cuh
 * for sm_90a.
 *
 * An element of C is summed in order of k by one block, or, where C is too small to keep a GPU busy, in pieces of k
 * that are added in their order afterwards. What is a piece follows from the sizes alone.
 */
#ifndef NN_KERNELS_GEMM_CUH
#define NN_KERNELS_GEMM_CUH

#include "abi/gemm.h"
#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

/* What this pass of the compiler makes code for; 0 on the host. Kernels that an architecture does not use are empty
 * there. */
#ifdef __CUDA_ARCH__
constexpr int GEMM_ARCH = __CUDA_ARCH__ / 10;
#else
constexpr int GEMM_ARCH = 0;
#endif

struct gemm_problem {
  const void *a, *b;
  void *c;
  const void *bias, *residual;
  const int32_t *offsets;
  float *partial;       /* [pieces, count, m, n]: sums of pieces of k, or null */
  nn_rule first_offset; /* with their words, since the host follows those: a literal of the device is none to it */
  nn_range other_offsets;
  int64_t count, m, n, k;
  int64_t lda, ldb, ldc;
  int64_t a_step, b_step, c_step; /* elements from one product to the next */
  int64_t tiles_m, tiles_n;       /* of one product */
  int64_t tiles;                  /* of all; a bound where m is ragged */
  int64_t piece;                  /* k of a piece, a multiple of what a tile takes at once */
  int32_t pieces;
  int32_t activation, ragged;
  int32_t c_f32, c_wide; /* C is f32 whatever the factors; C, bias and residual allow 16 bytes at once */
  float alpha, beta;
  /* Products that end with a gate (gemm_gate.cuh): C is gates and, `up` columns behind them, ups. */
  int32_t gate;
  int64_t up;
  void *gated; /* y [m, n] of GEMM_SWIGLU */
  /* Of GEMM_GATHERED: row i of C as it was is the sum of the rows slot_row[i, 0 .. slots - 1] here (gemm_gather.cuh).
   */
  const void *rows;
  const int32_t *slot_row;
  int64_t slots;
  nn_range row_range;
  int64_t b_scale_step; /* of codes (gemm_fp8.cuh): lines of B's scales from one product to the next */
};

enum { GEMM_PLAIN, GEMM_SWIGLU, GEMM_SWIGLU_BACKWARD, GEMM_GATHERED };

/* The blocks that share the tiles of a problem, and which of them this one is: all of a grid, or some. */
struct gemm_blocks {
  int64_t own, all;
};
__device__ __forceinline__ gemm_blocks gemm_whole_grid() { return {blockIdx.x, gridDim.x}; }

/* A tile of C and the part of k that it sums. */
struct gemm_place {
  int64_t a, b, c;     /* first elements of the product's matrices */
  int64_t row, column; /* of the tile, in the product */
  int64_t k_begin, k_end;
  int64_t sums;           /* with pieces: first row of this one in `partial` */
  int64_t product, first; /* which one; where offsets cut, the first row (k) of its group */
  int32_t rows, columns;
};

/* Tiles of this many rows follow each other down a column of tiles before the next column: what they read of B stays in
 * L2. By count (8 x 128 rows of A and as many of B at k = 8192 are 32 MB). */
constexpr int64_t GEMM_BAND = 8;

/* Where a block is on its way through the tiles. It lies in shared memory, since registers are what tiles lack. */
struct gemm_turn {
  gemm_place place;
  int64_t tile;          /* the next one of this block; blocks take turns */
  int64_t group, before; /* where m is ragged: 32 groups are looked at together, these after `before` tiles */
  int32_t more;
};

/* offsets[0] = 0, never falling, the last at most the rows. One warp of each block looks, one of all reports. */
__device__ __forceinline__ bool gemm_offsets_hold(const gemm_problem &p) {
  const int lane = threadIdx.x % NN_WARP;
  const int64_t rows = p.ragged == NN_GEMM_RAGGED_M ? p.m : p.k;
  for (int64_t first = 0; first <= p.count; first += NN_WARP) {
    const int64_t i = first + lane;
    int64_t value = 0, low = 0, high = 0;
    if (i <= p.count) {
      value = p.offsets[i];
      low = i == 0 ? 0 : p.offsets[i - 1];
      high = i == 0 ? 0 : rows;
    }
    const unsigned wrong = __ballot_sync(NN_ALL_LANES, value < low || value > high);
    if (wrong != 0) {
      if (blockIdx.x == 0 && lane == __ffs((int)wrong) - 1) {
        if (i == 0) {
          p.first_offset.broken_by(0, value);
        } else {
          nn_range range = p.other_offsets;
          range.low = low;
          range.holds(i, value);
        }
      }
      return false;
    }
  }
  return true;
}

/* How many tiles of 2^log_rows rows cover m of them. */
__device__ __forceinline__ int64_t gemm_rows_of_tiles(int64_t m, int log_rows) {
  return (m + (1 << log_rows) - 1) >> log_rows;
}

/* The group of rows that holds the tile, of 2^log_rows rows, with its rows from .. to - 1; the tile's number in it
 * becomes `at`. -1 after the last. */
__device__ __forceinline__ int64_t gemm_group_of(const gemm_problem &p, int log_rows, int64_t &group, int64_t &before,
                                                 int64_t &at, int64_t &from, int64_t &to) {
  const int lane = threadIdx.x % NN_WARP;
  for (; group < p.count; group += NN_WARP) {
    const int64_t g = group + lane;
    int32_t begin = 0, end = 0;
    if (g < p.count) {
      begin = p.offsets[g];
      end = p.offsets[g + 1];
    }
    const int64_t through = nn_warp_scan(gemm_rows_of_tiles(end - begin, log_rows) * p.tiles_n);
    const unsigned later = __ballot_sync(NN_ALL_LANES, at < before + through);
    if (later != 0) {
      const int found = __ffs((int)later) - 1;
      const int64_t previous = __shfl_sync(NN_ALL_LANES, (long long)through, found > 0 ? found - 1 : 0);
      from = __shfl_sync(NN_ALL_LANES, begin, found);
      to = __shfl_sync(NN_ALL_LANES, end, found);
      at -= before + (found > 0 ? previous : 0);
      return group + found;
    }
    before += __shfl_sync(NN_ALL_LANES, (long long)through, NN_WARP - 1);
  }
  return -1;
}

/* A whole warp finds the block's next tile of 2^log_rows x BN; all lanes get the answer. INDEX: what there are fewer
 * tiles than, and divisions are done in. */
template <int BN, class INDEX = int64_t>
__device__ __forceinline__ bool gemm_find(const gemm_problem &p, int log_rows, int64_t tile, int64_t &group,
                                          int64_t &before, gemm_place &to) {
  if (tile >= p.tiles) {
    return false;
  }
  int64_t at = tile, m = p.m, tiles_m = p.tiles_m;
  to.k_begin = 0;
  to.k_end = p.k;
  to.sums = 0;
  if (p.ragged == NN_GEMM_RAGGED_M) {
    int64_t first = 0, end = 0;
    const int64_t found = gemm_group_of(p, log_rows, group, before, at, first, end);
    if (found < 0) {
      return false;
    }
    m = end - first;
    tiles_m = gemm_rows_of_tiles(m, log_rows);
    to.a = first * p.lda;
    to.b = found * p.b_step;
    to.c = first * p.ldc;
    to.product = found;
    to.first = first;
  } else {
    const int64_t each = tiles_m * p.tiles_n, product = (INDEX)tile / (INDEX)each;
    const int64_t piece = p.pieces == 1 ? 0 : (INDEX)product / (INDEX)p.count;
    const int64_t i = product - piece * p.count;
    at -= product * each;
    to.c = i * p.c_step;
    to.product = i;
    to.first = 0;
    if (p.ragged == NN_GEMM_RAGGED_K) {
      const int64_t first = p.offsets[i];
      to.first = first;
      to.k_end = p.offsets[i + 1] - first;
      to.a = first * p.lda;
      to.b = first * p.ldb;
    } else {
      to.a = i * p.a_step;
      to.b = i * p.b_step;
      to.k_begin = piece * p.piece;
      to.k_end = to.k_begin + p.piece < p.k ? to.k_begin + p.piece : p.k;
      to.sums = product * p.m;
    }
  }
  const int64_t band = (INDEX)at / (INDEX)(GEMM_BAND * p.tiles_n) * GEMM_BAND, in_band = at - band * p.tiles_n;
  const int64_t high = tiles_m - band < GEMM_BAND ? tiles_m - band : GEMM_BAND;
  const int64_t across = (INDEX)in_band / (INDEX)high;
  const int64_t rows = 1 << log_rows;
  to.row = (band + in_band - across * high) << log_rows;
  to.column = across * BN;
  to.rows = (int32_t)(m - to.row < rows ? m - to.row : rows);
  to.columns = (int32_t)(p.n - to.column < BN ? p.n - to.column : BN);
  return true;
}

template <int POWER> constexpr int gemm_log2 = 1 + gemm_log2<POWER / 2>;
template <> constexpr int gemm_log2<1> = 0;

/* Moves to the block's next tile, `turn.place`; false after the last. All threads of the block call it, when none
 * needs the tile before any more. */
template <int BM, int BN>
__device__ __forceinline__ bool gemm_next(const gemm_problem &p, gemm_turn &turn, bool first, gemm_blocks blocks) {
  if (threadIdx.x < NN_WARP) {
    int64_t tile = blocks.own, group = 0, before = 0;
    if (!first) {
      tile = turn.tile + blocks.all;
      group = turn.group;
      before = turn.before;
    }
    __syncwarp();
    gemm_place place;
    const bool holds = !first || p.ragged == NN_GEMM_EVEN || gemm_offsets_hold(p);
    const bool more = holds && gemm_find<BN>(p, gemm_log2<BM>, tile, group, before, place);
    if (threadIdx.x == 0) {
      turn.place = place;
      turn.tile = tile;
      turn.group = group;
      turn.before = before;
      turn.more = more;
    }
  }
  __syncthreads();
  return turn.more != 0;
}

/* alpha, beta, bias, activation, residual, and the one rounding: N sums that belong to C from element `at` on, column
 * `column` of their product. Only the first `valid` are there. */
template <class C, int N>
__device__ __forceinline__ void gemm_finish(const gemm_problem &p, int64_t at, int64_t column, float (&x)[N],
                                            int32_t valid) {
  C *const c = static_cast<C *>(p.c) + at;
  const C *const bias = static_cast<const C *>(p.bias), *const residual = static_cast<const C *>(p.residual);
  const bool wide = p.c_wide && valid >= N;
  const auto load = [&](float(&to)[N], const C *from) {
    if (wide) {
      nn_load(to, from);
    } else {
#pragma unroll
      for (int i = 0; i < N; i++) {
        to[i] = i < valid ? nn_to_float(from[i]) : 0.0f;
      }
    }
  };
  float y[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    x[i] = __fmul_rn(x[i], p.alpha); /* never one with an addition: every way to C has the same roundings */
  }
  if (p.beta != 0.0f) {
    load(y, c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      x[i] = fmaf(p.beta, y[i], x[i]);
    }
  }
  if (bias != nullptr) {
    load(y, bias + column);
#pragma unroll
    for (int i = 0; i < N; i++) {
      x[i] = __fadd_rn(x[i], y[i]);
    }
  }
  if (p.activation == NNCUDA_ACTIVATION_SILU) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      x[i] = x[i] / (1.0f + expf(-x[i]));
    }
  }
  if (residual != nullptr) {
    load(y, residual + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
      x[i] = __fadd_rn(x[i], y[i]);
    }
  }
  if (wide) {
    nn_store(c, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (i < valid) {
      c[i] = nn_from_float<C>(x[i]);
    }
  }
}

/* The same for four or eight sums, whatever type C has. */
template <class T, int N>
__device__ __forceinline__ void gemm_finish_any(const gemm_problem &p, int64_t at, int64_t column, const float (&x)[N],
                                                int32_t valid) {
  if (sizeof(T) == 2 && !p.c_f32) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      y[i] = x[i];
    }
    gemm_finish<T, N>(p, at, column, y, valid);
    return;
  }
#pragma unroll
  for (int first = 0; first < N; first += 4) {
    if (first < valid) {
      float y[4] = {x[first], x[first + 1], x[first + 2], x[first + 3]};
      gemm_finish<float, 4>(p, at + first, column + first, y, valid - first);
    }
  }
}

/* Row r, columns c to c + N - 1 of a tile: to C, or to where pieces wait to be added. c is a multiple of N. */
template <class T, int N>
__device__ __forceinline__ void gemm_put(const gemm_problem &p, const gemm_place &place, int32_t r, int32_t c,
                                         const float (&x)[N]) {
  const int64_t row = place.row + r, column = place.column + c;
  const int32_t valid = place.columns - c;
  if (r >= place.rows || valid <= 0) {
    return;
  }
  if (p.partial == nullptr) {
    gemm_finish_any<T, N>(p, place.c + row * p.ldc + column, column, x, valid);
    return;
  }
  float *to = p.partial + (place.sums + row) * p.n + column;
  if (p.n % 4 == 0) { /* then `valid` is a multiple of 4, too */
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      if (i < valid) {
        *reinterpret_cast<float4 *>(to + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (i < valid) {
      to[i] = x[i];
    }
  }
}

/* In gemm.cu: a product as kernels see it, without its cut; and what adds up its pieces, where it has some. */
gemm_problem gemm_problem_of(nncuda_ctx *ctx, const nn_gemm_args *x);
int32_t gemm_add_pieces(nncuda_ctx *ctx, const gemm_problem &p, int32_t dtype);

/* What a file of kernels offers the plan: starts the products of `p` with tiles of a size it has. */
struct gemm_choice {
  int32_t trans_a, trans_b;
  int32_t large; /* the larger tile */
  int32_t wide;  /* rows of A and B are runs of 16 bytes */
};

/* At most NN_GEMM_FEW_ROWS rows; trans_b, not trans_a; wide; nothing ragged, no pieces. */
int32_t gemm_run_rows(nncuda_ctx *ctx, const gemm_problem &p, int32_t dtype);
int32_t gemm_run_simt(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype);
int32_t gemm_run_wmma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice); /* on sm_70 */
int32_t gemm_run_mma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice);  /* from sm_75 */
int32_t gemm_run_mma_bf16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice);
int32_t gemm_run_mma_tf32(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice);

/* By the instructions of sm_90a. `done` is cleared, and nothing started, where the code on this GPU has none, or the
 * factors do not lie as the copy engine wants it. */
int32_t gemm_run_wgmma_f16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, bool *done);
int32_t gemm_run_wgmma_bf16(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, bool *done);

template <int BM, int BN> inline void gemm_count_tiles(gemm_problem &p) {
  p.tiles_m = nn_ceil_div(p.m, BM);
  p.tiles_n = nn_ceil_div(p.n, BN);
  /* Each group of rows may end with a part of a tile, unless it is empty. */
  p.tiles = p.ragged == NN_GEMM_RAGGED_M ? (p.m / BM + (p.count < p.m ? p.count : p.m)) * p.tiles_n
                                         : p.tiles_m * p.tiles_n * p.count * p.pieces;
}

/* Starts one block a tile, as far as a grid goes; blocks take further tiles in turn. */
template <int BM, int BN, int THREADS, class... P>
inline int32_t gemm_start(nncuda_ctx *ctx, void (*kernel)(gemm_problem, P...), gemm_problem &p, size_t shared,
                          typename nn_exactly<P>::type... more) {
  gemm_count_tiles<BM, BN>(p);
  const int64_t most = 0x7fffffff;
  return nn_launch(ctx, kernel, dim3((unsigned)(p.tiles < most ? p.tiles : most)), dim3(THREADS), shared, p, more...);
}

#endif

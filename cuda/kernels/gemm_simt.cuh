/*
 * Products without tensor cores: f32 in true f32, and bf16 where the GPU has no product for it. A tile's parts of A and
 * B lie in shared memory as f32 with k as the slow direction; each thread sums 4 or 8 rows by 8 columns.
 */
#ifndef NN_KERNELS_GEMM_SIMT_CUH
#define NN_KERNELS_GEMM_SIMT_CUH

#include "kernels/gemm_gather.cuh"

/*
 * A warp's 32 threads lie 4 by 8 on its tile of C, each with MB x 2 blocks of 4 x 4, so that a warp reads 64 contiguous
 * bytes of A and 128 of B at once, without bank conflicts. By count of registers (64 sums and 24 for what is under way
 * leave two blocks of 256 threads on a multiprocessor).
 */
template <int WARPS_M_, int WARPS_N_, int MB_, int BK_> struct gemm_simt_tile {
  static constexpr int MB = MB_, NB = 2, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
  static constexpr int BM = WARPS_M * 16 * MB, BN = WARPS_N * 32 * NB, BK = BK_;
  static constexpr int THREADS = WARPS_M * WARPS_N * NN_WARP;
};
using gemm_simt_large = gemm_simt_tile<4, 2, 2, 8>;  /* 128 x 128, 256 threads */
using gemm_simt_small = gemm_simt_tile<4, 1, 1, 16>; /* 64 x 64, 128 threads */

/* Moves R x BK of a factor from global to shared memory [BK][R + 4]. ACROSS_MN: the rows or columns of C are the
 * contiguous direction of the factor in memory, else k. RUN: of rows that are gates in turn with ups, or 0. */
template <class T, bool ACROSS_MN, int R, int BK, int THREADS, int RUN = 0> struct gemm_simt_factor {
  static constexpr int ACROSS = (ACROSS_MN ? R : BK) / 4, STEP = THREADS / ACROSS;
  static constexpr int COUNT = (ACROSS_MN ? BK : R) / STEP, LD = R + 4;
  static_assert(THREADS % ACROSS == 0 && COUNT * STEP == (ACROSS_MN ? BK : R), "whole rows a pass");
  static_assert(RUN == 0 || !ACROSS_MN, "gates and ups are rows of B");
  float x[COUNT][4];

  /* `from` is the factor's first element of the tile; `mn` and `k` are what is left of it; a gate's up is `up` behind
   * it. */
  __device__ __forceinline__ void fetch(const T *from, int64_t ld, int32_t mn, int32_t k, bool wide, int64_t up = 0) {
    const int32_t row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * 4;
    const int32_t rows = ACROSS_MN ? k : mn, valid = (ACROSS_MN ? mn : k) - column;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      int32_t r = row + i * STEP;
      int64_t behind = 0;
      if constexpr (RUN != 0) {
        const gemm_paired_row<RUN> pair(r);
        r = pair.row;
        behind = pair.is_up ? up : 0;
      }
      const T *at = from + r * ld + column + behind;
      if (wide && r < rows && valid >= 4) {
        nn_load(x[i], at);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          x[i][e] = r < rows && e < valid ? nn_to_float(at[e]) : 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void put(float *to) const {
    const int32_t row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * 4;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int32_t r = row + i * STEP;
      if (ACROSS_MN) {
        *reinterpret_cast<float4 *>(to + r * LD + column) = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          to[(column + e) * LD + r] = x[i][e];
        }
      }
    }
  }
};

/* Where the tensor cores take bf16, from sm_80, this is not used; they take f16 everywhere. */
template <class T> constexpr bool gemm_simt_used = true;
template <> constexpr bool gemm_simt_used<nn_bf16> = GEMM_ARCH < 80;

/* A block's shared memory: two stages of each factor, and where it is. */
template <class TILE> struct gemm_simt_memory {
  alignas(16) float a[2][TILE::BK * (TILE::BM + 4)];
  alignas(16) float b[2][TILE::BK * (TILE::BN + 4)];
  gemm_turn turn;
};

/* The tiles of a block. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE, int GATE>
__device__ __forceinline__ void gemm_simt_block(const gemm_problem &p, bool wide, gemm_simt_memory<TILE> &memory,
                                                gemm_blocks blocks) {
  if constexpr (gemm_simt_used<T>) {
    constexpr int BM = TILE::BM, BN = TILE::BN, BK = TILE::BK, MB = TILE::MB, NB = TILE::NB;
    using factor_a = gemm_simt_factor<T, TRANS_A, BM, BK, TILE::THREADS>;
    /* A warp's two blocks of 32 columns: gates and their ups. */
    using factor_b = gemm_simt_factor<T, !TRANS_B, BN, BK, TILE::THREADS, GATE == GEMM_SWIGLU ? 32 : 0>;
    static_assert(factor_a::LD == BM + 4 && factor_b::LD == BN + 4, "as gemm_simt_memory has them");
    const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
    const int row = warp / TILE::WARPS_N * 16 * MB + lane / 8 * 4,
              column = warp % TILE::WARPS_N * 32 * NB + lane % 8 * 4;
    gemm_turn &turn = memory.turn;
    const gemm_place &place = turn.place;
    const int64_t up = GATE == GEMM_SWIGLU ? p.up * p.ldb : 0;
    for (bool first = true; gemm_next<BM, gemm_columns<GATE, BN>>(p, turn, first, blocks); first = false) {
      const int64_t a_row = TRANS_A ? 1 : p.lda, a_k = TRANS_A ? p.lda : 1;
      const int64_t b_column = TRANS_B ? p.ldb : 1, b_k = TRANS_B ? 1 : p.ldb;
      const T *a = static_cast<const T *>(p.a) + place.a + place.row * a_row + place.k_begin * a_k;
      const T *b = static_cast<const T *>(p.b) + place.b + place.column * b_column + place.k_begin * b_k;
      const int64_t depth = place.k_end - place.k_begin;
      const int32_t steps = (int32_t)nn_ceil_div(depth, BK), last = (int32_t)(depth - (int64_t)(steps - 1) * BK);
      const auto left = [&](int32_t step) { return step < steps - 1 ? BK : step == steps - 1 ? last : 0; };
      factor_a fa;
      factor_b fb;
      float sum[4 * MB][4 * NB];
#pragma unroll
      for (int i = 0; i < 4 * MB; i++) {
#pragma unroll
        for (int j = 0; j < 4 * NB; j++) {
          sum[i][j] = 0.0f;
        }
      }
      fa.fetch(a, p.lda, place.rows, left(0), wide);
      fb.fetch(b, p.ldb, place.columns, left(0), wide, up);
      for (int32_t step = 0; step < steps; step++) {
        float *const here_a = memory.a[step % 2], *const here_b = memory.b[step % 2];
        fa.put(here_a);
        fb.put(here_b);
        __syncthreads(); /* the other half is written only after the next of these */
        if (step + 1 < steps) {
          a += BK * a_k;
          b += BK * b_k;
          fa.fetch(a, p.lda, place.rows, left(step + 1), wide);
          fb.fetch(b, p.ldb, place.columns, left(step + 1), wide, up);
        }
#pragma unroll 1 /* all at once would hold more of the factors than there are registers */
        for (int k = 0; k < BK; k++) {
          float u[4 * MB], v[4 * NB];
#pragma unroll
          for (int i = 0; i < MB; i++) {
            const float4 x = *reinterpret_cast<const float4 *>(here_a + k * factor_a::LD + row + 16 * i);
            u[4 * i] = x.x, u[4 * i + 1] = x.y, u[4 * i + 2] = x.z, u[4 * i + 3] = x.w;
          }
#pragma unroll
          for (int j = 0; j < NB; j++) {
            const float4 x = *reinterpret_cast<const float4 *>(here_b + k * factor_b::LD + column + 32 * j);
            v[4 * j] = x.x, v[4 * j + 1] = x.y, v[4 * j + 2] = x.z, v[4 * j + 3] = x.w;
          }
#pragma unroll
          for (int i = 0; i < 4 * MB; i++) {
#pragma unroll
            for (int j = 0; j < 4 * NB; j++) {
              sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
            }
          }
        }
      }
      /* Always the first row of the sums, after which the others move up: unrolled, addresses would take the registers
       * that sums need. */
#pragma unroll 1
      for (int i = 0; i < 4 * MB; i++) {
        const int32_t at = row + i / 4 * 16 + i % 4;
        if constexpr (GATE == GEMM_SWIGLU) {
          gemm_put_swiglu_any<T, 4>(p, place, at, column / 64 * 32 + column % 32, sum[0], sum[0] + 4);
        } else {
#pragma unroll
          for (int j = 0; j < NB; j++) {
            const float x[4] = {sum[0][4 * j], sum[0][4 * j + 1], sum[0][4 * j + 2], sum[0][4 * j + 3]};
            if constexpr (GATE == GEMM_SWIGLU_BACKWARD) {
              gemm_put_slopes<T>(p, place, at, column + 32 * j, x);
            } else if constexpr (GATE == GEMM_GATHERED) {
              gemm_put_gathered<T>(p, place, at, column + 32 * j, x);
            } else {
              gemm_put<T>(p, place, at, column + 32 * j, x);
            }
          }
        }
#pragma unroll
        for (int r = 0; r + 1 < 4 * MB; r++) {
#pragma unroll
          for (int j = 0; j < 4 * NB; j++) {
            sum[r][j] = sum[r + 1][j];
          }
        }
      }
      __syncthreads(); /* before shared memory serves the next tile */
    }
  }
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE, int GATE = GEMM_PLAIN>
__global__ void __launch_bounds__(TILE::THREADS, 512 / TILE::THREADS) gemm_simt_kernel(gemm_problem p, bool wide) {
  __shared__ gemm_simt_memory<TILE> memory;
  gemm_simt_block<T, TRANS_A, TRANS_B, TILE, GATE>(p, wide, memory, gemm_whole_grid());
}

/* Both products of moe_input_backward: the first blocks take the gate's gradient, the others the tokens'. */
template <class T, class TILE>
__global__ void __launch_bounds__(TILE::THREADS, 512 / TILE::THREADS - 1)
    gemm_simt_router_kernel(gemm_problem of_gate, gemm_problem of_tokens, bool wide) {
  __shared__ gemm_simt_memory<TILE> memory;
  const int64_t block = blockIdx.x, first = of_gate.tiles;
  if (block < first) {
    gemm_simt_block<T, true, false, TILE, GEMM_PLAIN>(of_gate, wide, memory, {block, first});
  } else {
    gemm_simt_block<T, false, false, TILE, GEMM_GATHERED>(of_tokens, wide, memory,
                                                          {block - first, (int64_t)gridDim.x - first});
  }
}

#endif

/*
 * Products of f16 on the tensor cores of sm_70, by CUDA's warp matrices (nvcuda::wmma, CUDA C++ Programming Guide,
 * "Warp Matrix Functions"): sm_70 has neither ldmatrix nor the shapes of mma.sync that gemm_mma.cuh multiplies by. The
 * kernel is the one there; here are the fragments, whose elements lie in registers as only the compiler knows, so that
 * sums leave them through shared memory alone. sm_70 has no such products of bf16 or tf32.
 */
#ifndef NN_KERNELS_GEMM_WMMA_CUH
#define NN_KERNELS_GEMM_WMMA_CUH

#include "kernels/gemm_mma.cuh"
#include <mma.h>

/*
 * Loads of fragments cannot follow a swizzle: 16 bytes behind each row keep eight rows at one column apart in the
 * banks, and rows a multiple of 16 bytes apart, as the loads want them. Tiles are those of sm_75, where copies go
 * through registers, too; but a lane has twice the elements of a fragment, since two lanes have each, and so one block
 * fewer of the small ones finds its registers. By count.
 */
constexpr int GEMM_WMMA_PAD = 16;
using gemm_wmma_large = gemm_mma_tile<2, 4, 64, 32, 2, false, true, 1, GEMM_WMMA_PAD>;
using gemm_wmma_small = gemm_mma_tile<2, 2, 32, 32, 2, false, true, 3, GEMM_WMMA_PAD>;
using gemm_wmma_narrow = gemm_mma_tile<2, 2, 32, 32, 2, false, false, 3, GEMM_WMMA_PAD>;

/* As gemm_mma_layout, padded. */
template <bool ACROSS_MN, int R> struct gemm_wmma_layout {
  static constexpr int EACH = 8, BK = 32;
  static constexpr int UNITS = ACROSS_MN ? R / EACH : BK / EACH, ROWS = ACROSS_MN ? BK : R;
  static constexpr int ROW_BYTES = UNITS * 16 + GEMM_WMMA_PAD, LD = ROW_BYTES / 2;
  static __device__ __forceinline__ int at(int row, int unit) { return row * ROW_BYTES + unit * 16; }
};

template <bool BY_ROWS> struct gemm_wmma_order_of {
  using type = nvcuda::wmma::col_major;
};
template <> struct gemm_wmma_order_of<true> {
  using type = nvcuda::wmma::row_major;
};
template <bool BY_ROWS> using gemm_wmma_order = typename gemm_wmma_order_of<BY_ROWS>::type;

/* What gemm_mma_kernel asks of fragments: see gemm_mma_fragments. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE> struct gemm_wmma_fragments {
  static constexpr int MI = TILE::WM / 16, NI = TILE::WN / 16;
  static constexpr bool used = GEMM_ARCH == 70;
  static_assert(gemm_is_f16<T>, "sm_70 has no other products");
  using layout_a = gemm_wmma_layout<TRANS_A, TILE::BM>;
  using layout_b = gemm_wmma_layout<!TRANS_B, TILE::BN>;
  static_assert(layout_a::ROWS * layout_a::ROW_BYTES <= TILE::A_BYTES, "a stage holds what lies across, too");
  static_assert(layout_b::ROWS * layout_b::ROW_BYTES <= TILE::B_BYTES, "a stage holds what lies across, too");

  using part_a = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, gemm_wmma_order<!TRANS_A>>;
  using part_b = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, gemm_wmma_order<!TRANS_B>>;
  using part_c = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
  using sums = part_c[MI][NI];

  __device__ __forceinline__ void place(int32_t, int32_t) {}

  static __device__ __forceinline__ void clear(sums &sum) {
#pragma unroll
    for (int i = 0; i < MI * NI; i++) {
      nvcuda::wmma::fill_fragment(sum[i / NI][i % NI], 0.0f);
    }
  }

  /* 16 rows or columns from `mn` on, and 16 of k from `k` on. */
  template <class LAYOUT, bool ACROSS_MN, class PART>
  static __device__ __forceinline__ void load(PART &part, const unsigned char *stage, int mn, int k) {
    const unsigned char *from = stage + (ACROSS_MN ? k * LAYOUT::ROW_BYTES + 2 * mn : mn * LAYOUT::ROW_BYTES + 2 * k);
    nvcuda::wmma::load_matrix_sync(part, reinterpret_cast<const __half *>(from), LAYOUT::LD);
  }

  __device__ __forceinline__ void multiply_stage(sums &sum, const unsigned char *stage, int32_t row, int32_t column) {
#pragma unroll
    for (int j = 0; j < TILE::STEPS; j++) {
      part_b b[NI];
#pragma unroll
      for (int q = 0; q < NI; q++) {
        load<layout_b, !TRANS_B>(b[q], stage + TILE::A_BYTES, column + 16 * q, 16 * j);
      }
#pragma unroll
      for (int i = 0; i < MI; i++) {
        part_a a;
        load<layout_a, TRANS_A>(a, stage, row + 16 * i, 16 * j);
#pragma unroll
        for (int q = 0; q < NI; q++) {
          nvcuda::wmma::mma_sync(sum[i][q], a, b[q], sum[i][q]);
        }
      }
    }
  }

  /* Puts the first 16 rows of sums into memory, rows LD apart; the others move up. */
  template <int LD> static __device__ __forceinline__ void leave(float *to, sums &sum) {
#pragma unroll
    for (int q = 0; q < NI; q++) {
      nvcuda::wmma::store_matrix_sync(to + 16 * q, sum[0][q], LD, nvcuda::wmma::mem_row_major);
    }
#pragma unroll
    for (int r = 0; r + 1 < MI; r++) {
#pragma unroll
      for (int q = 0; q < NI; q++) {
        sum[r][q] = sum[r + 1][q];
      }
    }
  }
};

#endif

/*
 * Sums of factors in codes of 8 bits (E4M3), block by block of 128 of k: of gemm_wgmma.cuh.
 *
 * Tensor cores keep 14 bits of a sum of codes (see nn_wgmma_e4m3), so each block is summed by itself, and what it comes
 * to is added to the rest in f32, times both scales, which are powers of two: exact but for that addition. (DeepSeek-AI
 * 2024, "DeepSeek-V3", 3.3.2.)
 *
 * By count, a stage of 128 x 256 x 128 takes the tensor cores 1024 clocks and L2, which has 38 KiB in that time, 48
 * KiB, or 32 in pairs. The additions of both warpgroups take 512 clocks, where each column has a scale of its own 704:
 * they run beside the products of the other warpgroup, which begins a tile by a part later. Two sets of parts, so that
 * a warpgroup could multiply one while it adds the other, do not fit the registers beside 128 sums.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_CODES_CUH
#define NN_KERNELS_GEMM_WGMMA_CODES_CUH

#include "kernels/gemm_fp8.cuh"
#include "kernels/gemm_wgmma_finish.cuh"

/*
 * Adds the products of a stage, one block of k, to the 64 rows of sums of a warpgroup. `part` is room for a part's;
 * `row` where the scale of the first row of this lane's pair lies among those of A. `between` is called when the first
 * part is multiplied. The stage is given back.
 */
template <class TILE, class BETWEEN>
__device__ __forceinline__ void gemm_wgmma_add_block(float (&sum)[TILE::BN / 2], float (&part)[TILE::PART / 2],
                                                     const unsigned char *memory, int32_t stage, int consumer, int row,
                                                     const gemm_wgmma_barriers<TILE> &barriers,
                                                     const BETWEEN &between) {
  constexpr bool BY_COLUMN = TILE::FACTORS == GEMM_CODES_BY_COLUMN;
  constexpr int PARTS = TILE::BN / TILE::PART;
  const unsigned char *const scales = memory + TILE::SCALES_AT + stage * TILE::SCALE_BYTES;
  const uint32_t a = nn_shared_address(memory) + stage * TILE::STAGE_BYTES;
  const uint64_t of_a = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(a + consumer * TILE::BOX);
  const uint64_t of_b = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(a + TILE::A_BYTES);
  float down[2];
#pragma unroll
  for (int q = 0; q < PARTS; q++) {
    const unsigned char *const columns = scales + TILE::B_SCALES_AT + q * TILE::PART;
    const uint32_t of_all = BY_COLUMN ? 0 : *columns;
    nn_wgmma_hold(part);
    nn_wgmma_fence();
#pragma unroll
    for (int j = 0; j < 128 / 32; j++) {
      nn_wgmma_e4m3(part, nn_wgmma_step(of_a, 32 * j), nn_wgmma_step(of_b, q * TILE::PART * 128 + 32 * j), j > 0);
    }
    nn_wgmma_commit();
    nn_wgmma_wait<0>();
    nn_wgmma_hold(part);
    if (q == 0) {
      between();
      down[0] = gemm_fp8_scale(scales[row]); /* here, so that no addition is moved up before `between` */
      down[1] = gemm_fp8_scale(scales[row + 8]);
    }
    const auto give_back = [&] {
      if (q == PARTS - 1) {
        __syncwarp(); /* all lanes have read their scales */
        barriers.give_back(stage);
      }
    };
    if (!BY_COLUMN) {
      give_back();
    }
    const auto *const pairs = reinterpret_cast<const uint16_t *>(columns) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < TILE::PART / 8; i++) {
      const uint32_t both = BY_COLUMN ? pairs[4 * i] : 0;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float across = gemm_fp8_scale(!BY_COLUMN ? of_all : e % 2 == 0 ? both & 0xff : both >> 8);
        float &so_far = sum[q * TILE::PART / 2 + 4 * i + e];
        so_far = fmaf(part[4 * i + e] * down[e / 2], across, so_far);
      }
    }
    if (BY_COLUMN) {
      give_back();
    }
  }
}

/* The copy engine takes boxes from whole runs of 16 bytes on alone: the scales of a tile's rows follow so many others.
 */
__device__ __forceinline__ int32_t gemm_wgmma_scales_before(const gemm_problem &p, const gemm_place &place) {
  return p.ragged == NN_GEMM_RAGGED_M ? (int32_t)(place.first + place.row) % 16 : 0;
}

/* Of groups of k, the blocks of each begin with the group: where its first pair lies, and how many it has. */
__device__ __forceinline__ void gemm_wgmma_to_blocks(gemm_place &place) {
  constexpr int64_t PAIRS = NN_FP8_BLOCK / 2;
  place.first = PAIRS * nn_fp8_first_block(place.first, place.product);
  place.k_end = PAIRS * nn_ceil_div(place.k_end, (int64_t)NN_FP8_BLOCK);
}

#endif

/*
 * Products of codes of 8 bits on the tensor cores by warps (mma.sync, on sm_89), with a scale for 128 of k.
 *
 * A pair of codes moves as a 16-bit element does, both factors with k contiguous: copies to shared memory, ldmatrix and
 * the store of sums are those of gemm_mma.cuh. Tensor cores keep fewer bits of a sum than f32 has (about 14 on Hopper:
 * DeepSeek-AI 2024, "DeepSeek-V3", 3.5.2), so each 128 of k is summed by itself and then added to the rest in f32,
 * times both scales, which are powers of two: exact.
 */
#include "kernels/gemm_fp8.cuh"
#include "kernels/gemm_mma.cuh"

/* Two codes, the one of the lower k in the lower byte. */
struct gemm_fp8_pair {
  uint16_t bits;
};

template <>
__device__ __forceinline__ void gemm_mma_step<gemm_fp8_pair>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                             uint32_t b1) {
  nn_mma_m16n8k32_e4m3(d, a, b0, b1);
}

/* A warp has sums of a block beside those of all blocks so far, so it sums 32 x 64 at most. By count. */
using gemm_fp8_large = gemm_mma_tile<4, 2, 32, 64, 3, true, true, 1>;
using gemm_fp8_small = gemm_mma_tile<2, 2, 32, 32, 4, true, true, 2>;

/* Stages of 64 codes in a block, and pairs. */
constexpr int FP8_BLOCK_PAIRS = NN_FP8_BLOCK / 2, FP8_BLOCK_STAGES = 2;

template <class TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS) gemm_fp8_kernel(gemm_fp8_problem all) {
  if constexpr (GEMM_ARCH == 89) {
    using pair = gemm_fp8_pair;
    using fragments_of = gemm_mma_fragments<pair, false, true, TILE>;
    constexpr int BM = TILE::BM, BN = TILE::BN, BK = TILE::K_BYTES / (int)sizeof(pair);
    constexpr int MI = fragments_of::MI, NI = fragments_of::NI, STAGES = TILE::STAGES, STEPS = TILE::STEPS;
    static_assert(BK * FP8_BLOCK_STAGES == FP8_BLOCK_PAIRS, "a block is whole stages");
    const gemm_problem &p = all.problem;
    NN_SHARED_BYTES(memory);
    const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
    const int32_t row = warp / TILE::WARPS_N * TILE::WM, column = warp % TILE::WARPS_N * TILE::WN;
    fragments_of fragments;
    fragments.place(row, column);
    gemm_turn &turn = *reinterpret_cast<gemm_turn *>(memory + TILE::TURN_AT);
    const gemm_place &place = turn.place;
    for (bool first = true; gemm_next<BM, BN>(p, turn, first, gemm_whole_grid()); first = false) {
      /* Of gradients of weights the codes of a group are blocks of each line, of others whole lines. */
      const bool of_weights = p.ragged == NN_GEMM_RAGGED_K;
      const int64_t block = of_weights ? nn_fp8_first_block(place.first, place.product) : 0;
      const int64_t a_line = of_weights ? 0 : place.first, b_line = of_weights ? 0 : place.product * p.n;
      const int32_t blocks =
          (int32_t)nn_ceil_div(place.k_end, of_weights ? (int64_t)NN_FP8_BLOCK : (int64_t)FP8_BLOCK_PAIRS);
      const int32_t stages = blocks * FP8_BLOCK_STAGES;
      gemm_mma_factor<pair, false, typename fragments_of::layout_a, TILE::THREADS, true, true> a;
      gemm_mma_factor<pair, false, typename fragments_of::layout_b, TILE::THREADS, true, true> b;
      a.begin(p.a, a_line * p.lda, p.lda, place.row, place.rows, block * FP8_BLOCK_PAIRS);
      b.begin(p.b, b_line * p.ldb, p.ldb, place.column, place.columns, block * FP8_BLOCK_PAIRS);
      const auto copy = [&](int32_t stage, int slot) {
        const uint32_t to = nn_shared_address(memory) + slot * TILE::STAGE_BYTES;
        const int32_t k = stage < stages ? BK : 0;
        a.copy(to, p.lda, k);
        b.copy(to + TILE::A_BYTES, p.ldb, k);
        nn_copy_async_commit();
      };
      typename fragments_of::sums sum, part;
      fragments_of::clear(sum);
      fragments_of::clear(part);
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
          fragments.multiply(part, j % 2, memory + (j == STEPS - 1 ? next : slot) * TILE::STAGE_BYTES, (j + 1) % STEPS,
                             row, column);
        }
        slot = next;
        if (stage % FP8_BLOCK_STAGES != FP8_BLOCK_STAGES - 1) {
          continue;
        }
        /* The block is complete. Lines that C does not have take the scale of the last that it has. */
        const int64_t at = block + stage / FP8_BLOCK_STAGES;
        const uint8_t *const a_scales = all.a_scales + at * all.a_lines + a_line + place.row;
        const uint8_t *const b_scales =
            all.b_scales + at * all.b_lines + (of_weights ? 0 : place.product * p.b_scale_step) + place.column;
        const int32_t last_row = place.rows - 1, last_column = place.columns - 1;
        float down[MI][2];
#pragma unroll
        for (int i = 0; i < 2 * MI; i++) {
          const int32_t r = row + 8 * i + lane / 4;
          down[i / 2][i % 2] = gemm_fp8_scale(a_scales[r < last_row ? r : last_row]);
        }
#pragma unroll
        for (int q = 0; q < 4 * NI; q++) {
          const int32_t c = column + 8 * (q / 2) + 2 * (lane % 4) + q % 2;
          const float across = gemm_fp8_scale(b_scales[c < last_column ? c : last_column]);
#pragma unroll
          for (int i = 0; i < 2 * MI; i++) {
            float &of_block = part[i / 2][q / 2][2 * (i % 2) + q % 2], &so_far = sum[i / 2][q / 2][2 * (i % 2) + q % 2];
            so_far = fmaf(of_block * down[i / 2][i % 2], across, so_far);
            of_block = 0.0f;
          }
        }
      }
      nn_copy_async_wait<0>();
      __syncthreads(); /* the sums pass through the stages' memory */
      gemm_mma_store<nn_bf16, TILE, fragments_of, GEMM_PLAIN>(p, place, memory, row, column, sum);
      __syncthreads();
    }
  }
}

template <class TILE> static int32_t run_tile(nncuda_ctx *ctx, gemm_fp8_problem &p) {
  gemm_count_tiles<TILE::BM, TILE::BN>(p.problem);
  const int64_t most = 0x7fffffff;
  const unsigned blocks = (unsigned)(p.problem.tiles < most ? p.problem.tiles : most);
  return nn_launch(ctx, gemm_fp8_kernel<TILE>, dim3(blocks), dim3(TILE::THREADS), TILE::SHARED, p);
}

int32_t gemm_fp8_run_mma(nncuda_ctx *ctx, gemm_fp8_problem &p, bool large) {
  return large ? run_tile<gemm_fp8_large>(ctx, p) : run_tile<gemm_fp8_small>(ctx, p);
}

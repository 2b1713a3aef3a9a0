/* Products of codes of 8 bits by wgmma, on sm_90a: gemm_wgmma.cuh, with the sums of gemm_wgmma_codes.cuh. */
#include "kernels/gemm_wgmma.cuh"

// sass: gemm_wgmma_codes_kernel on sm_90a: at least 4 QGMMA, at least 8 STSM, at least 2 UTMASTG, no I2F.U64
// sass: gemm_wgmma_codes_kernel on sm_90a: at least 2 UTMALDG.MULTICAST, at least 1 BAR.ARV, no MEMBAR.GPU in loops
// sass: gemm_wgmma_codes_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class TILE>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? TILE::THREADS : NN_WARP, 1)
    gemm_wgmma_codes_kernel(gemm_problem p, gemm_wgmma_way way, const __grid_constant__ gemm_wgmma_code_maps maps) {
  p.bias = p.residual = nullptr; /* what these products do not have takes no code and no registers */
  p.partial = nullptr;
  p.activation = NNCUDA_ACTIVATION_NONE;
  way.residual = 0;
  if (TILE::FACTORS == GEMM_CODES) {
    p.beta = 0.0f;
    way.old_c = 0;
    way.plain = 1;
  }
  gemm_wgmma_block<nn_bf16, false, true, TILE, GEMM_PLAIN>(p, way, maps);
}

/* Bytes, [blocks, lines]: a box is the scales of a tile's rows of a factor. */
static bool map_of_scales(CUtensorMap &map, const uint8_t *scales, int64_t blocks, int64_t lines, int32_t box) {
  const int64_t dims[2] = {lines, blocks}, strides[1] = {lines};
  const int32_t boxes[2] = {box, 1};
  return nn_tensor_map(&map, NNCUDA_I8, 2, scales, dims, strides, boxes, NN_SWIZZLE_NONE);
}

template <class TILE> static bool plan(gemm_fp8_problem &all, gemm_fp8_wgmma &to) {
  static int known;
  gemm_problem &p = all.problem;
  gemm_wgmma_code_maps &maps = to.maps;
  const bool of_weights = p.ragged == NN_GEMM_RAGGED_K;
  const int64_t pairs = p.lda, blocks = pairs / TILE::BK; /* ldb is the same */
  if (!nn_wgmma_loaded(reinterpret_cast<const void *>(gemm_wgmma_codes_kernel<TILE>), TILE::THREADS, &known) ||
      !gemm_wgmma_map(maps.a, NNCUDA_BF16, p.a, pairs, p.m, p.lda, 1, 0, TILE::BM) ||
      !gemm_wgmma_map(maps.b, NNCUDA_BF16, p.b, pairs, p.n, p.ldb, of_weights ? 1 : p.count, p.b_step, TILE::HALF_B) ||
      !map_of_scales(maps.a_scales, all.a_scales, blocks, all.a_lines, TILE::A_SCALES) ||
      !map_of_scales(maps.b_scales, all.b_scales, blocks, all.b_lines, TILE::BN)) {
    return false;
  }
  to.way = gemm_wgmma_way_of<TILE>(p, NNCUDA_BF16, maps);
  return true;
}

/* Rounds of tiles over the multiprocessors decide. A narrow tile takes half of a wide one's time where the tensor cores
 * limit it, and three quarters where L2 does. The sums are the same with both. By count. */
bool gemm_fp8_plan_wgmma(nncuda_ctx *ctx, gemm_fp8_problem &p, gemm_fp8_wgmma &to) {
  constexpr int64_t MOST = 0x7fffffff; /* the copy engine's coordinates */
  constexpr int64_t WIDE_COST = 16, NARROW_COST = 11;
  const int64_t sms = nn_gpu_sms(ctx);
  gemm_problem &x = p.problem;
  gemm_count_tiles<128, 256>(x);
  const int64_t wide = nn_ceil_div(x.tiles, sms) * WIDE_COST;
  gemm_count_tiles<128, 128>(x);
  to.wide = wide <= nn_ceil_div(x.tiles, sms) * NARROW_COST;
  if (x.tiles > MOST || x.m > MOST || x.lda > MOST || p.a_lines > MOST || p.b_lines > MOST) {
    return false;
  }
  const bool of_weights = x.ragged == NN_GEMM_RAGGED_K;
  if (to.wide) {
    return of_weights ? plan<gemm_wgmma_code_tile<256, GEMM_CODES_BY_COLUMN>>(p, to)
                      : plan<gemm_wgmma_code_tile<256, GEMM_CODES>>(p, to);
  }
  return of_weights ? plan<gemm_wgmma_code_tile<128, GEMM_CODES_BY_COLUMN>>(p, to)
                    : plan<gemm_wgmma_code_tile<128, GEMM_CODES>>(p, to);
}

template <class TILE> static int32_t run(nncuda_ctx *ctx, gemm_fp8_problem &p, const gemm_fp8_wgmma &by) {
  return gemm_wgmma_launch_tiles<TILE, TILE::BN>(ctx, gemm_wgmma_codes_kernel<TILE>, p.problem, by.way, by.maps);
}

int32_t gemm_fp8_run_wgmma(nncuda_ctx *ctx, gemm_fp8_problem &p, const gemm_fp8_wgmma &by) {
  const bool of_weights = p.problem.ragged == NN_GEMM_RAGGED_K;
  if (by.wide) {
    return of_weights ? run<gemm_wgmma_code_tile<256, GEMM_CODES_BY_COLUMN>>(ctx, p, by)
                      : run<gemm_wgmma_code_tile<256, GEMM_CODES>>(ctx, p, by);
  }
  return of_weights ? run<gemm_wgmma_code_tile<128, GEMM_CODES_BY_COLUMN>>(ctx, p, by)
                    : run<gemm_wgmma_code_tile<128, GEMM_CODES>>(ctx, p, by);
}

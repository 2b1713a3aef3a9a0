/*
 * Products with ternary weights on the tensor cores (mma.sync of signed bytes, from sm_75): prompts and batches.
 *
 * The weights are the left factor, 16 rows at a time. In which order k goes through the tensor cores is free, and it is
 * chosen so that nothing is unpacked through shared memory: lane 4g + t has of four units of sixteen columns unit t,
 * of which it reads the words of rows 2g and 2g + 1 and the 16 codes of token g. The bytes at bits 2i of a word are
 * columns 4i .. 4i + 3 of the unit, and bytes 4i .. 4i + 3 of the codes go with them: two instructions take all of it.
 *
 * Codes and weights lie in shared memory as in global memory, units of 16 bytes swizzled so that no two lanes of a
 * quarter of a warp meet in a bank. A ring of stages is filled by asynchronous copies.
 */
#include "kernels/ternary_prepare.cuh"

/*
 * Warps side by side along the rows of the weights, along the tokens, and along k, whose sums are added at the end. A
 * warp has PANELS x 16 rows and OCTETS x 8 tokens. A stage is STEPS x 64 columns.
 */
template <int ROW_WARPS_, int TOKEN_WARPS_, int K_WARPS_, int PANELS_, int OCTETS_, int STEPS_, int STAGES_,
          int BLOCKS_>
struct ternary_tile {
  static constexpr int ROW_WARPS = ROW_WARPS_, TOKEN_WARPS = TOKEN_WARPS_, K_WARPS = K_WARPS_, BLOCKS = BLOCKS_;
  static constexpr int PANELS = PANELS_, OCTETS = OCTETS_, STEPS = STEPS_, STAGES = STAGES_;
  static constexpr int THREADS = ROW_WARPS * TOKEN_WARPS * K_WARPS * NN_WARP;
  static constexpr int ALL_PANELS = ROW_WARPS * PANELS, TOKENS = TOKEN_WARPS * OCTETS * 8;
  static constexpr int UNITS = STEPS * 4, CODES_BYTES = TOKENS * UNITS * 16;
  static constexpr int STAGE_BYTES = CODES_BYTES + ALL_PANELS * UNITS * TERNARY_UNIT;
  static constexpr int SUMS_BYTES = K_WARPS > 1 ? K_WARPS *PANELS *OCTETS * 4 * NN_WARP * 4 : 0;
  static constexpr int SHARED = STAGES * STAGE_BYTES > SUMS_BYTES ? STAGES *STAGE_BYTES : SUMS_BYTES;
  static_assert(K_WARPS == 1 || K_WARPS == PANELS, "a panel each to finish");
};

/*
 * A warp of 64 rows and 32 tokens reads 3 KiB of shared memory, a third of it weights, for 32 instructions. With few
 * tokens, or small matrices, four warps share k of one such tile, since tiles alone would leave most of a GPU idle; 8
 * tokens are a batch that decodes. Large tiles are 128 rows and 64 tokens: registers leave room for three such blocks
 * from sm_80 on. By count.
 */
using tile_8 = ternary_tile<1, 1, 4, 4, 1, 4, 4, 4>;
using tile_32 = ternary_tile<1, 1, 4, 4, 4, 4, 4, 4>;
using tile_64 = ternary_tile<2, 2, 1, 4, 4, 2, 4, 3>;

/* Rows of codes are UNITS x 16 bytes, whole lines of 128: odd ones have the halves of a line changed over. */
template <class TILE> __device__ __forceinline__ int codes_at(int token, int unit) {
  return (token * TILE::UNITS + (unit ^ token % 2 * 4)) * 16;
}

/* Units of weights are half a line: of odd lines the halves of each are changed over. `part`: 16 bytes, four rows. */
template <class TILE> __device__ __forceinline__ int weights_at(int panel, int unit, int part) {
  return TILE::CODES_BYTES + (panel * TILE::UNITS + unit) * TERNARY_UNIT + (part ^ unit / 2 % 2 * 2) * 16;
}

/* Starts the copies of a stage; what is not there becomes 0. */
template <class TILE>
__device__ __forceinline__ void start_stage(const ternary_product &p, uint32_t stage, int64_t panel, int64_t token,
                                            int32_t unit) {
  constexpr int CODES = TILE::TOKENS * TILE::UNITS, PARTS = TILE::ALL_PANELS * TILE::UNITS * 4;
#pragma unroll
  for (int i = threadIdx.x; i < CODES; i += TILE::THREADS) {
    const int row = i / TILE::UNITS, u = i % TILE::UNITS;
    const bool there = token + row < p.m && unit + u < p.units;
    const int64_t at = there ? (token + row) * p.k + (int64_t)(unit + u) * 16 : 0;
    nn_copy_async<16>(stage + codes_at<TILE>(row, u), p.codes + at, there ? 16 : 0);
  }
#pragma unroll
  for (int i = threadIdx.x; i < PARTS; i += TILE::THREADS) {
    const int row = i / (TILE::UNITS * 4), u = i / 4 % TILE::UNITS;
    const bool there = panel + row < p.panels && unit + u < p.units;
    const int64_t at = there ? ((panel + row) * p.units + unit + u) * TERNARY_UNIT + i % 4 * 16 : 0;
    nn_copy_async<16>(stage + weights_at<TILE>(row, u, i % 4), p.w + at, there ? 16 : 0);
  }
}

template <class TILE> __global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS) mma_kernel(ternary_product p) {
  constexpr int PANELS = TILE::PANELS, OCTETS = TILE::OCTETS, K_WARPS = TILE::K_WARPS, STAGES = TILE::STAGES;
  NN_SHARED_BYTES(shared);
  const uint32_t ring = nn_shared_address(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP, g = lane / 4, t = lane % 4;
  const int k_warp = warp % K_WARPS, row_warp = warp / K_WARPS % TILE::ROW_WARPS;
  const int token_warp = warp / (K_WARPS * TILE::ROW_WARPS);
  const int64_t token_tiles = nn_ceil_div(p.m, TILE::TOKENS);
  const int64_t panel = blockIdx.x / token_tiles * TILE::ALL_PANELS, token = blockIdx.x % token_tiles * TILE::TOKENS;
  const int32_t stages = (int32_t)nn_ceil_div(p.units, TILE::UNITS);
  nn_let_next_start();
  if (token == 0) {
    ternary_prefetch<TILE::THREADS>(p, panel, TILE::ALL_PANELS);
  }
  nn_wait_for_kernels();
  ternary_prepare_rows<TILE::THREADS>(p);
  int32_t sums[PANELS][OCTETS][4] = {}, all[OCTETS] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) {
      start_stage<TILE>(p, ring + s * TILE::STAGE_BYTES, panel, token, s * TILE::UNITS);
    }
    nn_copy_async_commit();
  }
  for (int32_t s = 0; s < stages; s++) {
    nn_copy_async_wait<STAGES - 2>();
    __syncthreads(); /* the stage is there, and the one before it is read */
    const int32_t next = s + STAGES - 1;
    if (next < stages) {
      start_stage<TILE>(p, ring + next % STAGES * TILE::STAGE_BYTES, panel, token, next * TILE::UNITS);
    }
    nn_copy_async_commit();
    const unsigned char *const stage = shared + s % STAGES * TILE::STAGE_BYTES;
#pragma unroll
    for (int step = 0; step < TILE::STEPS / K_WARPS + (TILE::STEPS % K_WARPS != 0); step++) {
      const int unit = (step * K_WARPS + k_warp) * 4 + t;
      uint2 weights[PANELS];
#pragma unroll
      for (int i = 0; i < PANELS; i++) {
        const int at = weights_at<TILE>(row_warp * PANELS + i, unit, g / 2) + g % 2 * 8;
        weights[i] = *reinterpret_cast<const uint2 *>(stage + at);
      }
#pragma unroll
      for (int o = 0; o < OCTETS; o++) {
        const int row = (token_warp * OCTETS + o) * 8 + g;
        const uint4 x = *reinterpret_cast<const uint4 *>(stage + codes_at<TILE>(row, unit));
        all[o] = ternary_sum(x, all[o]);
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const uint32_t a[4] = {ternary_bytes(weights[i].x, 2 * half), ternary_bytes(weights[i].y, 2 * half),
                                   ternary_bytes(weights[i].x, 2 * half + 1),
                                   ternary_bytes(weights[i].y, 2 * half + 1)};
            nn_mma_m16n8k32_s8(sums[i][o], a, half == 0 ? x.x : x.z, half == 0 ? x.y : x.w);
          }
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < OCTETS; o++) {
    const int32_t whole = nn_warp_sum<4>(all[o]); /* of token g; this lane has tokens 2t and 2t + 1 of the products */
    const int32_t first = __shfl_sync(NN_ALL_LANES, whole, 8 * t), second = __shfl_sync(NN_ALL_LANES, whole, 8 * t + 4);
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
      sums[i][o][0] -= first;
      sums[i][o][1] -= second;
      sums[i][o][2] -= first;
      sums[i][o][3] -= second;
    }
  }
  const auto finish = [&](int i, const int32_t(&of)[OCTETS][4]) {
    const int64_t column = (panel + row_warp * PANELS + i) * TERNARY_PANEL + 2 * g;
#pragma unroll
    for (int o = 0; o < OCTETS; o++) {
      const int64_t row = token + (token_warp * OCTETS + o) * 8 + 2 * t;
      if (row < p.m) {
        ternary_finish_pair(p, row, column, of[o][0], of[o][2]);
      }
      if (row + 1 < p.m) {
        ternary_finish_pair(p, row + 1, column, of[o][1], of[o][3]);
      }
    }
  };
  if constexpr (K_WARPS == 1) {
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
      finish(i, sums[i]);
    }
  } else {
    int32_t(*const parts)[PANELS][OCTETS][4][NN_WARP] =
        reinterpret_cast<int32_t(*)[PANELS][OCTETS][4][NN_WARP]>(shared);
    nn_copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
#pragma unroll
      for (int o = 0; o < OCTETS; o++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          parts[k_warp][i][o][e][lane] = sums[i][o][e];
        }
      }
    }
    __syncthreads();
    int32_t mine[OCTETS][4] = {}; /* of panel k_warp */
#pragma unroll
    for (int part = 0; part < K_WARPS; part++) {
#pragma unroll
      for (int o = 0; o < OCTETS; o++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          mine[o][e] += parts[part][k_warp][o][e][lane];
        }
      }
    }
    finish(k_warp, mine);
  }
}

template <class TILE> static int64_t tiles_of(const ternary_product &p) {
  return nn_ceil_div(p.panels, TILE::ALL_PANELS) * nn_ceil_div(p.m, TILE::TOKENS);
}

template <class TILE> static int32_t launch(nncuda_ctx *ctx, const ternary_product &p) {
  return nn_launch_ahead(ctx, mma_kernel<TILE>, dim3((unsigned)tiles_of<TILE>(p)), dim3(TILE::THREADS), TILE::SHARED,
                         p);
}

int32_t ternary_run_mma(nncuda_ctx *ctx, const ternary_product &p) {
  if (p.m <= tile_8::TOKENS) {
    return launch<tile_8>(ctx, p);
  }
  /* Large tiles where they are more than half full and enough for all multiprocessors. */
  return p.m > tile_64::TOKENS / 2 && tiles_of<tile_64>(p) >= nn_gpu_sms(ctx) ? launch<tile_64>(ctx, p)
                                                                              : launch<tile_32>(ctx, p);
}

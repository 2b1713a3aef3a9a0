/*
 * Products with ternary weights on the ordinary cores, a few rows of codes at a time: decoding. It is bound by reading
 * the weights. A block has one or two panels and all of k, which its threads share out: four lanes read the 64 bytes of
 * sixteen columns, four rows each, and the 16 codes that go with them, which no other thread of the block needs. What
 * the threads have is added in shared memory at the end.
 */
#include "kernels/ternary_prepare.cuh"

constexpr int THREADS = 256, WARPS = THREADS / NN_WARP, QUADS = 4, QUAD_ROWS = TERNARY_PANEL / QUADS;

/*
 * For M rows of codes: loads of 16 bytes under way a thread. Four are 16 KiB a block: with k = 2560 all of a panel, and
 * of a model's smallest matrix, 160 panels, all bytes are under way at once. With more rows registers go to the sums.
 * By count.
 */
template <int M, int PANELS> constexpr int UNDER_WAY = (M <= 2 ? 4 : 2) / PANELS;

/* Whether a block loads its first weights before the kernels before it have ended. */
constexpr bool LOADS_EARLY = true;

/* Sixteen codes of a row from column 16 * unit on; zeros past the end. Not loaded as constants: blocks of this kernel
 * may have made them. */
template <bool WIDE>
__device__ __forceinline__ uint4 load_codes(const int8_t *row, int64_t k, int32_t unit, bool there) {
  uint32_t words[4] = {};
  if (there) {
    const int8_t *const from = row + (int64_t)unit * NN_TERNARY_COLUMNS;
    if constexpr (WIDE) {
      return *reinterpret_cast<const uint4 *>(from);
    } else {
      const int64_t left = k - (int64_t)unit * NN_TERNARY_COLUMNS;
#pragma unroll
      for (int i = 0; i < NN_TERNARY_COLUMNS; i++) {
        words[i / 4] |= (i < left ? (uint32_t)(uint8_t)from[i] : 0u) << (8 * (i % 4));
      }
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Words of rows 4 * quad .. of sixteen columns. */
template <bool WIDE>
__device__ __forceinline__ uint4 load_weights(const ternary_product &p, int64_t panel, int32_t unit, int quad,
                                              bool there) {
  uint32_t words[4] = {};
  if (there && panel < p.panels) {
    const uint8_t *const from = p.w + (panel * p.units + unit) * TERNARY_UNIT + quad * 16;
    if constexpr (WIDE) {
      return nn_load_streaming(from);
    } else {
      nn_bytes_at<16>(words, from);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/* With one row three blocks fit a multiprocessor, nearly all of a model's panels at once. With more one is promised:
 * left to itself, ptxas spills a few registers to fit another. */
template <int M> constexpr int BLOCKS_PER_SM = M == 1 ? 3 : 1;

template <int M, int PANELS, bool WIDE>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM<M>) rows_kernel(ternary_product p, int64_t row_tiles) {
  constexpr int UNITS = THREADS / QUADS, LOADS = UNDER_WAY<M, PANELS>, SUMS = PANELS * TERNARY_PANEL * M;
  static_assert(SUMS <= THREADS, "a thread each adds and finishes the block's sums");
  __shared__ int32_t shared[WARPS][SUMS];
  NN_SHARED_BYTES(own); /* the codes of one row, where each block rounds it */
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP, quad = threadIdx.x % QUADS;
  const int64_t panel = (int64_t)blockIdx.x * PANELS;
  const int32_t first_unit = threadIdx.x / QUADS;
  nn_let_next_start();
  uint4 weights[LOADS][PANELS];
  const auto load = [&](int32_t first) {
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      const int32_t unit = first + u * UNITS;
#pragma unroll
      for (int i = 0; i < PANELS; i++) {
        weights[u][i] = load_weights<WIDE>(p, panel + i, unit, quad, unit < p.units);
      }
    }
  };
  /* No kernel that starts before its predecessors have ended writes weights. */
  if (LOADS_EARLY) {
    load(first_unit);
  }
  if (!LOADS_EARLY || p.units > LOADS * UNITS) {
    ternary_prefetch<THREADS>(p, panel, PANELS);
  }
  nn_wait_for_kernels();
  const int8_t *codes = p.codes;
  float own_scale = 0.0f;
  if (M == 1 && WIDE && codes == nullptr) {
    codes = reinterpret_cast<const int8_t *>(own);
    own_scale = ternary_round_row<THREADS>(
        p.raw, 0, p.k, [&](int64_t quad, uint32_t word) { reinterpret_cast<uint32_t *>(own)[quad] = word; });
  } else if (WIDE) {
    ternary_prepare_rows<THREADS>(p);
  }
  for (int64_t tile = blockIdx.y; tile < row_tiles; tile += gridDim.y) {
    int32_t sums[PANELS][QUAD_ROWS][M] = {}, all[M] = {};
    for (int32_t first = first_unit; first < p.units; first += LOADS * UNITS) {
      if (!LOADS_EARLY || first != first_unit || tile != blockIdx.y) {
        load(first);
      }
#pragma unroll
      for (int u = 0; u < LOADS; u++) {
        const int32_t unit = first + u * UNITS;
        uint4 x[M];
#pragma unroll
        for (int m = 0; m < M; m++) {
          const int64_t row = tile * M + m;
          x[m] = load_codes<WIDE>(codes + row * p.k, p.k, unit, unit < p.units && row < p.m);
          all[m] = ternary_sum(x[m], all[m]);
        }
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
          const uint32_t words[QUAD_ROWS] = {weights[u][i].x, weights[u][i].y, weights[u][i].z, weights[u][i].w};
#pragma unroll
          for (int r = 0; r < QUAD_ROWS; r++) {
            int b[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
              b[j] = (int)ternary_bytes(words[r], j);
            }
#pragma unroll
            for (int m = 0; m < M; m++) {
              int32_t &sum = sums[i][r][m];
              sum = __dp4a((int)x[m].x, b[0], sum);
              sum = __dp4a((int)x[m].y, b[1], sum);
              sum = __dp4a((int)x[m].z, b[2], sum);
              sum = __dp4a((int)x[m].w, b[3], sum);
            }
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
#pragma unroll
      for (int r = 0; r < QUAD_ROWS; r++) {
#pragma unroll
        for (int m = 0; m < M; m++) {
          int32_t sum = sums[i][r][m] - all[m];
#pragma unroll
          for (int step = QUADS; step < NN_WARP; step *= 2) {
            sum += __shfl_xor_sync(NN_ALL_LANES, sum, step);
          }
          if (lane < QUADS) {
            shared[warp][(m * PANELS + i) * TERNARY_PANEL + quad * QUAD_ROWS + r] = sum;
          }
        }
      }
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
      int32_t sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; i++) {
        sum += shared[i][threadIdx.x];
      }
      const int64_t row = tile * M + threadIdx.x / (PANELS * TERNARY_PANEL);
      const int64_t column = panel * TERNARY_PANEL + threadIdx.x % (PANELS * TERNARY_PANEL);
      if (row < p.m && column < p.n) {
        ternary_finish(p, row, p.codes == nullptr ? own_scale : p.scale_of(row), column, sum);
      }
    }
    __syncthreads();
  }
}

template <int M, int PANELS> static int32_t launch(nncuda_ctx *ctx, const ternary_product &p) {
  const int64_t tiles = nn_ceil_div(p.m, M), most = 65535;
  const auto kernel = p.wide ? rows_kernel<M, PANELS, true> : rows_kernel<M, PANELS, false>;
  const dim3 grid((unsigned)nn_ceil_div(p.panels, PANELS), (unsigned)(tiles < most ? tiles : most));
  return nn_launch_ahead(ctx, kernel, grid, dim3(THREADS), p.codes == nullptr ? (size_t)p.k : 0, p, tiles);
}

int32_t ternary_run_rows(nncuda_ctx *ctx, const ternary_product &p) {
  if (p.m > 4) {
    return launch<8, 1>(ctx, p);
  }
  if (p.m > 1) {
    return p.m > 2 ? launch<4, 1>(ctx, p) : launch<2, 1>(ctx, p);
  }
  /* Two panels share the reading of the codes, where blocks are plenty all the same. */
  return p.panels >= (int64_t)4 * nn_gpu_sms(ctx) ? launch<1, 2>(ctx, p) : launch<1, 1>(ctx, p);
}

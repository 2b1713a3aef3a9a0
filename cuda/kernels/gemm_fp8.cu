/*
 * Grouped products with factors in 8 bits. One kernel rounds a factor, 128 x 128 of it a block, then a product: of
 * codes where there are instructions for them (gemm_fp8_mma.cu, gemm_wgmma_fp8.cu), which want both factors with the
 * direction of the sums contiguous, so that a factor that lies the other way is turned as it is rounded; else
 * grouped_gemm's in bf16, which holds the same numbers.
 */
#include "kernels/gemm_fp8.cuh"
#include "kernels/gemm_workspace.h"
#include "kernels/parts.cuh"

/* What shares a scale: 128 elements of a row, 128 of a column, or both. */
enum fp8_share { FP8_ROW, FP8_COLUMN, FP8_TILE };
/* Where numbers go: codes as the factor lies, codes turned, or bf16 as it lies. */
enum fp8_target { FP8_STRAIGHT, FP8_TURNED, FP8_BF16 };

struct fp8_rounding {
  const void *from;       /* [count, rows, cols] */
  const int32_t *offsets; /* of groups of rows, or null */
  nn_fp8_factor to;
  int64_t groups, count, rows, cols;
};

constexpr int ROUND_THREADS = 256, ROUND_WARPS = ROUND_THREADS / NN_WARP;
/* A warp has four rows after each other, four times; a lane four columns. Words of a turned tile lie so that neither
 * way through them meets itself. By count. */
constexpr int ROUND_TIMES = NN_FP8_BLOCK / (4 * ROUND_WARPS), TURNED_WORDS = NN_FP8_BLOCK / 4 + 1;

/* A 128 x 128 tile of the factor: the matrix's first row and column, and how much of it there is. */
struct fp8_tile {
  int64_t matrix, row, column, block; /* `block` along the sums where groups have blocks of their own */
  int32_t rows, columns;
};

__device__ __forceinline__ int64_t fp8_clamped(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

/* Offsets that are not what they must be are reported by the product; here they lead to no access out of bounds. */
template <int SHARE> __device__ __forceinline__ bool fp8_find(const fp8_rounding &f, int64_t i, fp8_tile &tile) {
  const int64_t across = nn_ceil_div(f.cols, NN_FP8_BLOCK), down = i / across;
  tile.column = (i - down * across) * NN_FP8_BLOCK;
  tile.columns = (int32_t)nn_min(f.cols - tile.column, NN_FP8_BLOCK);
  int64_t end = f.rows;
  tile.matrix = 0;
  if (SHARE == FP8_COLUMN) {
    int64_t low = 0, high = f.groups; /* the last group that begins at or before the block */
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (nn_fp8_first_block(f.offsets[middle], middle) <= down) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const int64_t first = fp8_clamped(f.offsets[low], f.rows);
    end = fp8_clamped(f.offsets[low + 1], f.rows);
    tile.block = down;
    tile.row = first + (down - nn_fp8_first_block(first, low)) * NN_FP8_BLOCK;
    if (tile.row < first) {
      return false;
    }
  } else {
    const int64_t bands = nn_ceil_div(f.rows, NN_FP8_BLOCK);
    tile.matrix = down / bands;
    tile.block = down - tile.matrix * bands;
    tile.row = tile.block * NN_FP8_BLOCK;
    if (SHARE == FP8_ROW) {
      end = fp8_clamped(f.offsets[f.groups], f.rows);
    }
  }
  tile.rows = (int32_t)nn_min(end - tile.row, NN_FP8_BLOCK);
  return tile.rows > 0;
}

/* A size that a scale is made for: 0 of what is not finite. */
__device__ __forceinline__ float fp8_size(float x) {
  const float size = fabsf(x);
  return size < __uint_as_float(NN_FP8_INFINITE) ? size : 0.0f;
}

__device__ __forceinline__ int32_t fp8_exponent_of(float largest) { return nn_fp8_exponent(__float_as_uint(largest)); }

__device__ __forceinline__ uint8_t fp8_biased(int32_t x) { return (uint8_t)(NN_FP8_BIAS + x); }

__device__ __forceinline__ uint8_t fp8_code(float x, float down) {
  const float scaled = x * down;
  return fabsf(scaled) <= NN_FP8_LARGEST ? nn_f32_to_e4m3(scaled) : (uint8_t)NN_E4M3_NAN;
}

template <class T, int SHARE, int TARGET, bool WIDE>
__global__ void __launch_bounds__(ROUND_THREADS) fp8_round_kernel(fp8_rounding f, int64_t tiles) {
  __shared__ float sizes[ROUND_WARPS][NN_FP8_BLOCK];
  __shared__ uint32_t turned[TARGET == FP8_TURNED ? NN_FP8_BLOCK * TURNED_WORDS : 1];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const T *const from = static_cast<const T *>(f.from);
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    fp8_tile tile;
    if (!fp8_find<SHARE>(f, i, tile)) {
      continue; /* the whole block */
    }
    const int64_t first_row = tile.matrix * f.rows + tile.row;
    float x[ROUND_TIMES][4][4], largest[4] = {};
#pragma unroll
    for (int time = 0; time < ROUND_TIMES; time++) {
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const int row = 4 * (warp + ROUND_WARPS * time) + r;
        if (row < tile.rows) {
          nn_load_at<WIDE, 4>(x[time][r], from + (first_row + row) * f.cols, tile.column + 4 * lane, f.cols);
        } else {
#pragma unroll
          for (int c = 0; c < 4; c++) {
            x[time][r][c] = 0.0f;
          }
        }
      }
    }
    int32_t exponent[4]; /* of this lane's columns */
    if (SHARE != FP8_ROW) {
#pragma unroll
      for (int e = 0; e < ROUND_TIMES * 16; e++) {
        largest[e % 4] = fmaxf(largest[e % 4], fp8_size(x[e / 16][e / 4 % 4][e % 4]));
      }
      *reinterpret_cast<float4 *>(sizes[warp] + 4 * lane) = make_float4(largest[0], largest[1], largest[2], largest[3]);
      __syncthreads();
#pragma unroll
      for (int w = 0; w < ROUND_WARPS; w++) {
        const float4 size = *reinterpret_cast<const float4 *>(sizes[w] + 4 * lane);
        largest[0] = fmaxf(largest[0], size.x);
        largest[1] = fmaxf(largest[1], size.y);
        largest[2] = fmaxf(largest[2], size.z);
        largest[3] = fmaxf(largest[3], size.w);
      }
      if (SHARE == FP8_TILE) {
        const float most = nn_warp_max(fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3])));
        largest[0] = largest[1] = largest[2] = largest[3] = most;
      }
#pragma unroll
      for (int c = 0; c < 4; c++) {
        exponent[c] = fp8_exponent_of(largest[c]);
      }
    }
    /* Scales along the sums: a line for each column of a turned tile, for each row of another. */
    const int64_t block_across = tile.column / NN_FP8_BLOCK;
    if (TARGET == FP8_TURNED && warp == 0) {
#pragma unroll
      for (int c = 0; c < 4; c++) {
        if (4 * lane + c < tile.columns) {
          f.to.scales[tile.block * f.to.lines + tile.matrix * f.to.step + tile.column + 4 * lane + c] =
              fp8_biased(exponent[c]);
        }
      }
    }
    if (TARGET == FP8_STRAIGHT && SHARE == FP8_TILE && (int)threadIdx.x < tile.rows) {
      f.to.scales[block_across * f.to.lines + tile.matrix * f.to.step + tile.row + threadIdx.x] =
          fp8_biased(exponent[0]);
    }
#pragma unroll
    for (int time = 0; time < ROUND_TIMES; time++) {
      uint32_t words[4] = {}; /* of rows, or of a turned tile's columns */
      const int rows = 4 * (warp + ROUND_WARPS * time);
#pragma unroll
      for (int r = 0; r < 4; r++) {
        if (SHARE == FP8_ROW) {
          float size = 0.0f;
#pragma unroll
          for (int c = 0; c < 4; c++) {
            size = fmaxf(size, fp8_size(x[time][r][c]));
          }
          exponent[0] = exponent[1] = exponent[2] = exponent[3] = fp8_exponent_of(nn_warp_max(size));
          if (TARGET == FP8_STRAIGHT && lane == 0 && rows + r < tile.rows) {
            f.to.scales[block_across * f.to.lines + first_row + rows + r] = fp8_biased(exponent[0]);
          }
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
          const uint8_t code = fp8_code(x[time][r][c], nn_fp8_power(-exponent[c]));
          if (TARGET == FP8_BF16) {
            x[time][r][c] = nn_e4m3_to_f32(code) * nn_fp8_power(exponent[c]);
          } else if (TARGET == FP8_TURNED) {
            words[c] |= (uint32_t)code << 8 * r;
          } else {
            words[r] |= (uint32_t)code << 8 * c;
          }
        }
        if (TARGET == FP8_BF16 && rows + r < tile.rows) {
          nn_store_at<WIDE>(static_cast<nn_bf16 *>(f.to.numbers) + (first_row + rows + r) * f.cols, x[time][r],
                            tile.column + 4 * lane, f.cols);
        }
        if (TARGET == FP8_STRAIGHT && rows + r < tile.rows) {
          unsigned char *const to = static_cast<unsigned char *>(f.to.numbers) + (first_row + rows + r) * f.to.padded;
          *reinterpret_cast<uint32_t *>(to + tile.column + 4 * lane) = words[r];
        }
      }
      if (TARGET == FP8_TURNED) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
          turned[(4 * lane + c) * TURNED_WORDS + rows / 4] = words[c];
        }
      }
    }
    __syncthreads(); /* also before the next tile's sizes */
    if (TARGET == FP8_TURNED) {
      for (int c = warp; c < tile.columns; c += ROUND_WARPS) {
        unsigned char *const to = static_cast<unsigned char *>(f.to.numbers) +
                                  (tile.matrix * f.cols + tile.column + c) * f.to.padded + tile.block * NN_FP8_BLOCK;
        *reinterpret_cast<uint32_t *>(to + 4 * lane) = turned[c * TURNED_WORDS + lane];
      }
      __syncthreads();
    }
  }
}

template <class T, int SHARE, int TARGET> static int32_t start_rounding(nncuda_ctx *ctx, const fp8_rounding &f) {
  const int64_t bands = SHARE == FP8_COLUMN ? nn_fp8_first_block(f.rows, f.groups) : nn_ceil_div(f.rows, NN_FP8_BLOCK);
  const int64_t tiles = f.count * bands * nn_ceil_div(f.cols, NN_FP8_BLOCK);
  const bool wide = f.cols % 4 == 0 && reinterpret_cast<uintptr_t>(f.from) % (4 * sizeof(T)) == 0;
  const auto kernel = wide ? fp8_round_kernel<T, SHARE, TARGET, true> : fp8_round_kernel<T, SHARE, TARGET, false>;
  return nn_launch(ctx, kernel, dim3(nn_blocks(ctx, tiles, 1, 4)), dim3(ROUND_THREADS), 0, f, tiles);
}

template <int SHARE, int CODES> static int32_t round_factor(nncuda_ctx *ctx, const fp8_rounding &f, int32_t dtype) {
  const bool codes = f.to.scales != nullptr;
  if (dtype == NNCUDA_F32) {
    return codes ? start_rounding<float, SHARE, CODES>(ctx, f) : start_rounding<float, SHARE, FP8_BF16>(ctx, f);
  }
  return codes ? start_rounding<nn_bf16, SHARE, CODES>(ctx, f) : start_rounding<nn_bf16, SHARE, FP8_BF16>(ctx, f);
}

/* ---- products ---- */

static gemm_fp8_problem problem_of(nncuda_ctx *ctx, const nn_gemm_args &x, const nn_fp8_factors &of) {
  gemm_fp8_problem p = {};
  p.problem = gemm_problem_of(ctx, &x);
  p.problem.lda = of.a.padded / 2;
  p.problem.ldb = of.b.padded / 2;
  if (x.ragged == NN_GEMM_RAGGED_M) {
    p.problem.k = p.problem.piece = of.a.padded / 2;
    p.problem.b_step = x.n * p.problem.ldb;
  }
  p.a_scales = of.a.scales;
  p.b_scales = of.b.scales;
  p.a_lines = of.a.lines;
  p.b_lines = of.b.lines;
  p.problem.b_scale_step = of.b.step;
  return p;
}

/* Rounds both factors, then multiplies them: `round` does so for where they go, and `in_bf16` multiplies what is no
 * codes. */
template <class ROUND>
static int32_t round_and_multiply(nncuda_ctx *ctx, const nn_gemm_args &x, nn_fp8_factors &made, const ROUND &round,
                                  int32_t (*in_bf16)(nncuda_ctx *, const void *)) {
  const int32_t arch = nn_gpu_arch(ctx);
  gemm_fp8_problem p = {};
  gemm_fp8_wgmma way;
  if (nn_fp8_has_codes(arch)) {
    p = problem_of(ctx, x, made);
    if (arch == 90 && !gemm_fp8_plan_wgmma(ctx, p, way)) {
      made.a.scales = made.b.scales = nullptr;
    }
  }
  const int32_t status = round(made);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  if (made.a.scales == nullptr) {
    return in_bf16(ctx, &x);
  }
  const bool large = nn_gemm_tiles(&x, NN_GEMM_LARGE) >= nn_gemm_usual_sms(arch);
  return arch == 90 ? gemm_fp8_run_wgmma(ctx, p, way) : gemm_fp8_run_mma(ctx, p, large);
}

NN_KERNEL(grouped_gemm_fp8) {
  nn_fp8_factors made = nn_fp8_lay_out(a, nn_workspace_of(ctx));
  const nn_gemm_args x = nn_fp8_products(a, made.a.numbers, made.b.numbers);
  const auto round = [&](const nn_fp8_factors &to) {
    const fp8_rounding rows = {a->a, a->offsets, to.a, a->groups, 1, a->rows, a->k};
    const fp8_rounding matrices = {a->b, nullptr, to.b, 0, a->groups, a->trans_b ? a->n : a->k, x.ldb};
    const int32_t status = round_factor<FP8_ROW, FP8_STRAIGHT>(ctx, rows, a->dtype);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
    return a->trans_b ? round_factor<FP8_TILE, FP8_STRAIGHT>(ctx, matrices, a->dtype)
                      : round_factor<FP8_TILE, FP8_TURNED>(ctx, matrices, a->dtype);
  };
  return round_and_multiply(ctx, x, made, round, nn_cuda_grouped_gemm);
}

NN_KERNEL(grouped_gemm_wgrad_fp8) {
  nn_fp8_factors made = nn_fp8_weights_lay_out(a, nn_workspace_of(ctx));
  const nn_gemm_args x = nn_fp8_weight_products(a, made.a.numbers, made.b.numbers);
  const auto round = [&](const nn_fp8_factors &to) {
    const fp8_rounding left = {a->a, a->offsets, to.a, a->groups, 1, a->rows, a->m};
    const fp8_rounding right = {a->b, a->offsets, to.b, a->groups, 1, a->rows, a->n};
    const int32_t status = round_factor<FP8_COLUMN, FP8_TURNED>(ctx, left, a->dtype);
    return status != NNCUDA_SUCCESS ? status : round_factor<FP8_COLUMN, FP8_TURNED>(ctx, right, a->dtype);
  };
  return round_and_multiply(ctx, x, made, round, nn_cuda_grouped_gemm_wgrad);
}

/* Plans the matrix products: which kernel, which tile, and where k is cut. */
#include "kernels/gemm.cuh"

/* ---- pieces of k ---- */

constexpr int ADD_THREADS = 256;

/* Adds the pieces of 4 columns of C in their order, and finishes them. */
template <class T> __global__ void __launch_bounds__(ADD_THREADS) gemm_add_pieces_kernel(gemm_problem p) {
  const int64_t across = nn_ceil_div(p.n, 4), rows = p.count * p.m, step = (int64_t)gridDim.x * ADD_THREADS;
  for (int64_t i = (int64_t)blockIdx.x * ADD_THREADS + threadIdx.x; i < rows * across; i += step) {
    const int64_t row = i / across, column = i % across * 4, product = row / p.m;
    const int32_t valid = (int32_t)(p.n - column < 4 ? p.n - column : 4);
    float sum[4] = {};
    for (int32_t piece = 0; piece < p.pieces; piece++) {
      const float *from = p.partial + (piece * rows + row) * p.n + column;
      if (p.n % 4 == 0) {
        const float4 x = *reinterpret_cast<const float4 *>(from);
        sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          sum[e] += e < valid ? from[e] : 0.0f;
        }
      }
    }
    gemm_finish_any<T, 4>(p, product * p.c_step + (row - product * p.m) * p.ldc + column, column, sum, valid);
  }
}

/* ---- the plan ---- */

/* Multiprocessors of a usual GPU of the architecture: how finely work is cut must not depend on the very one, since
 * pieces of k decide bits. */
static int64_t usual_sms(int32_t arch) {
  return arch >= 90 ? 132 : arch == 89 ? 128 : arch == 86 ? 84 : arch >= 80 ? 108 : arch == 75 ? 68 : 80;
}

/*
 * Large tiles where there are enough of them to give each multiprocessor one, or two with pieces of at least
 * LARGE_PIECE; else small tiles, in pieces of at least SMALL_PIECE until each multiprocessor has three. What pieces
 * cost is a trip of C in f32 to memory and back for each: at most PIECES of them, of PARTIAL_BYTES together. By count,
 * not measured on a GPU yet.
 */
constexpr int64_t LARGE_PIECE = 1024, SMALL_PIECE = 256, PIECES = 32, PARTIAL_BYTES = 64 << 20;

static int64_t tiles_of(const gemm_problem &p, int64_t side) {
  const int64_t m = nn_ceil_div(p.m, side), n = nn_ceil_div(p.n, side);
  return p.ragged == NN_GEMM_RAGGED_M ? m * n : m * n * p.count;
}

static int64_t pieces_for(const gemm_problem &p, int64_t tiles, int64_t wanted_tiles, int64_t least) {
  int64_t pieces = nn_ceil_div(wanted_tiles, tiles);
  const int64_t most_depth = p.k / least, most_bytes = PARTIAL_BYTES / 4 / (p.count * p.m * p.n);
  pieces = pieces < most_depth ? pieces : most_depth;
  pieces = pieces < most_bytes ? pieces : most_bytes;
  pieces = pieces < PIECES ? pieces : PIECES;
  return p.ragged != NN_GEMM_EVEN || pieces < 1 ? 1 : pieces;
}

static void cut(gemm_problem &p, gemm_choice &choice, int32_t arch) {
  constexpr int64_t LARGE = 128, SMALL = 64, STAGE = 64;
  const int64_t sms = usual_sms(arch), large = tiles_of(p, LARGE);
  int64_t pieces = 1;
  choice.large = large >= sms;
  if (!choice.large && p.m > SMALL && p.n > SMALL) {
    pieces = pieces_for(p, large, 2 * sms, LARGE_PIECE);
    choice.large = large * pieces >= 2 * sms;
  }
  if (!choice.large) {
    const int64_t small = tiles_of(p, SMALL);
    pieces = small >= sms ? 1 : pieces_for(p, small, 3 * sms, SMALL_PIECE);
  }
  p.piece = nn_round_up(nn_ceil_div(p.k, pieces), STAGE);
  p.pieces = (int32_t)nn_ceil_div(p.k, p.piece);
}

static gemm_problem problem_of(nncuda_ctx *ctx, const nn_gemm_args *x) {
  gemm_problem p = {};
  p.a = x->a;
  p.b = x->b;
  p.c = x->c;
  p.bias = x->bias;
  p.residual = x->residual;
  p.offsets = x->offsets;
  p.first_offset = nn_rule_of(ctx, "offsets", "0");
  p.other_offsets =
      nn_range_of(ctx, "offsets", 0, x->ragged == NN_GEMM_RAGGED_M ? x->m : x->k).noted("the number of rows");
  p.count = x->count;
  p.m = x->m;
  p.n = x->n;
  p.k = x->k;
  p.lda = x->lda;
  p.ldb = x->ldb;
  p.ldc = x->ldc;
  /* Batches and the experts' weights are dense. */
  p.a_step = x->m * x->k;
  p.b_step = x->k * x->n;
  p.c_step = x->count > 1 ? x->m * x->n : 0;
  p.pieces = 1;
  p.piece = x->k;
  p.activation = x->activation;
  p.ragged = x->ragged;
  p.alpha = x->alpha;
  p.beta = x->beta;
  p.c_f32 = x->dtype_c == NNCUDA_F32;
  const int64_t each_c = p.c_f32 ? 4 : 8;
  p.c_wide = nn_aligned_16(p.c, p.bias, p.residual) && p.ldc % each_c == 0 && p.c_step % each_c == 0;
  return p;
}

/* Whether rows of A and B are runs of 16 bytes, in every product. */
static int32_t is_wide(const gemm_problem &p, int32_t dtype) {
  const int64_t each = dtype == NNCUDA_F32 ? 4 : 8;
  const bool a_steps = p.ragged != NN_GEMM_EVEN || p.count == 1 || p.a_step % each == 0;
  const bool b_steps = p.ragged == NN_GEMM_RAGGED_K || p.count == 1 || p.b_step % each == 0;
  return nn_aligned_16(p.a, p.b) && p.lda % each == 0 && p.ldb % each == 0 && a_steps && b_steps;
}

static int32_t multiply(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype) {
  const int32_t arch = nn_gpu_arch(ctx);
  constexpr int64_t MOST = 0x7fffffff; /* the copy engine's coordinates */
  if (arch == 90 && dtype != NNCUDA_F32 && choice.wide && choice.large && p.m <= MOST && p.n <= MOST && p.k <= MOST) {
    bool done = true;
    const int32_t status =
        dtype == NNCUDA_F16 ? gemm_run_wgmma_f16(ctx, p, choice, &done) : gemm_run_wgmma_bf16(ctx, p, choice, &done);
    if (done) {
      return status;
    }
  }
  if (dtype == NNCUDA_BF16 && arch >= 80) {
    return gemm_run_mma_bf16(ctx, p, choice);
  }
  if (dtype == NNCUDA_F16) {
    return arch >= 75 ? gemm_run_mma_f16(ctx, p, choice) : gemm_run_wmma_f16(ctx, p, choice);
  }
  if (dtype == NNCUDA_F32 && arch >= 80 && nn_gpu_tf32(ctx) && choice.wide) {
    return gemm_run_mma_tf32(ctx, p, choice);
  }
  return gemm_run_simt(ctx, p, choice, dtype);
}

static int32_t run(nncuda_ctx *ctx, const nn_gemm_args *x) {
  gemm_problem p = problem_of(ctx, x);
  gemm_choice choice = {};
  choice.trans_a = x->trans_a;
  choice.trans_b = x->trans_b;
  choice.wide = is_wide(p, x->dtype);
  if (p.m <= GEMM_FEW_ROWS && p.ragged == NN_GEMM_EVEN && x->trans_b && !x->trans_a && choice.wide) {
    return gemm_run_rows(ctx, p, x->dtype);
  }
  cut(p, choice, nn_gpu_arch(ctx));
  if (p.pieces > 1) {
    p.partial = static_cast<float *>(nn_scratch(ctx, (size_t)(p.pieces * p.count * p.m * p.n) * sizeof(float)));
    if (p.partial == nullptr) {
      return NNCUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const int32_t status = multiply(ctx, p, choice, x->dtype);
  if (status != NNCUDA_SUCCESS || p.pieces == 1) {
    return status;
  }
  const unsigned blocks = nn_blocks(ctx, p.count * p.m * nn_ceil_div(p.n, 4), ADD_THREADS, 8);
  NN_SWITCH_FLOATS(x->dtype, return nn_launch(ctx, gemm_add_pieces_kernel<T>, dim3(blocks), dim3(ADD_THREADS), 0, p));
}

#define GEMM_KERNEL(op)                                                                                                \
  NN_KERNEL(op) { return run(ctx, static_cast<const nn_gemm_args *>(args)); }

GEMM_KERNEL(gemm)
GEMM_KERNEL(gemm_beta)
GEMM_KERNEL(gemm_epilogue)
GEMM_KERNEL(batched_gemm)
GEMM_KERNEL(grouped_gemm)
GEMM_KERNEL(grouped_gemm_wgrad)

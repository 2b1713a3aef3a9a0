/* Plans the matrix products: which kernel, which tile, and where k is cut. */
#include "abi/gemm_swiglu.h"
#include "kernels/gemm.cuh"
#include "kernels/gemm_workspace.h"

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

/* ---- the launch ---- */

gemm_problem gemm_problem_of(nncuda_ctx *ctx, const nn_gemm_args *x) {
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

static int32_t launch(nncuda_ctx *ctx, const nn_gemm_args *x) {
  gemm_problem p = gemm_problem_of(ctx, x);
  gemm_choice choice = {};
  choice.trans_a = x->trans_a;
  choice.trans_b = x->trans_b;
  const nn_gemm_cut cut = nn_gemm_lay_out(x, nn_workspace_of(ctx));
  choice.wide = cut.wide;
  choice.large = cut.large;
  if (cut.few) {
    return gemm_run_rows(ctx, p, x->dtype);
  }
  p.piece = cut.piece;
  p.pieces = cut.pieces;
  p.partial = cut.partial;
  const int32_t status = multiply(ctx, p, choice, x->dtype);
  if (status != NNCUDA_SUCCESS || p.pieces == 1) {
    return status;
  }
  const unsigned blocks = nn_blocks(ctx, p.count * p.m * nn_ceil_div(p.n, 4), ADD_THREADS, 8);
  NN_SWITCH_FLOATS(x->dtype, return nn_launch(ctx, gemm_add_pieces_kernel<T>, dim3(blocks), dim3(ADD_THREADS), 0, p));
}

#define GEMM_KERNEL(op)                                                                                                \
  NN_KERNEL_OF(op, nn_gemm_args) { return launch(ctx, a); }

/* Products of groups of rows, which are never cut into pieces of k. `n` is the number of gates. */
static int32_t launch_gated(nncuda_ctx *ctx, const nn_gemm_args *x, int32_t gate, int64_t n, void *gate_up,
                            void *gated) {
  gemm_problem p = gemm_problem_of(ctx, x);
  gemm_choice choice = {};
  choice.trans_b = x->trans_b;
  const nn_gemm_cut cut = nn_gemm_lay_out(x, nn_workspace_of(ctx));
  choice.wide = cut.wide;
  choice.large = cut.large;
  p.gate = gate;
  p.c = gate_up;
  p.n = p.up = n;
  p.ldc = 2 * n;
  p.gated = gated;
  p.c_wide = nn_aligned_16(p.c, gated) && n % (x->dtype == NNCUDA_F32 ? 4 : 8) == 0;
  return multiply(ctx, p, choice, x->dtype);
}

NN_KERNEL(grouped_gemm_swiglu) {
  const nn_gemm_args products = nn_swiglu_products(a);
  return launch_gated(ctx, &products, GEMM_SWIGLU, a->n, a->gate_up, a->y);
}

NN_KERNEL(grouped_gemm_swiglu_backward) {
  const nn_gemm_args slopes = nn_swiglu_slopes(a, a->gate_up);
  return launch_gated(ctx, &slopes, GEMM_SWIGLU_BACKWARD, a->n, a->gate_up, nullptr);
}

GEMM_KERNEL(gemm)
GEMM_KERNEL(gemm_beta)
GEMM_KERNEL(gemm_epilogue)
GEMM_KERNEL(batched_gemm)
GEMM_KERNEL(grouped_gemm)
GEMM_KERNEL(grouped_gemm_wgrad)

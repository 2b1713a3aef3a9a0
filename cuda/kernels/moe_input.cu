/*
 * What the gradient of a layer of experts ends with, in one launch: the products of the router's gate, of which that of
 * the tokens is added to what comes back from their rows (gemm_gather.cuh).
 *
 * Both are bound by memory, up to EXPERTS of them, so their tiles are small, whatever the sizes: three blocks a
 * multiprocessor keep more loads under way than the large tiles of sm_90. What the calls one after the other would move
 * besides is the gradient of the tokens, written and read once more: 2 T h b bytes, 67 MB of 200 at T = 8192, h = 2048
 * and k = 4 in 16 bits. By count.
 */
#include "abi/gemm_gate.h"
#include "kernels/gemm_simt.cuh"
#include "kernels/gemm_wmma.cuh"
#include "kernels/gemm_workspace.h"
#include "kernels/parts.cuh"

/* More would make the products, and not memory, the limit. By count. */
constexpr int64_t ROUTER_EXPERTS = 256;

template <class TILE, class... P>
static int32_t start(nncuda_ctx *ctx, void (*kernel)(gemm_problem, gemm_problem, P...), gemm_problem &of_gate,
                     gemm_problem &of_tokens, size_t shared, typename nn_exactly<P>::type... more) {
  gemm_count_tiles<TILE::BM, TILE::BN>(of_gate);
  gemm_count_tiles<TILE::BM, TILE::BN>(of_tokens);
  constexpr int64_t MOST = 0x7fffffff; /* blocks take further tiles in turn */
  const int64_t blocks = of_gate.tiles + of_tokens.tiles;
  return nn_launch(ctx, kernel, dim3((unsigned)(blocks < MOST ? blocks : MOST)), dim3(TILE::THREADS), shared, of_gate,
                   of_tokens, more...);
}

template <class T, class TILE, template <class, bool, bool, class> class FRAGMENTS = gemm_mma_fragments>
static int32_t start_mma(nncuda_ctx *ctx, gemm_problem &of_gate, gemm_problem &of_tokens) {
  return start<TILE>(ctx, gemm_mma_router_kernel<T, TILE, FRAGMENTS>, of_gate, of_tokens, TILE::SHARED);
}

static int32_t multiply(nncuda_ctx *ctx, gemm_problem &of_gate, gemm_problem &of_tokens, int32_t dtype) {
  const int32_t arch = nn_gpu_arch(ctx);
  if (dtype == NNCUDA_F16) {
    return arch >= 80   ? start_mma<nn_f16, gemm_mma_small>(ctx, of_gate, of_tokens)
           : arch == 75 ? start_mma<nn_f16, gemm_mma_small_75>(ctx, of_gate, of_tokens)
                        : start_mma<nn_f16, gemm_wmma_small, gemm_wmma_fragments>(ctx, of_gate, of_tokens);
  }
  if (dtype == NNCUDA_BF16 && arch >= 80) {
    return start_mma<nn_bf16, gemm_mma_small>(ctx, of_gate, of_tokens);
  }
  if (dtype == NNCUDA_BF16) {
    return start<gemm_simt_small>(ctx, gemm_simt_router_kernel<nn_bf16, gemm_simt_small>, of_gate, of_tokens, 0, true);
  }
  if (arch >= 80 && nn_gpu_tf32(ctx)) {
    return start_mma<float, gemm_mma_small_tf32>(ctx, of_gate, of_tokens);
  }
  return start<gemm_simt_small>(ctx, gemm_simt_router_kernel<float, gemm_simt_small>, of_gate, of_tokens, 0, true);
}

NN_KERNEL(moe_input_backward) {
  const nn_gemm_args gate = nn_gate_gradient(a), tokens = nn_gate_input_gradient(a);
  nn_workspace only_measured = *nn_workspace_of(ctx);
  const nn_gemm_cut cut_of_gate = nn_gemm_lay_out(&gate, &only_measured),
                    cut_of_tokens = nn_gemm_lay_out(&tokens, &only_measured);
  if (!cut_of_gate.wide || cut_of_gate.large || !cut_of_tokens.wide || cut_of_tokens.pieces > 1 ||
      a->experts > ROUTER_EXPERTS) {
    const nn_moe_gather_backward_args gather = {a->drows, a->slot_row, a->dx, a->tokens, a->k, a->dim, a->dtype};
    int32_t status = nn_cuda_moe_gather_backward(ctx, &gather);
    status = status != NNCUDA_SUCCESS ? status : nn_cuda_gemm_beta(ctx, &gate);
    return status != NNCUDA_SUCCESS ? status : nn_cuda_gemm_beta(ctx, &tokens);
  }
  const nn_gemm_cut cut = nn_gemm_lay_out(&gate, nn_workspace_of(ctx));
  gemm_problem p = gemm_problem_of(ctx, &gate), q = gemm_problem_of(ctx, &tokens);
  p.piece = cut.piece;
  p.pieces = cut.pieces;
  p.partial = cut.partial;
  q.rows = a->drows;
  q.slot_row = a->slot_row;
  q.slots = a->k;
  q.row_range = nn_range_of(ctx, "slot_row", -1, a->tokens * a->k - 1);
  q.c_wide = q.c_wide && nn_aligned_16(a->drows);
  const int32_t status = multiply(ctx, p, q, a->dtype);
  return status != NNCUDA_SUCCESS || p.pieces == 1 ? status : gemm_add_pieces(ctx, p, a->dtype);
}

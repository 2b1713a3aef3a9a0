#include "abi/checks.h"
#include "abi/gemm.h"
#include "abi/gemm_swiglu.h"

/* Fills in the leading dimensions of dense matrices, and the operations of the call, and whether C is read. */
static nn_gemm_args product(nn_call *call, nn_gemm_args p) {
  const int64_t products = p.ragged == NN_GEMM_EVEN ? p.count : 1; /* groups share their rows */
  call->flops = 2.0 * (double)products * (double)p.m * (double)p.n * (double)p.k;
  if (p.beta == 0) {
    nn_call_unread(call, "c");
  }
  p.lda = p.lda != 0 ? p.lda : p.trans_a ? p.m : p.k;
  p.ldb = p.ldb != 0 ? p.ldb : p.trans_b ? p.k : p.n;
  p.ldc = p.ldc != 0 ? p.ldc : p.n;
  return p;
}

#define PRODUCT(...)                                                                                                   \
  product(call, (nn_gemm_args){.a = a->a, .b = a->b, .c = a->c, .n = a->n, .dtype = a->dtype, __VA_ARGS__})

NN_LOWER(gemm, nn_gemm_args, 10) {
  return PRODUCT(.count = 1, .m = a->m, .k = a->k, .alpha = 1.0f, .trans_a = a->trans_a, .trans_b = a->trans_b,
                 .dtype_c = a->dtype_c);
}

NN_LOWER(gemm_beta, nn_gemm_args, 15) {
  return PRODUCT(.count = 1, .m = a->m, .k = a->k, .lda = a->lda, .ldb = a->ldb, .ldc = a->ldc, .alpha = a->alpha,
                 .beta = a->beta, .trans_a = a->trans_a, .trans_b = a->trans_b, .dtype_c = a->dtype_c);
}

NN_LOWER(gemm_epilogue, nn_gemm_args, 10) {
  return PRODUCT(.bias = a->bias, .residual = a->residual, .count = 1, .m = a->m, .k = a->k, .alpha = 1.0f,
                 .trans_b = 1, .activation = a->activation, .dtype_c = a->dtype);
}

NN_LOWER(batched_gemm, nn_gemm_args, 13) {
  return PRODUCT(.count = a->batch, .m = a->m, .k = a->k, .alpha = a->alpha, .beta = a->beta, .trans_a = a->trans_a,
                 .trans_b = a->trans_b, .dtype_c = a->dtype_c);
}

NN_LOWER(grouped_gemm, nn_gemm_args, 12) {
  return PRODUCT(.offsets = a->offsets, .count = a->groups, .m = a->rows, .k = a->k, .alpha = 1.0f, .beta = a->beta,
                 .trans_b = a->trans_b, .dtype_c = a->dtype_c, .ragged = NN_GEMM_RAGGED_M);
}

NN_LOWER(grouped_gemm_wgrad, nn_gemm_args, 11) {
  return PRODUCT(.offsets = a->offsets, .count = a->groups, .m = a->m, .k = a->rows, .alpha = 1.0f, .beta = a->beta,
                 .trans_a = 1, .dtype_c = a->dtype_c, .ragged = NN_GEMM_RAGGED_K);
}

/* A gate's operations are few beside those of the products. */
NN_FLOPS(grouped_gemm_swiglu, 2.0 * a->rows * 2.0 * a->n * a->k)
NN_FLOPS(grouped_gemm_swiglu_backward, 2.0 * a->rows * a->n * a->k)

NN_FLOPS(grouped_gemm_fp8, 2.0 * a->rows * a->n * a->k)

NN_CHECK(grouped_gemm_wgrad_fp8) {
  call->flops = 2.0 * (double)a->rows * (double)a->m * (double)a->n;
  if (a->beta == 0) {
    nn_call_unread(call, "c");
  }
}

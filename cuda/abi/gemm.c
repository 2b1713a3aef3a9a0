#include "gemm.h"

#include "runtime/call.h"

/* `dtype_c` may be f32 whatever the factors are, or the same 16-bit type. */
#define NN_GEMM_DTYPES()                                                                                               \
  NN_DTYPE(dtype, NN_FLOATS);                                                                                          \
  NN_DTYPE(dtype_c, NN_FLOATS);                                                                                        \
  NN_REQUIRE(dtype_c == dtype || dtype_c == NNCUDA_F32, NNCUDA_ERROR_INVALID_DTYPE,                                    \
             "%s: dtype_c is %d; it must be f32 (%d) or dtype (%d)", __func__, dtype_c, NNCUDA_F32, dtype)

int32_t cuda_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k,
                  int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  NN_BEGIN(gemm);
  NN_GEMM_DTYPES();
  NN_FLAG(trans_a);
  NN_FLAG(trans_b);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_IN(a, dtype, trans_a ? k : m, trans_a ? m : k);
  NN_IN(b, dtype, trans_b ? n : k, trans_b ? k : n);
  NN_OUT(c, dtype_c, m, n);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .count = 1, .m = m, .n = n, .k = k, .lda = trans_a ? m : k,
                   .ldb = trans_b ? k : n, .ldc = n, .alpha = 1.0f, .trans_a = trans_a, .trans_b = trans_b,
                   .dtype = dtype, .dtype_c = dtype_c);
}

int32_t cuda_gemm_beta(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k,
                       int64_t lda, int64_t ldb, int64_t ldc, float alpha, float beta, int32_t trans_a, int32_t trans_b,
                       int32_t dtype, int32_t dtype_c) {
  NN_BEGIN(gemm_beta);
  NN_GEMM_DTYPES();
  NN_FLAG(trans_a);
  NN_FLAG(trans_b);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_TENSOR(NN_ROLE_IN, a, dtype, lda, trans_a ? k : m, trans_a ? m : k);
  NN_TENSOR(NN_ROLE_IN, b, dtype, ldb, trans_b ? n : k, trans_b ? k : n);
  NN_TENSOR(NN_ROLE_INOUT, c, dtype_c, ldc, m, n);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .count = 1, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb,
                   .ldc = ldc, .alpha = alpha, .beta = beta, .trans_a = trans_a, .trans_b = trans_b, .dtype = dtype,
                   .dtype_c = dtype_c);
}

int32_t cuda_gemm_epilogue(nncuda_ctx *ctx, const void *a, const void *b, const void *bias, const void *residual,
                           void *c, int64_t m, int64_t n, int64_t k, int32_t activation, int32_t dtype) {
  NN_BEGIN(gemm_epilogue);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_REQUIRE(activation == NNCUDA_ACTIVATION_NONE || activation == NNCUDA_ACTIVATION_SILU, NNCUDA_ERROR_INVALID_VALUE,
             "%s: activation is %d; it must be %d (none) or %d (silu)", __func__, activation, NNCUDA_ACTIVATION_NONE,
             NNCUDA_ACTIVATION_SILU);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_IN(a, dtype, m, k);
  NN_IN(b, dtype, n, k);
  NN_IN_OPT(bias, dtype, n);
  NN_IN_OPT(residual, dtype, m, n);
  NN_OUT(c, dtype, m, n);
  NN_ALIAS(c, residual);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .bias = bias, .residual = residual, .count = 1, .m = m, .n = n,
                   .k = k, .lda = k, .ldb = k, .ldc = n, .alpha = 1.0f, .trans_b = 1, .activation = activation,
                   .dtype = dtype, .dtype_c = dtype);
}

int32_t cuda_batched_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t batch, int64_t m, int64_t n,
                          int64_t k, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype,
                          int32_t dtype_c) {
  NN_BEGIN(batched_gemm);
  NN_GEMM_DTYPES();
  NN_FLAG(trans_a);
  NN_FLAG(trans_b);
  NN_SIZE(batch);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_IN(a, dtype, batch, trans_a ? k : m, trans_a ? m : k);
  NN_IN(b, dtype, batch, trans_b ? n : k, trans_b ? k : n);
  NN_INOUT(c, dtype_c, batch, m, n);
  NN_FLOPS(2.0 * (double)batch * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .count = batch, .m = m, .n = n, .k = k, .lda = trans_a ? m : k,
                   .ldb = trans_b ? k : n, .ldc = n, .alpha = alpha, .beta = beta, .trans_a = trans_a,
                   .trans_b = trans_b, .dtype = dtype, .dtype_c = dtype_c);
}

int32_t cuda_grouped_gemm(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
                          int64_t groups, int64_t rows, int64_t n, int64_t k, float beta, int32_t trans_b,
                          int32_t dtype, int32_t dtype_c) {
  NN_BEGIN(grouped_gemm);
  NN_GEMM_DTYPES();
  NN_FLAG(trans_b);
  NN_SIZE(groups);
  NN_SIZE(rows);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_IN(a, dtype, rows, k);
  NN_IN(b, dtype, groups, trans_b ? n : k, trans_b ? k : n);
  NN_IN(offsets, NNCUDA_I32, nn_add(groups, 1));
  NN_INOUT(c, dtype_c, rows, n);
  NN_FLOPS(2.0 * (double)rows * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .offsets = offsets, .count = groups, .m = rows, .n = n, .k = k,
                   .lda = k, .ldb = trans_b ? k : n, .ldc = n, .alpha = 1.0f, .beta = beta, .trans_b = trans_b,
                   .dtype = dtype, .dtype_c = dtype_c, .ragged = NN_GEMM_RAGGED_M);
}

int32_t cuda_grouped_gemm_wgrad(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
                                int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype,
                                int32_t dtype_c) {
  NN_BEGIN(grouped_gemm_wgrad);
  NN_GEMM_DTYPES();
  NN_SIZE(groups);
  NN_SIZE(rows);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_IN(a, dtype, rows, m);
  NN_IN(b, dtype, rows, n);
  NN_IN(offsets, NNCUDA_I32, nn_add(groups, 1));
  NN_INOUT(c, dtype_c, groups, m, n);
  NN_FLOPS(2.0 * (double)rows * (double)m * (double)n);
  return NN_LAUNCH(nn_gemm_args, .a = a, .b = b, .c = c, .offsets = offsets, .count = groups, .m = m, .n = n, .k = rows,
                   .lda = m, .ldb = n, .ldc = n, .alpha = 1.0f, .beta = beta, .trans_a = 1, .dtype = dtype,
                   .dtype_c = dtype_c, .ragged = NN_GEMM_RAGGED_K);
}

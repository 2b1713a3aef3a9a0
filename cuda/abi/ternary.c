#include "ternary.h"

#include "runtime/call.h"

#include <math.h>

/* Columns of a product whose sums fit 32 bits however a kernel splits them. */
enum { MOST_COLUMNS = 1 << 18 };

/* Fails the call unless `stored` and `row_bytes` are those of n rows of k packed weights. */
static void check_packed(nn_call *checked, int64_t n, int64_t k, int64_t stored, int64_t row_bytes) {
  const int64_t rows = n / NN_TERNARY_ROWS + (n % NN_TERNARY_ROWS != 0);
  const int64_t columns = k / NN_TERNARY_COLUMNS + (k % NN_TERNARY_COLUMNS != 0);
  nn_call_require(checked, stored == nn_mul(rows, NN_TERNARY_ROWS), NNCUDA_ERROR_INVALID_SIZE,
                  "stored is %lld; it must be %lld, n rounded up to a multiple of 16", (long long)stored,
                  (long long)nn_mul(rows, NN_TERNARY_ROWS));
  nn_call_require(checked, row_bytes == nn_mul(columns, 4), NNCUDA_ERROR_INVALID_SIZE,
                  "row_bytes is %lld; it must be %lld, four for every 16 of k %lld", (long long)row_bytes,
                  (long long)nn_mul(columns, 4), (long long)k);
}

int32_t cuda_act_quant_i8(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t rows, int64_t cols,
                          int32_t dtype) {
  NN_BEGIN(act_quant_i8);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_IN(x, dtype, rows, cols);
  NN_OUT(codes, NNCUDA_I8, rows, cols);
  NN_OUT(scale, NNCUDA_F32, rows);
  NN_FLOPS(3.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_act_quant_i8_args, .x = x, .codes = codes, .scale = scale, .rows = rows, .cols = cols,
                   .dtype = dtype);
}

int32_t cuda_rmsnorm_quant_i8(nncuda_ctx *ctx, const void *x, const void *weight, void *codes, float *scale,
                              int64_t rows, int64_t cols, float eps, int32_t dtype) {
  NN_BEGIN(rmsnorm_quant_i8);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(cols);
  NN_REQUIRE(eps >= 0.0f && isfinite(eps), NNCUDA_ERROR_INVALID_VALUE, "eps is %g; it must be finite and at least 0",
             (double)eps);
  NN_IN(x, dtype, rows, cols);
  NN_IN(weight, dtype, cols);
  NN_OUT(codes, NNCUDA_I8, rows, cols);
  NN_OUT(scale, NNCUDA_F32, rows);
  NN_FLOPS(7.0 * (double)rows * (double)cols);
  return NN_LAUNCH(nn_rmsnorm_quant_i8_args, .x = x, .weight = weight, .codes = codes, .scale = scale, .rows = rows,
                   .cols = cols, .eps = eps, .dtype = dtype);
}

int32_t cuda_ternary_quantize(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t n, int64_t k,
                              int32_t dtype) {
  NN_BEGIN(ternary_quantize);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_IN(x, dtype, n, k);
  NN_OUT(codes, NNCUDA_I8, n, k);
  NN_OUT(scale, NNCUDA_F32, 1);
  NN_FLOPS(3.0 * (double)n * (double)k);
  return NN_LAUNCH(nn_ternary_quantize_args, .x = x, .codes = codes, .scale = scale, .n = n, .k = k, .dtype = dtype);
}

int32_t cuda_ternary_pack(nncuda_ctx *ctx, const void *codes, void *w, int64_t n, int64_t k, int64_t stored,
                          int64_t row_bytes) {
  NN_BEGIN(ternary_pack);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(stored);
  NN_SIZE(row_bytes);
  check_packed(&call, n, k, stored, row_bytes);
  NN_IN(codes, NNCUDA_I8, n, k);
  NN_OUT(w, NN_U8, stored, row_bytes);
  return NN_LAUNCH(nn_ternary_pack_args, .codes = codes, .w = w, .n = n, .k = k, .stored = stored,
                   .row_bytes = row_bytes);
}

int32_t cuda_ternary_unpack(nncuda_ctx *ctx, const void *w, void *codes, int64_t n, int64_t k, int64_t stored,
                            int64_t row_bytes) {
  NN_BEGIN(ternary_unpack);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(stored);
  NN_SIZE(row_bytes);
  check_packed(&call, n, k, stored, row_bytes);
  NN_IN(w, NN_U8, stored, row_bytes);
  NN_OUT(codes, NNCUDA_I8, n, k);
  return NN_LAUNCH(nn_ternary_unpack_args, .w = w, .codes = codes, .n = n, .k = k, .stored = stored,
                   .row_bytes = row_bytes);
}

int32_t cuda_bitlinear(nncuda_ctx *ctx, const void *codes, const float *scale, const void *w, const float *w_scale,
                       const void *residual, void *y, int64_t m, int64_t n, int64_t k, int64_t stored,
                       int64_t row_bytes, int32_t dtype) {
  NN_BEGIN(bitlinear);
  NN_DTYPE(dtype, NN_FLOATS | 1u << NNCUDA_I32);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(stored);
  NN_SIZE(row_bytes);
  check_packed(&call, n, k, stored, row_bytes);
  NN_REQUIRE(k <= MOST_COLUMNS, NNCUDA_ERROR_INVALID_SIZE, "k is %lld; it may be up to %d", (long long)k,
             (int)MOST_COLUMNS);
  if (dtype == NNCUDA_I32) {
    NN_REQUIRE(scale == NULL && w_scale == NULL && residual == NULL, NNCUDA_ERROR_INVALID_VALUE,
               "scale, w_scale and residual must be null with dtype i32, which gives the integers");
  } else {
    NN_REQUIRE(scale != NULL, NNCUDA_ERROR_NULL_POINTER, "scale is null; only dtype i32 does without");
    NN_REQUIRE(w_scale != NULL, NNCUDA_ERROR_NULL_POINTER, "w_scale is null; only dtype i32 does without");
  }
  NN_IN(codes, NNCUDA_I8, m, k);
  NN_IN_OPT(scale, NNCUDA_F32, m);
  NN_IN(w, NN_U8, stored, row_bytes);
  NN_IN_OPT(w_scale, NNCUDA_F32, n);
  NN_IN_OPT(residual, dtype, m, n);
  NN_OUT(y, dtype, m, n);
  NN_ALIAS(y, residual);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_bitlinear_args, .codes = codes, .scale = scale, .w = w, .w_scale = w_scale, .residual = residual,
                   .y = y, .m = m, .n = n, .k = k, .stored = stored, .row_bytes = row_bytes, .dtype = dtype);
}

#include "quant.h"

#include "format_check.h"

#define CHECK_ROW(format, elements, row_bytes)                                                                         \
  nn_check_row_bytes(&call, #format, format, #elements, elements, #row_bytes, row_bytes)

#define CHECK_ALONE(format) nn_check_not_interleaved(&call, #format, format)
#define CHECK_SIXTEENS(format, rows) nn_check_interleaved_rows(&call, #format, format, #rows, rows)

/* Groups without offsets would not say which rows are whose. */
#define CHECK_GROUPS()                                                                                                 \
  NN_REQUIRE(offsets != NULL || groups <= 1, NNCUDA_ERROR_INVALID_SIZE,                                                \
             "groups is %lld; it must be 1 when offsets is null", (long long)groups)

int32_t cuda_quantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
                      int32_t format, int32_t dtype) {
  NN_BEGIN(quantize);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(k);
  NN_SIZE(row_bytes);
  CHECK_ROW(format, k, row_bytes);
  CHECK_ALONE(format);
  NN_IN(x, dtype, rows, k);
  NN_OUT(y, NN_U8, rows, row_bytes);
  return NN_LAUNCH(nn_quantize_args, .x = x, .y = y, .rows = rows, .k = k, .row_bytes = row_bytes, .format = format,
                   .dtype = dtype);
}

int32_t cuda_dequantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
                        int32_t format, int32_t dtype) {
  NN_BEGIN(dequantize);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(k);
  NN_SIZE(row_bytes);
  CHECK_ROW(format, k, row_bytes);
  CHECK_ALONE(format);
  NN_IN(x, NN_U8, rows, row_bytes);
  NN_OUT(y, dtype, rows, k);
  return NN_LAUNCH(nn_dequantize_args, .x = x, .y = y, .rows = rows, .k = k, .row_bytes = row_bytes, .format = format,
                   .dtype = dtype);
}

int32_t cuda_embedding_quant(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens,
                             int64_t vocab, int64_t dim, int64_t row_bytes, int32_t format, int32_t dtype) {
  NN_BEGIN(embedding_quant);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(vocab);
  NN_SIZE(dim);
  NN_SIZE(row_bytes);
  CHECK_ROW(format, dim, row_bytes);
  CHECK_ALONE(format);
  NN_IN(table, NN_U8, vocab, row_bytes);
  NN_IN(ids, NNCUDA_I32, tokens);
  NN_OUT(y, dtype, tokens, dim);
  return NN_LAUNCH(nn_embedding_quant_args, .table = table, .ids = ids, .y = y, .tokens = tokens, .vocab = vocab,
                   .dim = dim, .row_bytes = row_bytes, .format = format, .dtype = dtype);
}

int32_t cuda_gemm_quant(nncuda_ctx *ctx, const void *x, const void *w, const int32_t *offsets, const void *bias,
                        const void *residual, void *y, int64_t groups, int64_t m, int64_t n, int64_t k,
                        int64_t row_bytes, int32_t activation, int32_t format, int32_t dtype) {
  NN_BEGIN(gemm_quant);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(groups);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(row_bytes);
  CHECK_GROUPS();
  CHECK_ROW(format, k, row_bytes);
  CHECK_SIXTEENS(format, n);
  NN_REQUIRE(activation == NNCUDA_ACTIVATION_NONE || activation == NNCUDA_ACTIVATION_SILU, NNCUDA_ERROR_INVALID_VALUE,
             "activation is %d; it must be NNCUDA_ACTIVATION_NONE (0) or NNCUDA_ACTIVATION_SILU (1)", activation);
  NN_IN(x, dtype, m, k);
  NN_IN(w, NN_U8, nn_mul(groups, n), row_bytes);
  NN_IN_OPT(offsets, NNCUDA_I32, nn_add(groups, 1));
  NN_IN_OPT(bias, dtype, n);
  NN_IN_OPT(residual, dtype, m, n);
  NN_OUT(y, dtype, m, n);
  NN_ALIAS(y, residual);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_quant_args, .x = x, .matrix = {{w, n, row_bytes, format}}, .offsets = offsets, .bias = bias,
                   .residual = residual, .y = y, .groups = groups, .m = m, .n = n, .k = k, .matrices = 1,
                   .combine = NN_QUANT_COLUMNS, .activation = activation, .dtype = dtype);
}

int32_t cuda_gemm_quant_qkv(nncuda_ctx *ctx, const void *x, const void *wq, const void *wk, const void *wv,
                            const void *bias, void *y, int64_t m, int64_t n_q, int64_t n_kv, int64_t n, int64_t k,
                            int64_t row_bytes_q, int64_t row_bytes_k, int64_t row_bytes_v, int32_t format_q,
                            int32_t format_k, int32_t format_v, int32_t dtype) {
  NN_BEGIN(gemm_quant_qkv);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(m);
  NN_SIZE(n_q);
  NN_SIZE(n_kv);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(row_bytes_q);
  NN_SIZE(row_bytes_k);
  NN_SIZE(row_bytes_v);
  NN_REQUIRE(n == nn_add(n_q, nn_mul(2, n_kv)), NNCUDA_ERROR_INVALID_SIZE,
             "n is %lld; it must be n_q + 2 * n_kv, with n_q %lld and n_kv %lld", (long long)n, (long long)n_q,
             (long long)n_kv);
  CHECK_ROW(format_q, k, row_bytes_q);
  CHECK_ROW(format_k, k, row_bytes_k);
  CHECK_ROW(format_v, k, row_bytes_v);
  CHECK_SIXTEENS(format_q, n_q);
  CHECK_SIXTEENS(format_k, n_kv);
  CHECK_SIXTEENS(format_v, n_kv);
  NN_IN(x, dtype, m, k);
  NN_IN(wq, NN_U8, n_q, row_bytes_q);
  NN_IN(wk, NN_U8, n_kv, row_bytes_k);
  NN_IN(wv, NN_U8, n_kv, row_bytes_v);
  NN_IN_OPT(bias, dtype, n);
  NN_OUT(y, dtype, m, n);
  NN_FLOPS(2.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_quant_qkv_args, .x = x,
                   .matrix = {{wq, n_q, row_bytes_q, format_q},
                              {wk, n_kv, row_bytes_k, format_k},
                              {wv, n_kv, row_bytes_v, format_v}},
                   .bias = bias, .y = y, .groups = 1, .m = m, .n = n, .k = k, .matrices = 3,
                   .combine = NN_QUANT_COLUMNS, .activation = NNCUDA_ACTIVATION_NONE, .dtype = dtype);
}

int32_t cuda_gemm_quant_swiglu(nncuda_ctx *ctx, const void *x, const void *w_gate, const void *w_up,
                               const int32_t *offsets, void *y, int64_t groups, int64_t m, int64_t n, int64_t k,
                               int64_t row_bytes_gate, int64_t row_bytes_up, int32_t format_gate, int32_t format_up,
                               int32_t dtype) {
  NN_BEGIN(gemm_quant_swiglu);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(groups);
  NN_SIZE(m);
  NN_SIZE(n);
  NN_SIZE(k);
  NN_SIZE(row_bytes_gate);
  NN_SIZE(row_bytes_up);
  CHECK_GROUPS();
  CHECK_ROW(format_gate, k, row_bytes_gate);
  CHECK_ROW(format_up, k, row_bytes_up);
  CHECK_SIXTEENS(format_gate, n);
  CHECK_SIXTEENS(format_up, n);
  NN_IN(x, dtype, m, k);
  NN_IN(w_gate, NN_U8, nn_mul(groups, n), row_bytes_gate);
  NN_IN(w_up, NN_U8, nn_mul(groups, n), row_bytes_up);
  NN_IN_OPT(offsets, NNCUDA_I32, nn_add(groups, 1));
  NN_OUT(y, dtype, m, n);
  NN_FLOPS(4.0 * (double)m * (double)n * (double)k);
  return NN_LAUNCH(nn_gemm_quant_swiglu_args, .x = x,
                   .matrix = {{w_gate, n, row_bytes_gate, format_gate}, {w_up, n, row_bytes_up, format_up}},
                   .offsets = offsets, .y = y, .groups = groups, .m = m, .n = n, .k = k, .matrices = 2,
                   .combine = NN_QUANT_SWIGLU, .activation = NNCUDA_ACTIVATION_NONE, .dtype = dtype);
}

int32_t cuda_interleave_rows(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
                             int32_t format) {
  NN_BEGIN(interleave_rows);
  NN_SIZE(rows);
  NN_SIZE(k);
  NN_SIZE(row_bytes);
  NN_REQUIRE(nn_format_interleaved(format) >= 0, NNCUDA_ERROR_INVALID_VALUE,
             "format is %d; it must be NNCUDA_FORMAT_Q4_0 (10), NNCUDA_FORMAT_Q8_0 (14) or NNCUDA_FORMAT_Q6_K (17)",
             format);
  CHECK_ROW(format, k, row_bytes);
  NN_REQUIRE(rows % NN_INTERLEAVED_ROWS == 0, NNCUDA_ERROR_INVALID_SIZE, "rows is %lld; it must be a multiple of 16",
             (long long)rows);
  NN_IN(x, NN_U8, rows, row_bytes);
  NN_OUT(y, NN_U8, rows, row_bytes);
  return NN_LAUNCH(nn_interleave_rows_args, .x = x, .y = y, .rows = rows, .k = k, .row_bytes = row_bytes,
                   .format = format);
}

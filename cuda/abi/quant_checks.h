#include "abi/checks.h"
#include "abi/format_check.h"
#include "abi/quant.h"

#define CHECK_ROW(format, elements, row_bytes)                                                                         \
  nn_check_row_bytes(call, #format, a->format, #elements, a->elements, #row_bytes, a->row_bytes)

#define CHECK_SIXTEENS(format, rows) nn_check_interleaved_rows(call, #format, a->format, #rows, a->rows)

/* Rows that are taken one by one. */
#define CHECK_ALONE(elements)                                                                                          \
  nn_check_not_interleaved(call, "format", a->format);                                                                 \
  CHECK_ROW(format, elements, row_bytes)

NN_CHECK(quantize) {
  CHECK_ALONE(k);
  nn_check_is_stored(call, "format", a->format);
}
NN_CHECK(dequantize) { CHECK_ALONE(k); }
NN_CHECK(embedding_quant) { CHECK_ALONE(dim); }
NN_CHECK(interleave_rows) { CHECK_ROW(format, k, row_bytes); }

static double norm_flops(const void *norm, int64_t m, int64_t k) { return norm == NULL ? 0.0 : 4.0 * m * k; }

#define PRODUCT(...)                                                                                                   \
  ((nn_gemm_quant_args){.x = a->x, .y = a->y, .m = a->m, .n = a->n, .k = a->k, .dtype = a->dtype, __VA_ARGS__})

NN_LOWER(gemm_quant, nn_gemm_quant_args, 14) {
  nn_check_groups(call, a->offsets, a->groups);
  CHECK_ROW(format, k, row_bytes);
  CHECK_SIXTEENS(format, n);
  call->flops = 2.0 * a->m * a->n * a->k;
  return PRODUCT(.matrix = {{a->w, a->n, a->row_bytes, a->format}}, .matrices = 1, .combine = NN_QUANT_COLUMNS,
                 .offsets = a->offsets, .groups = a->groups, .bias = a->bias, .residual = a->residual,
                 .activation = a->activation);
}

NN_LOWER(gemm_quant_qkv, nn_gemm_quant_args, 20) {
  nn_call_require(call, a->n == nn_add(a->n_q, nn_mul(2, a->n_kv)), NNCUDA_ERROR_INVALID_SIZE,
                  "n is %lld; it must be n_q + 2 * n_kv, with n_q %lld and n_kv %lld", (long long)a->n,
                  (long long)a->n_q, (long long)a->n_kv);
  CHECK_ROW(format_q, k, row_bytes_q);
  CHECK_ROW(format_k, k, row_bytes_k);
  CHECK_ROW(format_v, k, row_bytes_v);
  CHECK_SIXTEENS(format_q, n_q);
  CHECK_SIXTEENS(format_k, n_kv);
  CHECK_SIXTEENS(format_v, n_kv);
  call->flops = 2.0 * a->m * a->n * a->k + norm_flops(a->norm, a->m, a->k);
  return PRODUCT(.matrix = {{a->wq, a->n_q, a->row_bytes_q, a->format_q},
                            {a->wk, a->n_kv, a->row_bytes_k, a->format_k},
                            {a->wv, a->n_kv, a->row_bytes_v, a->format_v}},
                 .matrices = 3, .combine = NN_QUANT_COLUMNS, .groups = 1, .bias = a->bias, .norm = a->norm,
                 .eps = a->eps);
}

NN_LOWER(gemm_quant_swiglu, nn_gemm_quant_args, 16) {
  nn_check_groups(call, a->offsets, a->groups);
  CHECK_ROW(format_gate, k, row_bytes_gate);
  CHECK_ROW(format_up, k, row_bytes_up);
  CHECK_SIXTEENS(format_gate, n);
  CHECK_SIXTEENS(format_up, n);
  call->flops = 4.0 * a->m * a->n * a->k + norm_flops(a->norm, a->m, a->k);
  return PRODUCT(.matrix = {{a->w_gate, a->n, a->row_bytes_gate, a->format_gate},
                            {a->w_up, a->n, a->row_bytes_up, a->format_up}},
                 .matrices = 2, .combine = NN_QUANT_SWIGLU, .offsets = a->offsets, .groups = a->groups, .norm = a->norm,
                 .eps = a->eps);
}

NN_CHECK(gemm_quant_route) {
  nn_check_slots(call, a->tokens, a->k);
  CHECK_ROW(format, dim, row_bytes);
  CHECK_SIXTEENS(format, experts);
  call->flops = a->tokens * (4.0 * a->dim + 2.0 * a->dim * a->experts + 6.0 * a->experts);
}

NN_CHECK(gemm_quant_experts) {
  nn_check_slots(call, a->tokens, a->k);
  CHECK_ROW(format_gate, dim, row_bytes_gate);
  CHECK_ROW(format_up, dim, row_bytes_up);
  CHECK_ROW(format_down, n, row_bytes_down);
  CHECK_SIXTEENS(format_gate, n);
  CHECK_SIXTEENS(format_up, n);
  CHECK_SIXTEENS(format_down, dim);
  call->flops = 1.0 * a->tokens * a->k * a->dim * (6.0 * a->n + 2.0);
}

#include "abi/checks.h"
#include "abi/ternary.h"

/* Fails the call unless `stored` and `row_bytes` are those of n rows of k packed weights. */
static void check_packed(nn_call *call, int64_t n, int64_t k, int64_t stored, int64_t row_bytes) {
  const int64_t rows = n / NN_TERNARY_ROWS + (n % NN_TERNARY_ROWS != 0);
  const int64_t columns = k / NN_TERNARY_COLUMNS + (k % NN_TERNARY_COLUMNS != 0);
  nn_call_require(call, stored == nn_mul(rows, NN_TERNARY_ROWS), NNCUDA_ERROR_INVALID_SIZE,
                  "stored is %lld; it must be %lld, n rounded up to a multiple of 16", (long long)stored,
                  (long long)nn_mul(rows, NN_TERNARY_ROWS));
  nn_call_require(call, row_bytes == nn_mul(columns, 4), NNCUDA_ERROR_INVALID_SIZE,
                  "row_bytes is %lld; it must be %lld, four for every 16 of k %lld", (long long)row_bytes,
                  (long long)nn_mul(columns, 4), (long long)k);
}

NN_FLOPS(act_quant_i8, 3.0 * a->rows * a->cols)
NN_FLOPS(rmsnorm_quant_i8, 7.0 * a->rows * a->cols)
NN_FLOPS(ternary_quantize, 3.0 * a->n * a->k)

NN_CHECK(ternary_pack) { check_packed(call, a->n, a->k, a->stored, a->row_bytes); }
NN_CHECK(ternary_unpack) { check_packed(call, a->n, a->k, a->stored, a->row_bytes); }

NN_CHECK(bitlinear) {
  check_packed(call, a->n, a->k, a->stored, a->row_bytes);
  if (a->dtype == NNCUDA_I32) {
    nn_call_require(call, a->scale == NULL && a->w_scale == NULL && a->residual == NULL, NNCUDA_ERROR_INVALID_VALUE,
                    "scale, w_scale and residual must be null with dtype i32, which gives the integers");
  } else {
    nn_call_require(call, a->scale != NULL, NNCUDA_ERROR_NULL_POINTER, "scale is null; only dtype i32 does without");
    nn_call_require(call, a->w_scale != NULL, NNCUDA_ERROR_NULL_POINTER,
                    "w_scale is null; only dtype i32 does without");
  }
  call->flops = 2.0 * a->m * a->n * a->k;
}

NN_CHECK(bitlinear_norm) {
  check_packed(call, a->n, a->k, a->stored, a->row_bytes);
  call->flops = 2.0 * a->m * a->n * a->k + (a->norm == NULL ? 3.0 : 7.0) * a->m * a->k;
}

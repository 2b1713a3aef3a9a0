#include "abi/checks.h"
#include "abi/format_check.h"

NN_FLOPS(act_quant_i8, 3.0 * a->rows * a->cols)
NN_FLOPS(rmsnorm_quant_i8, 7.0 * a->rows * a->cols)
NN_FLOPS(ternary_quantize, 3.0 * a->n * a->k)

NN_CHECK(ternary_pack) { nn_check_packed(call, a->n, a->k, a->stored, a->row_bytes); }
NN_CHECK(ternary_unpack) { nn_check_packed(call, a->n, a->k, a->stored, a->row_bytes); }

NN_CHECK(bitlinear) {
  nn_check_packed(call, a->n, a->k, a->stored, a->row_bytes);
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
  nn_check_packed(call, a->n, a->k, a->stored, a->row_bytes);
  call->flops = 2.0 * a->m * a->n * a->k + (a->norm == NULL ? 3.0 : 7.0) * a->m * a->k;
}

/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/digest_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_digest(nncuda_ctx *ctx, const void *x, int64_t *sums, int64_t n, int64_t width, int64_t first) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_digest);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "width", width);
  nn_call_require(&call, first >= 0, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; it must be at least 0",
      (long long)first);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, NN_U8, NULL, 0, NN_SHAPE("[n, width]", n, width));
  nn_call_tensor(&call, NN_ROLE_ACC, "sums", sums, NN_I64, NULL, 0, NN_SHAPE("[2]", 2));
  const nn_digest_args args = {x, sums, n, width, first};
  check_digest(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

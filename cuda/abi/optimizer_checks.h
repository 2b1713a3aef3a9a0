#include "abi/checks.h"
#include "abi/generated/optimizer.h"
#include "abi/optimizer.h"
#include "numbers/moments.h"

NN_FLOPS(adamw_step, 15.0 * a->n)
NN_FLOPS(adamw_step_bf16, 15.0 * a->n)
NN_FLOPS(zero_grad, 0)
NN_FLOPS(grad_clip, a->grad == NULL ? 1 : a->n)
NN_FLOPS(lr_schedule, 0)
NN_FLOPS(loss_scale_update, 0)

NN_LOWER(grad_norm, nn_grad_norm_args, 4) {
  call->flops = 2.0 * a->n;
  return (nn_grad_norm_args){a->grad, a->norm, a->n, a->dtype, .squares = NULL, .first = 0, .last = INT64_MAX};
}

NN_CHECK(adamw_step_f8) {
  const int64_t needed = nn_moment_blocks(a->n);
  nn_call_require(call, a->blocks == needed, NNCUDA_ERROR_INVALID_SIZE,
                  "blocks is %lld; it must be n / %d rounded up, which is %lld", (long long)a->blocks, NN_MOMENT_BLOCK,
                  (long long)needed);
  call->flops = 21.0 * a->n;
}

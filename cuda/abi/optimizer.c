#include "optimizer.h"

#include "numbers/moments.h"
#include "runtime/call.h"

#include <math.h>

/* What the forms of AdamW check alike: all but their moments. */
#define ADAMW_ARGUMENTS()                                                                                              \
  NN_REQUIRE(n_decay >= 0 && n_decay <= n, NNCUDA_ERROR_INVALID_VALUE,                                                 \
             "n_decay is %lld; it must be 0 to n, which is %lld", (long long)n_decay, (long long)n);                   \
  NN_REQUIRE(beta1 >= 0.0f && beta1 < 1.0f, NNCUDA_ERROR_INVALID_VALUE,                                                \
             "beta1 is %g; it must be at least 0 and below 1", (double)beta1);                                         \
  NN_REQUIRE(beta2 >= 0.0f && beta2 < 1.0f, NNCUDA_ERROR_INVALID_VALUE,                                                \
             "beta2 is %g; it must be at least 0 and below 1", (double)beta2);                                         \
  NN_REQUIRE(eps > 0.0f && isfinite(eps), NNCUDA_ERROR_INVALID_VALUE, "eps is %g; it must be finite and above 0",      \
             (double)eps);                                                                                             \
  NN_REQUIRE(weight_decay >= 0.0f && isfinite(weight_decay), NNCUDA_ERROR_INVALID_VALUE,                               \
             "weight_decay is %g; it must be finite and at least 0", (double)weight_decay);                            \
  NN_IN(grad, NNCUDA_F32, n);                                                                                          \
  NN_IN(lr, NNCUDA_F32, 1);                                                                                            \
  NN_IN(step, NNCUDA_I32, 1);                                                                                          \
  NN_IN_OPT(grad_scale, NNCUDA_F32, 1);                                                                                \
  NN_IN_OPT(skip, NNCUDA_I32, 1);                                                                                      \
  NN_INOUT(param, NNCUDA_F32, n)

int32_t cuda_adamw_step(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                        const float *grad_scale, const int32_t *skip, float *param, float *m, float *v,
                        void *param_copy, int64_t n, int64_t n_decay, float beta1, float beta2, float eps,
                        float weight_decay, int32_t dtype) {
  NN_BEGIN(adamw_step);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  ADAMW_ARGUMENTS();
  NN_INOUT(m, NNCUDA_F32, n);
  NN_INOUT(v, NNCUDA_F32, n);
  NN_OUT_OPT(param_copy, dtype, n);
  NN_FLOPS(15.0 * (double)n);
  return NN_LAUNCH(nn_adamw_step_args, .grad = grad, .lr = lr, .step = step, .grad_scale = grad_scale, .skip = skip,
                   .param = param, .m = m, .v = v, .param_copy = param_copy, .n = n, .n_decay = n_decay, .beta1 = beta1,
                   .beta2 = beta2, .eps = eps, .weight_decay = weight_decay, .dtype = dtype);
}

int32_t cuda_adamw_step_bf16(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                             const float *grad_scale, const int32_t *skip, float *param, void *m, void *v,
                             void *param_copy, int64_t n, int64_t n_decay, float beta1, float beta2, float eps,
                             float weight_decay, int32_t dtype) {
  NN_BEGIN(adamw_step_bf16);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  ADAMW_ARGUMENTS();
  NN_INOUT(m, NNCUDA_BF16, n);
  NN_INOUT(v, NNCUDA_BF16, n);
  NN_OUT_OPT(param_copy, dtype, n);
  NN_FLOPS(15.0 * (double)n);
  return NN_LAUNCH(nn_adamw_step_bf16_args, .grad = grad, .lr = lr, .step = step, .grad_scale = grad_scale,
                   .skip = skip, .param = param, .m = m, .v = v, .param_copy = param_copy, .n = n, .n_decay = n_decay,
                   .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay, .dtype = dtype);
}

int32_t cuda_adamw_step_f8(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                           const float *grad_scale, const int32_t *skip, float *param, void *m, float *m_scale, void *r,
                           float *r_scale, void *param_copy, int64_t n, int64_t blocks, int64_t n_decay, float beta1,
                           float beta2, float eps, float weight_decay, int32_t dtype) {
  NN_BEGIN(adamw_step_f8);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_SIZE(blocks);
  const int64_t needed = nn_moment_blocks(n);
  NN_REQUIRE(blocks == needed, NNCUDA_ERROR_INVALID_SIZE, "blocks is %lld; it must be n / %d rounded up, which is %lld",
             (long long)blocks, NN_MOMENT_BLOCK, (long long)needed);
  ADAMW_ARGUMENTS();
  NN_INOUT(m, NN_U8, n);
  NN_INOUT(m_scale, NNCUDA_F32, blocks);
  NN_INOUT(r, NN_U8, n);
  NN_INOUT(r_scale, NNCUDA_F32, blocks);
  NN_OUT_OPT(param_copy, dtype, n);
  NN_FLOPS(21.0 * (double)n);
  return NN_LAUNCH(nn_adamw_step_f8_args, .grad = grad, .lr = lr, .step = step, .grad_scale = grad_scale, .skip = skip,
                   .param = param, .m = m, .m_scale = m_scale, .r = r, .r_scale = r_scale, .param_copy = param_copy,
                   .n = n, .n_decay = n_decay, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay,
                   .dtype = dtype);
}

int32_t cuda_zero_grad(nncuda_ctx *ctx, void *grad, int64_t n, int32_t dtype) {
  NN_BEGIN(zero_grad);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_OUT(grad, dtype, n);
  return NN_LAUNCH(nn_zero_grad_args, .grad = grad, .n = n, .dtype = dtype);
}

int32_t cuda_grad_norm(nncuda_ctx *ctx, const void *grad, float *norm, int64_t n, int32_t dtype) {
  NN_BEGIN(grad_norm);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(grad, dtype, n);
  NN_OUT(norm, NNCUDA_F32, 1);
  NN_FLOPS(2.0 * (double)n);
  return NN_LAUNCH(nn_grad_norm_args, .grad = grad, .norm = norm, .n = n, .dtype = dtype);
}

int32_t cuda_grad_clip(nncuda_ctx *ctx, const float *norm, const float *loss_scale, float *scale, void *grad, int64_t n,
                       float max_norm, int32_t dtype) {
  NN_BEGIN(grad_clip);
  NN_DTYPE(dtype, NN_FLOATS);
  if (grad != NULL) {
    NN_SIZE(n);
  } else { /* there is nothing to count, and the factor is wanted all the same */
    NN_REQUIRE(n >= 0, NNCUDA_ERROR_INVALID_SIZE, "n is %lld; it must be at least 0", (long long)n);
  }
  NN_REQUIRE(max_norm > 0.0f, NNCUDA_ERROR_INVALID_VALUE, "max_norm is %g; it must be above 0", (double)max_norm);
  NN_IN(norm, NNCUDA_F32, 1);
  NN_IN_OPT(loss_scale, NNCUDA_F32, 1);
  NN_OUT(scale, NNCUDA_F32, 1);
  NN_TENSOR(NN_ROLE_INOUT | NN_ROLE_OPTIONAL, grad, dtype, 0, n);
  NN_FLOPS(grad == NULL ? 1.0 : (double)n);
  return NN_LAUNCH(nn_grad_clip_args, .norm = norm, .loss_scale = loss_scale, .scale = scale, .grad = grad, .n = n,
                   .max_norm = max_norm, .dtype = dtype);
}

int32_t cuda_lr_schedule(nncuda_ctx *ctx, const int32_t *skip, int32_t *step, float *lr, int64_t warmup, int64_t total,
                         float max_lr, float min_lr) {
  NN_BEGIN(lr_schedule);
  NN_REQUIRE(warmup >= 0, NNCUDA_ERROR_INVALID_VALUE, "warmup is %lld; it must be at least 0", (long long)warmup);
  NN_REQUIRE(total >= warmup, NNCUDA_ERROR_INVALID_VALUE, "total is %lld; it must be at least warmup, which is %lld",
             (long long)total, (long long)warmup);
  NN_REQUIRE(isfinite(max_lr), NNCUDA_ERROR_INVALID_VALUE, "max_lr is %g; it must be finite", (double)max_lr);
  NN_REQUIRE(isfinite(min_lr), NNCUDA_ERROR_INVALID_VALUE, "min_lr is %g; it must be finite", (double)min_lr);
  NN_IN_OPT(skip, NNCUDA_I32, 1);
  NN_INOUT(step, NNCUDA_I32, 1);
  NN_OUT(lr, NNCUDA_F32, 1);
  return NN_LAUNCH(nn_lr_schedule_args, .skip = skip, .step = step, .lr = lr, .warmup = warmup, .total = total,
                   .max_lr = max_lr, .min_lr = min_lr);
}

int32_t cuda_loss_scale_update(nncuda_ctx *ctx, const float *norm, float *loss_scale, int32_t *good_steps,
                               int32_t *skipped, int32_t *skip, float growth, float backoff, int64_t interval) {
  NN_BEGIN(loss_scale_update);
  NN_REQUIRE(growth >= 1.0f && isfinite(growth), NNCUDA_ERROR_INVALID_VALUE,
             "growth is %g; it must be finite and at least 1", (double)growth);
  NN_REQUIRE(backoff > 0.0f && backoff <= 1.0f, NNCUDA_ERROR_INVALID_VALUE,
             "backoff is %g; it must be above 0 and at most 1", (double)backoff);
  NN_REQUIRE(interval >= 1, NNCUDA_ERROR_INVALID_VALUE, "interval is %lld; it must be at least 1", (long long)interval);
  NN_IN(norm, NNCUDA_F32, 1);
  NN_INOUT(loss_scale, NNCUDA_F32, 1);
  NN_INOUT(good_steps, NNCUDA_I32, 1);
  NN_INOUT(skipped, NNCUDA_I32, 1);
  NN_OUT(skip, NNCUDA_I32, 1);
  return NN_LAUNCH(nn_loss_scale_update_args, .norm = norm, .loss_scale = loss_scale, .good_steps = good_steps,
                   .skipped = skipped, .skip = skip, .growth = growth, .backoff = backoff, .interval = interval);
}

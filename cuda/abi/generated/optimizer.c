/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/optimizer_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_adamw_step(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
    const float *grad_scale, const int32_t *skip, float *param, float *m, float *v, void *param_copy, int64_t n,
    int64_t n_decay, float beta1, float beta2, float eps, float weight_decay, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_adamw_step);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, n_decay >= 0 && n_decay <= n, NNCUDA_ERROR_INVALID_VALUE,
      "n_decay is %lld; it must be 0 to n, which is %lld", (long long)n_decay, (long long)n);
  nn_call_require(&call, beta1 >= 0 && beta1 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta1 is %g; it must be at least 0 and below 1", (double)beta1);
  nn_call_require(&call, beta2 >= 0 && beta2 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta2 is %g; it must be at least 0 and below 1", (double)beta2);
  nn_call_require(&call, isfinite(eps) && eps > 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and above 0", (double)eps);
  nn_call_require(&call, isfinite(weight_decay) && weight_decay >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "weight_decay is %g; it must be finite and at least 0", (double)weight_decay);
  nn_call_tensor(&call, NN_ROLE_IN, "grad", grad, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "lr", lr, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN, "step", step, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]",
      1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "skip", skip, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "param", param, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "m", m, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v", v, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "param_copy", param_copy, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_adamw_step_args args = {grad, lr, step, grad_scale, skip, param, m, v, param_copy, n, n_decay, beta1, beta2,
      eps, weight_decay, dtype};
  check_adamw_step(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_adamw_step_bf16(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
    const float *grad_scale, const int32_t *skip, float *param, void *m, void *v, void *param_copy, int64_t n,
    int64_t n_decay, int64_t first, float beta1, float beta2, float eps, float weight_decay, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_adamw_step_bf16);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_require(&call, n_decay >= 0 && n_decay <= n, NNCUDA_ERROR_INVALID_VALUE,
      "n_decay is %lld; it must be 0 to n, which is %lld", (long long)n_decay, (long long)n);
  nn_call_require(&call, first >= 0 && first % 256 == 0, NNCUDA_ERROR_INVALID_VALUE,
      "first is %lld; it must be at least 0 and a multiple of 256", (long long)first);
  nn_call_require(&call, beta1 >= 0 && beta1 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta1 is %g; it must be at least 0 and below 1", (double)beta1);
  nn_call_require(&call, beta2 >= 0 && beta2 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta2 is %g; it must be at least 0 and below 1", (double)beta2);
  nn_call_require(&call, isfinite(eps) && eps > 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and above 0", (double)eps);
  nn_call_require(&call, isfinite(weight_decay) && weight_decay >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "weight_decay is %g; it must be finite and at least 0", (double)weight_decay);
  nn_call_tensor(&call, NN_ROLE_IN, "grad", grad, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "lr", lr, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN, "step", step, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]",
      1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "skip", skip, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "param", param, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "m", m, NNCUDA_BF16, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "v", v, NNCUDA_BF16, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "param_copy", param_copy, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_adamw_step_bf16_args args = {grad, lr, step, grad_scale, skip, param, m, v, param_copy, n, n_decay, first,
      beta1, beta2, eps, weight_decay, dtype};
  check_adamw_step_bf16(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_adamw_step_f8(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
    const float *grad_scale, const int32_t *skip, float *param, void *m, float *m_scale, void *r, float *r_scale,
    void *param_copy, int64_t n, int64_t blocks, int64_t n_decay, int64_t first, float beta1, float beta2, float eps,
    float weight_decay, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_adamw_step_f8);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "blocks", blocks);
  nn_call_require(&call, n_decay >= 0 && n_decay <= n, NNCUDA_ERROR_INVALID_VALUE,
      "n_decay is %lld; it must be 0 to n, which is %lld", (long long)n_decay, (long long)n);
  nn_call_require(&call, first >= 0 && first % 256 == 0, NNCUDA_ERROR_INVALID_VALUE,
      "first is %lld; it must be at least 0 and a multiple of 256", (long long)first);
  nn_call_require(&call, beta1 >= 0 && beta1 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta1 is %g; it must be at least 0 and below 1", (double)beta1);
  nn_call_require(&call, beta2 >= 0 && beta2 < 1, NNCUDA_ERROR_INVALID_VALUE,
      "beta2 is %g; it must be at least 0 and below 1", (double)beta2);
  nn_call_require(&call, isfinite(eps) && eps > 0, NNCUDA_ERROR_INVALID_VALUE,
      "eps is %g; it must be finite and above 0", (double)eps);
  nn_call_require(&call, isfinite(weight_decay) && weight_decay >= 0, NNCUDA_ERROR_INVALID_VALUE,
      "weight_decay is %g; it must be finite and at least 0", (double)weight_decay);
  nn_call_tensor(&call, NN_ROLE_IN, "grad", grad, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_IN, "lr", lr, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN, "step", step, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "grad_scale", grad_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]",
      1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "skip", skip, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "param", param, NNCUDA_F32, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "m", m, NN_U8, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "m_scale", m_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[blocks]", blocks));
  nn_call_tensor(&call, NN_ROLE_INOUT, "r", r, NN_U8, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_INOUT, "r_scale", r_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[blocks]", blocks));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "param_copy", param_copy, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_adamw_step_f8_args args = {grad, lr, step, grad_scale, skip, param, m, m_scale, r, r_scale, param_copy, n,
      blocks, n_decay, first, beta1, beta2, eps, weight_decay, dtype};
  check_adamw_step_f8(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_zero_grad(nncuda_ctx *ctx, void *grad, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_zero_grad);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_OUT, "grad", grad, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_zero_grad_args args = {grad, n, dtype};
  check_zero_grad(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grad_norm(nncuda_ctx *ctx, const void *grad, float *norm, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grad_norm);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "n", n);
  nn_call_tensor(&call, NN_ROLE_IN, "grad", grad, dtype, NULL, 0, NN_SHAPE("[n]", n));
  nn_call_tensor(&call, NN_ROLE_OUT, "norm", norm, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_grad_norm_parameters given = {grad, norm, n, dtype};
  const nn_grad_norm_args args = lower_grad_norm(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_grad_clip(nncuda_ctx *ctx, const float *norm, const float *loss_scale, float *scale, void *grad,
    int64_t n, float max_norm, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_grad_clip);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size_if(&call, "n", n, grad != NULL);
  nn_call_require(&call, max_norm > 0, NNCUDA_ERROR_INVALID_VALUE, "max_norm is %g; it must be above 0",
      (double)max_norm);
  nn_call_tensor(&call, NN_ROLE_IN, "norm", norm, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "loss_scale", loss_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]",
      1));
  nn_call_tensor(&call, NN_ROLE_OUT, "scale", scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT | NN_ROLE_OPTIONAL, "grad", grad, dtype, NULL, 0, NN_SHAPE("[n]", n));
  const nn_grad_clip_args args = {norm, loss_scale, scale, grad, n, max_norm, dtype};
  check_grad_clip(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_lr_schedule(nncuda_ctx *ctx, const int32_t *skip, int32_t *step, float *lr, int64_t warmup,
    int64_t total, float max_lr, float min_lr) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_lr_schedule);
  nn_call_require(&call, warmup >= 0, NNCUDA_ERROR_INVALID_VALUE, "warmup is %lld; it must be at least 0",
      (long long)warmup);
  nn_call_require(&call, total >= warmup, NNCUDA_ERROR_INVALID_VALUE,
      "total is %lld; it must be at least warmup, which is %lld", (long long)total, (long long)warmup);
  nn_call_require(&call, isfinite(max_lr), NNCUDA_ERROR_INVALID_VALUE, "max_lr is %g; it must be finite",
      (double)max_lr);
  nn_call_require(&call, isfinite(min_lr), NNCUDA_ERROR_INVALID_VALUE, "min_lr is %g; it must be finite",
      (double)min_lr);
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "skip", skip, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "step", step, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "lr", lr, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_lr_schedule_args args = {skip, step, lr, warmup, total, max_lr, min_lr};
  check_lr_schedule(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_loss_scale_update(nncuda_ctx *ctx, const float *norm, float *loss_scale, int32_t *good_steps,
    int32_t *skipped, int32_t *skip, float growth, float backoff, int64_t interval) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_loss_scale_update);
  nn_call_require(&call, isfinite(growth) && growth >= 1, NNCUDA_ERROR_INVALID_VALUE,
      "growth is %g; it must be finite and at least 1", (double)growth);
  nn_call_require(&call, backoff > 0 && backoff <= 1, NNCUDA_ERROR_INVALID_VALUE,
      "backoff is %g; it must be above 0 and at most 1", (double)backoff);
  nn_call_require(&call, interval >= 1, NNCUDA_ERROR_INVALID_VALUE, "interval is %lld; it must be at least 1",
      (long long)interval);
  nn_call_tensor(&call, NN_ROLE_IN, "norm", norm, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "loss_scale", loss_scale, NNCUDA_F32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "good_steps", good_steps, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_INOUT, "skipped", skipped, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  nn_call_tensor(&call, NN_ROLE_OUT, "skip", skip, NNCUDA_I32, NULL, 0, NN_SHAPE("[1]", 1));
  const nn_loss_scale_update_args args = {norm, loss_scale, good_steps, skipped, skip, growth, backoff, interval};
  check_loss_scale_update(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

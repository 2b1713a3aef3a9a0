/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/rope_checks.h"

#include "runtime/call.h"

#include <math.h>

NNCUDA_API int32_t cuda_rope_freqs(nncuda_ctx *ctx, float *cosine, float *sine, int64_t first, int64_t positions,
    int64_t head_dim, double base, double ntk_alpha) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rope_freqs);
  nn_call_size(&call, "positions", positions);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
      (long long)head_dim);
  nn_call_require(&call, first >= 0, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; it must be at least 0",
      (long long)first);
  nn_call_require(&call, isfinite(base) && base > 0, NNCUDA_ERROR_INVALID_VALUE,
      "base is %g; it must be finite and above 0", base);
  nn_call_require(&call, isfinite(ntk_alpha) && ntk_alpha >= 1, NNCUDA_ERROR_INVALID_VALUE,
      "ntk_alpha is %g; it must be finite and at least 1", ntk_alpha);
  nn_call_tensor(&call, NN_ROLE_OUT, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[positions, head_dim/2]",
      positions, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_OUT, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[positions, head_dim/2]", positions,
      head_dim / 2));
  const nn_rope_freqs_args args = {cosine, sine, first, positions, head_dim, base, ntk_alpha};
  check_rope_freqs(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rope_freqs_scaled(nncuda_ctx *ctx, const float *factors, float *cosine, float *sine,
    int64_t first, int64_t positions, int64_t head_dim, double base, double ntk_alpha, double scale) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rope_freqs_scaled);
  nn_call_size(&call, "positions", positions);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_require(&call, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
      (long long)head_dim);
  nn_call_require(&call, first >= 0, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; it must be at least 0",
      (long long)first);
  nn_call_require(&call, isfinite(base) && base > 0, NNCUDA_ERROR_INVALID_VALUE,
      "base is %g; it must be finite and above 0", base);
  nn_call_require(&call, isfinite(ntk_alpha) && ntk_alpha >= 1, NNCUDA_ERROR_INVALID_VALUE,
      "ntk_alpha is %g; it must be finite and at least 1", ntk_alpha);
  nn_call_require(&call, isfinite(scale) && scale > 0, NNCUDA_ERROR_INVALID_VALUE,
      "scale is %g; it must be finite and above 0", scale);
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "factors", factors, NNCUDA_F32, NULL, 0, NN_SHAPE("[head_dim/2]",
      head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_OUT, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[positions, head_dim/2]",
      positions, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_OUT, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[positions, head_dim/2]", positions,
      head_dim / 2));
  const nn_rope_freqs_scaled_args args = {factors, cosine, sine, first, positions, head_dim, base, ntk_alpha, scale};
  check_rope_freqs_scaled(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rope_forward(nncuda_ctx *ctx, const void *x, const float *cosine, const float *sine,
    const int32_t *positions, void *y, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position,
    int64_t ld_x, int64_t ld_y, int32_t layout, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rope_forward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "max_position", max_position);
  nn_call_require(&call, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
      (long long)head_dim);
  nn_call_require(&call, layout == NNCUDA_ROPE_HALF || layout == NNCUDA_ROPE_INTERLEAVED, NNCUDA_ERROR_INVALID_VALUE,
      "layout is %d; it must be NNCUDA_ROPE_HALF (0) or NNCUDA_ROPE_INTERLEAVED (1)", layout);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, "ld_x", ld_x, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "positions", positions, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, dtype, "ld_y", ld_y, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_alias(&call, "y", "x");
  const nn_rope_forward_args args = {x, cosine, sine, positions, y, tokens, heads, head_dim, max_position, ld_x, ld_y,
      layout, dtype};
  check_rope_forward(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rope_qk(nncuda_ctx *ctx, void *q, void *k, const float *cosine, const float *sine,
    const int32_t *positions, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position,
    int64_t ld_q, int64_t ld_k, int32_t layout, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rope_qk);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "kv_heads", kv_heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "max_position", max_position);
  nn_call_require(&call, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
      (long long)head_dim);
  nn_call_require(&call, layout == NNCUDA_ROPE_HALF || layout == NNCUDA_ROPE_INTERLEAVED, NNCUDA_ERROR_INVALID_VALUE,
      "layout is %d; it must be NNCUDA_ROPE_HALF (0) or NNCUDA_ROPE_INTERLEAVED (1)", layout);
  nn_call_tensor(&call, NN_ROLE_INOUT, "q", q, dtype, "ld_q", ld_q, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_INOUT, "k", k, dtype, "ld_k", ld_k, NN_SHAPE("[tokens, kv_heads, head_dim]", tokens,
      kv_heads, head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "positions", positions, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  const nn_rope_qk_args args = {q, k, cosine, sine, positions, tokens, heads, kv_heads, head_dim, max_position, ld_q,
      ld_k, layout, dtype};
  check_rope_qk(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_rope_backward(nncuda_ctx *ctx, const void *dy, const float *cosine, const float *sine,
    const int32_t *positions, void *dx, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position,
    int64_t ld_y, int64_t ld_x, int32_t layout, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_rope_backward);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "tokens", tokens);
  nn_call_size(&call, "heads", heads);
  nn_call_size(&call, "head_dim", head_dim);
  nn_call_size(&call, "max_position", max_position);
  nn_call_require(&call, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
      (long long)head_dim);
  nn_call_require(&call, layout == NNCUDA_ROPE_HALF || layout == NNCUDA_ROPE_INTERLEAVED, NNCUDA_ERROR_INVALID_VALUE,
      "layout is %d; it must be NNCUDA_ROPE_HALF (0) or NNCUDA_ROPE_INTERLEAVED (1)", layout);
  nn_call_tensor(&call, NN_ROLE_IN, "dy", dy, dtype, "ld_y", ld_y, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_tensor(&call, NN_ROLE_IN, "cosine", cosine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "sine", sine, NNCUDA_F32, NULL, 0, NN_SHAPE("[max_position, head_dim/2]",
      max_position, head_dim / 2));
  nn_call_tensor(&call, NN_ROLE_IN, "positions", positions, NNCUDA_I32, NULL, 0, NN_SHAPE("[tokens]", tokens));
  nn_call_tensor(&call, NN_ROLE_OUT, "dx", dx, dtype, "ld_x", ld_x, NN_SHAPE("[tokens, heads, head_dim]", tokens, heads,
      head_dim));
  nn_call_alias(&call, "dx", "dy");
  const nn_rope_backward_parameters given = {dy, cosine, sine, positions, dx, tokens, heads, head_dim, max_position,
      ld_y, ld_x, layout, dtype};
  const nn_rope_forward_args args = lower_rope_backward(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

#include "rope.h"

#include "runtime/call.h"

#include <math.h>

/* What both makers of tables ask of their options. */
static void require_frequencies(nn_call *call_, int64_t first, int64_t positions, int64_t head_dim, double base,
                                double ntk_alpha) {
  nn_call_require(call_, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
                  (long long)head_dim);
  nn_call_require(call_, base > 0.0 && isfinite(base), NNCUDA_ERROR_INVALID_VALUE,
                  "base is %g; it must be finite and above 0", base);
  nn_call_require(call_, ntk_alpha >= 1.0 && isfinite(ntk_alpha), NNCUDA_ERROR_INVALID_VALUE,
                  "ntk_alpha is %g; it must be finite and at least 1", ntk_alpha);
  nn_call_require(call_, head_dim != 2 || ntk_alpha == 1.0, NNCUDA_ERROR_INVALID_SIZE,
                  "head_dim is 2; it must be above 2 unless ntk_alpha is 1");
  nn_call_require(call_, first >= 0, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; it must be at least 0",
                  (long long)first);
  nn_call_require(call_, nn_add(first, positions) < INT64_MAX, NNCUDA_ERROR_INVALID_SIZE,
                  "positions is %lld; the last position, first + positions with first %lld, must fit into 63 bits",
                  (long long)positions, (long long)first);
}

int32_t cuda_rope_freqs(nncuda_ctx *ctx, float *cosine, float *sine, int64_t first, int64_t positions, int64_t head_dim,
                        double base, double ntk_alpha) {
  NN_BEGIN(rope_freqs);
  NN_SIZE(positions);
  NN_SIZE(head_dim);
  require_frequencies(&call, first, positions, head_dim, base, ntk_alpha);
  NN_OUT(cosine, NNCUDA_F32, positions, head_dim / 2);
  NN_OUT(sine, NNCUDA_F32, positions, head_dim / 2);
  return NN_LAUNCH(nn_rope_freqs_args, .cosine = cosine, .sine = sine, .first = first, .positions = positions,
                   .head_dim = head_dim, .base = base, .ntk_alpha = ntk_alpha);
}

int32_t cuda_rope_freqs_scaled(nncuda_ctx *ctx, const float *factors, float *cosine, float *sine, int64_t first,
                               int64_t positions, int64_t head_dim, double base, double ntk_alpha, double scale) {
  NN_BEGIN(rope_freqs_scaled);
  NN_SIZE(positions);
  NN_SIZE(head_dim);
  require_frequencies(&call, first, positions, head_dim, base, ntk_alpha);
  NN_REQUIRE(scale > 0.0 && isfinite(scale), NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be finite and above 0",
             scale);
  NN_IN_OPT(factors, NNCUDA_F32, head_dim / 2);
  NN_OUT(cosine, NNCUDA_F32, positions, head_dim / 2);
  NN_OUT(sine, NNCUDA_F32, positions, head_dim / 2);
  return NN_LAUNCH(nn_rope_freqs_scaled_args, .factors = factors, .cosine = cosine, .sine = sine, .first = first,
                   .positions = positions, .head_dim = head_dim, .base = base, .ntk_alpha = ntk_alpha, .scale = scale);
}

/* What the calls that rotate ask of their options. */
static void require_rotation(nn_call *call_, int64_t head_dim, int32_t layout) {
  nn_call_require(call_, head_dim % 2 == 0, NNCUDA_ERROR_INVALID_SIZE, "head_dim is %lld; it must be even",
                  (long long)head_dim);
  nn_call_require(call_, layout == NNCUDA_ROPE_HALF || layout == NNCUDA_ROPE_INTERLEAVED, NNCUDA_ERROR_INVALID_VALUE,
                  "layout is %d; it must be NNCUDA_ROPE_HALF (0) or NNCUDA_ROPE_INTERLEAVED (1)", layout);
}

int32_t cuda_rope_forward(nncuda_ctx *ctx, const void *x, const float *cosine, const float *sine,
                          const int32_t *positions, void *y, int64_t tokens, int64_t heads, int64_t head_dim,
                          int64_t max_position, int64_t ld_x, int64_t ld_y, int32_t layout, int32_t dtype) {
  NN_BEGIN(rope_forward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(heads);
  NN_SIZE(head_dim);
  NN_SIZE(max_position);
  NN_SIZE(ld_x);
  NN_SIZE(ld_y);
  require_rotation(&call, head_dim, layout);
  NN_TENSOR(NN_ROLE_IN, x, dtype, ld_x, tokens, heads, head_dim);
  NN_IN(cosine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(sine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(positions, NNCUDA_I32, tokens);
  NN_TENSOR(NN_ROLE_OUT, y, dtype, ld_y, tokens, heads, head_dim);
  NN_ALIAS(y, x);
  NN_FLOPS(3.0 * (double)tokens * (double)heads * (double)head_dim);
  return NN_LAUNCH(nn_rope_forward_args, .x = x, .cosine = cosine, .sine = sine, .positions = positions, .y = y,
                   .tokens = tokens, .heads = heads, .head_dim = head_dim, .max_position = max_position, .ld_x = ld_x,
                   .ld_y = ld_y, .layout = layout, .dtype = dtype);
}

int32_t cuda_rope_qk(nncuda_ctx *ctx, void *q, void *k, const float *cosine, const float *sine,
                     const int32_t *positions, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     int64_t max_position, int64_t ld_q, int64_t ld_k, int32_t layout, int32_t dtype) {
  NN_BEGIN(rope_qk);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(heads);
  NN_SIZE(kv_heads);
  NN_SIZE(head_dim);
  NN_SIZE(max_position);
  NN_SIZE(ld_q);
  NN_SIZE(ld_k);
  require_rotation(&call, head_dim, layout);
  NN_TENSOR(NN_ROLE_INOUT, q, dtype, ld_q, tokens, heads, head_dim);
  NN_TENSOR(NN_ROLE_INOUT, k, dtype, ld_k, tokens, kv_heads, head_dim);
  NN_IN(cosine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(sine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(positions, NNCUDA_I32, tokens);
  NN_FLOPS(3.0 * (double)tokens * ((double)heads + (double)kv_heads) * (double)head_dim);
  return NN_LAUNCH(nn_rope_qk_args, .q = q, .k = k, .cosine = cosine, .sine = sine, .positions = positions,
                   .tokens = tokens, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim,
                   .max_position = max_position, .ld_q = ld_q, .ld_k = ld_k, .layout = layout, .dtype = dtype);
}

int32_t cuda_rope_backward(nncuda_ctx *ctx, const void *dy, const float *cosine, const float *sine,
                           const int32_t *positions, void *dx, int64_t tokens, int64_t heads, int64_t head_dim,
                           int64_t max_position, int64_t ld_y, int64_t ld_x, int32_t layout, int32_t dtype) {
  NN_BEGIN(rope_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(heads);
  NN_SIZE(head_dim);
  NN_SIZE(max_position);
  NN_SIZE(ld_y);
  NN_SIZE(ld_x);
  require_rotation(&call, head_dim, layout);
  NN_TENSOR(NN_ROLE_IN, dy, dtype, ld_y, tokens, heads, head_dim);
  NN_IN(cosine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(sine, NNCUDA_F32, max_position, head_dim / 2);
  NN_IN(positions, NNCUDA_I32, tokens);
  NN_TENSOR(NN_ROLE_OUT, dx, dtype, ld_x, tokens, heads, head_dim);
  NN_ALIAS(dx, dy);
  NN_FLOPS(3.0 * (double)tokens * (double)heads * (double)head_dim);
  return NN_LAUNCH(nn_rope_backward_args, .x = dy, .cosine = cosine, .sine = sine, .positions = positions, .y = dx,
                   .tokens = tokens, .heads = heads, .head_dim = head_dim, .max_position = max_position, .ld_x = ld_y,
                   .ld_y = ld_x, .layout = layout, .dtype = dtype);
}

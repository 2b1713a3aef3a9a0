#include "elementwise.h"

#include "runtime/call.h"

#include <math.h>

int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype) {
  NN_BEGIN(silu);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(x, dtype, n);
  NN_OUT(y, dtype, n);
  NN_ALIAS(y, x);
  NN_FLOPS(5.0 * (double)n);
  return NN_LAUNCH(nn_silu_args, .x = x, .y = y, .n = n, .dtype = dtype);
}

int32_t cuda_silu_backward(nncuda_ctx *ctx, const void *dy, const void *x, void *dx, int64_t n, int32_t dtype) {
  NN_BEGIN(silu_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(dy, dtype, n);
  NN_IN(x, dtype, n);
  NN_OUT(dx, dtype, n);
  NN_ALIAS(dx, dy);
  NN_ALIAS(dx, x);
  NN_FLOPS(9.0 * (double)n);
  return NN_LAUNCH(nn_silu_backward_args, .dy = dy, .x = x, .dx = dx, .n = n, .dtype = dtype);
}

int32_t cuda_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype) {
  NN_BEGIN(add);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(a, dtype, n);
  NN_IN(b, dtype, n);
  NN_OUT(y, dtype, n);
  NN_ALIAS(y, a);
  NN_ALIAS(y, b);
  NN_FLOPS((double)n);
  return NN_LAUNCH(nn_add_args, .a = a, .b = b, .y = y, .n = n, .dtype = dtype);
}

int32_t cuda_mul(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype) {
  NN_BEGIN(mul);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(a, dtype, n);
  NN_IN(b, dtype, n);
  NN_OUT(y, dtype, n);
  NN_ALIAS(y, a);
  NN_ALIAS(y, b);
  NN_FLOPS((double)n);
  return NN_LAUNCH(nn_mul_args, .a = a, .b = b, .y = y, .n = n, .dtype = dtype);
}

int32_t cuda_scale(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float alpha, int32_t dtype) {
  NN_BEGIN(scale);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(x, dtype, n);
  NN_OUT(y, dtype, n);
  NN_ALIAS(y, x);
  NN_FLOPS((double)n);
  return NN_LAUNCH(nn_scale_args, .x = x, .y = y, .n = n, .alpha = alpha, .dtype = dtype);
}

int32_t cuda_swiglu(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim, int64_t ld,
                    int32_t dtype) {
  NN_BEGIN(swiglu);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(dim);
  NN_SIZE(ld);
  NN_TENSOR(NN_ROLE_IN, gate, dtype, ld, rows, dim);
  NN_TENSOR(NN_ROLE_IN, up, dtype, ld, rows, dim);
  NN_OUT(y, dtype, rows, dim);
  NN_FLOPS(6.0 * (double)rows * (double)dim);
  return NN_LAUNCH(nn_swiglu_args, .gate = gate, .up = up, .y = y, .rows = rows, .dim = dim, .ld = ld, .dtype = dtype);
}

int32_t cuda_swiglu_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up, void *dgate, void *dup,
                             int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  NN_BEGIN(swiglu_backward);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(dim);
  NN_SIZE(ld);
  NN_IN(dy, dtype, rows, dim);
  NN_TENSOR(NN_ROLE_IN, gate, dtype, ld, rows, dim);
  NN_TENSOR(NN_ROLE_IN, up, dtype, ld, rows, dim);
  NN_TENSOR(NN_ROLE_OUT, dgate, dtype, ld, rows, dim);
  NN_TENSOR(NN_ROLE_OUT, dup, dtype, ld, rows, dim);
  NN_ALIAS(dgate, gate);
  NN_ALIAS(dup, up);
  NN_FLOPS(12.0 * (double)rows * (double)dim);
  return NN_LAUNCH(nn_swiglu_backward_args, .dy = dy, .gate = gate, .up = up, .dgate = dgate, .dup = dup, .rows = rows,
                   .dim = dim, .ld = ld, .dtype = dtype);
}

int32_t cuda_relu2_gate(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim,
                        int64_t ld, int32_t dtype) {
  NN_BEGIN(relu2_gate);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(dim);
  NN_SIZE(ld);
  NN_TENSOR(NN_ROLE_IN, gate, dtype, ld, rows, dim);
  NN_TENSOR(NN_ROLE_IN, up, dtype, ld, rows, dim);
  NN_OUT(y, dtype, rows, dim);
  NN_FLOPS(3.0 * (double)rows * (double)dim);
  return NN_LAUNCH(nn_relu2_gate_args, .gate = gate, .up = up, .y = y, .rows = rows, .dim = dim, .ld = ld,
                   .dtype = dtype);
}

int32_t cuda_cast(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  NN_BEGIN(cast);
  NN_DTYPE(dtype_x, NN_FLOATS);
  NN_DTYPE(dtype_y, NN_FLOATS);
  NN_SIZE(n);
  NN_IN(x, dtype_x, n);
  NN_OUT(y, dtype_y, n);
  return NN_LAUNCH(nn_cast_args, .x = x, .y = y, .n = n, .dtype_x = dtype_x, .dtype_y = dtype_y);
}

int32_t cuda_fill(nncuda_ctx *ctx, void *y, int64_t n, float value, int32_t dtype) {
  NN_BEGIN(fill);
  NN_DTYPE(dtype, NN_NUMBERS);
  NN_SIZE(n);
  NN_OUT(y, dtype, n);
  if (dtype == NNCUDA_I32 || dtype == NNCUDA_I8) {
    const double low = dtype == NNCUDA_I32 ? -0x1p31 : -128.0;
    NN_REQUIRE(value >= low && value < -low && rintf(value) == value, NNCUDA_ERROR_INVALID_VALUE,
               "value is %.9g; it must be a whole number from %.0f to %.0f", (double)value, low, -low - 1.0);
  }
  return NN_LAUNCH(nn_fill_args, .y = y, .n = n, .value = value, .dtype = dtype);
}

int32_t cuda_increment(nncuda_ctx *ctx, int32_t *x, int64_t n, int32_t by) {
  NN_BEGIN(increment);
  NN_SIZE(n);
  NN_INOUT(x, NNCUDA_I32, n);
  return NN_LAUNCH(nn_increment_args, .x = x, .n = n, .by = by);
}

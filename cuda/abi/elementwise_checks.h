#include "abi/checks.h"
#include "abi/elementwise.h"

#include <math.h>

NN_FLOPS(silu, 5.0 * a->n)
NN_FLOPS(silu_backward, 9.0 * a->n)
NN_FLOPS(add, a->n)
NN_FLOPS(mul, a->n)
NN_FLOPS(scale, a->n)
NN_FLOPS(swiglu, 6.0 * a->rows * a->dim)
NN_FLOPS(swiglu_backward, 12.0 * a->rows * a->dim)
NN_FLOPS(relu2_gate, 3.0 * a->rows * a->dim)
NN_FLOPS(cast, 0)
NN_FLOPS(round, 0)
NN_FLOPS(increment, 0)

NN_CHECK(fill) {
  if (a->dtype == NNCUDA_I32 || a->dtype == NNCUDA_I8) {
    const double low = a->dtype == NNCUDA_I32 ? -0x1p31 : -128.0;
    nn_call_require(call, a->value >= low && a->value < -low && rintf(a->value) == a->value, NNCUDA_ERROR_INVALID_VALUE,
                    "value is %.9g; it must be a whole number from %.0f to %.0f", (double)a->value, low, -low - 1.0);
  }
}

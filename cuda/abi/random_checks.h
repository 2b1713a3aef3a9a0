#include "abi/checks.h"
#include "abi/generated/random.h"

#include <math.h>

NN_FLOPS(random_bits, 0)
NN_FLOPS(normal, 0)

NN_CHECK(uniform) {
  nn_call_require(call, isfinite(a->high - a->low), NNCUDA_ERROR_INVALID_VALUE,
                  "high is %g; high - low must be finite, and low is %g", (double)a->high, (double)a->low);
}

#include "abi/checks.h"
#include "abi/generated/digest.h"

NN_CHECK(digest) {
  nn_call_require(call, a->width == 1 || a->width == 2 || a->width == 4, NNCUDA_ERROR_INVALID_SIZE,
                  "width is %lld; it must be 1, 2 or 4", (long long)a->width);
  nn_call_require(call, a->first < 0 || a->n <= INT64_MAX - a->first, NNCUDA_ERROR_INVALID_VALUE,
                  "first is %lld; the index of the last of %lld elements must fit 63 bits", (long long)a->first,
                  (long long)a->n);
}

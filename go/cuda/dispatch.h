/* Kernels by number, for programs that learn which one they call when they run. */
#ifndef NNCUDA_GO_DISPATCH_H
#define NNCUDA_GO_DISPATCH_H

#include "loader.h"

/* One argument: a pointer's address in `bits`, a size, flag, dtype or whole option in `integer`, else `real`. */
typedef union {
  uint64_t bits;
  int64_t integer;
  double real;
} nn_slot;

/* Calls the kernel of that number, counted in the header's order, with an argument for each parameter but ctx. */
int32_t nn_call_kernel(int32_t kernel, nncuda_ctx *ctx, const nn_slot *slots);

#endif

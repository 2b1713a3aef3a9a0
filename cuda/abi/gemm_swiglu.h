/* The products of grouped_gemm_swiglu and its gradient as grouped_gemm has them, for both engines. */
#ifndef NN_ABI_GEMM_SWIGLU_H
#define NN_ABI_GEMM_SWIGLU_H

#include "abi/gemm.h"
#include "abi/generated/gemm.h"

/* Gates and ups, side by side. */
static inline nn_gemm_args nn_swiglu_products(const nn_grouped_gemm_swiglu_args *a) {
  nn_gemm_args x = nn_grouped_rows(a->offsets, a->groups, a->rows, 2 * a->n, a->k, 1, a->dtype);
  x.a = a->a;
  x.b = a->b;
  x.c = a->gate_up;
  return x;
}

/* The gradients of y, in memory at dy. */
static inline nn_gemm_args nn_swiglu_slopes(const nn_grouped_gemm_swiglu_backward_args *a, void *dy) {
  nn_gemm_args x = nn_grouped_rows(a->offsets, a->groups, a->rows, a->n, a->k, 0, a->dtype);
  x.a = a->a;
  x.b = a->b;
  x.c = dy;
  return x;
}

#endif

/* The products of grouped_gemm_swiglu and its gradient as grouped_gemm has them, for both engines. */
#ifndef NN_ABI_GEMM_SWIGLU_H
#define NN_ABI_GEMM_SWIGLU_H

#include "abi/gemm.h"
#include "abi/generated/gemm.h"

#include <string.h>

/* Gates and ups, side by side. */
static inline nn_gemm_args nn_swiglu_products(const nn_grouped_gemm_swiglu_args *a) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.a = a->a;
  x.b = a->b;
  x.c = a->gate_up;
  x.offsets = a->offsets;
  x.count = a->groups;
  x.m = a->rows;
  x.n = 2 * a->n;
  x.k = x.lda = x.ldb = a->k;
  x.ldc = 2 * a->n;
  x.alpha = 1.0f;
  x.trans_b = 1;
  x.dtype = x.dtype_c = a->dtype;
  x.ragged = NN_GEMM_RAGGED_M;
  return x;
}

/* The gradients of y, in memory at dy. */
static inline nn_gemm_args nn_swiglu_slopes(const nn_grouped_gemm_swiglu_backward_args *a, void *dy) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.a = a->a;
  x.b = a->b;
  x.c = dy;
  x.offsets = a->offsets;
  x.count = a->groups;
  x.m = a->rows;
  x.n = x.ldb = x.ldc = a->n;
  x.k = x.lda = a->k;
  x.alpha = 1.0f;
  x.dtype = x.dtype_c = a->dtype;
  x.ragged = NN_GEMM_RAGGED_M;
  return x;
}

#endif

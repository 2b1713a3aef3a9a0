/* The products of moe_input_backward as gemm_beta has them, for both engines. */
#ifndef NN_ABI_GEMM_GATE_H
#define NN_ABI_GEMM_GATE_H

#include "abi/gemm.h"
#include "abi/generated/moe.h"

#include <string.h>

/* dgate = dlogits^T * x + beta * dgate. */
static inline nn_gemm_args nn_gate_gradient(const nn_moe_input_backward_args *a) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.a = a->dlogits;
  x.b = a->x;
  x.c = a->dgate;
  x.count = 1;
  x.m = x.lda = a->experts;
  x.n = x.ldb = x.ldc = a->dim;
  x.k = a->tokens;
  x.alpha = 1.0f;
  x.beta = a->beta;
  x.trans_a = 1;
  x.dtype = a->dtype;
  x.dtype_c = a->dtype_c;
  return x;
}

/* dx += dlogits * gate. */
static inline nn_gemm_args nn_gate_input_gradient(const nn_moe_input_backward_args *a) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.a = a->dlogits;
  x.b = a->gate;
  x.c = a->dx;
  x.count = 1;
  x.m = a->tokens;
  x.n = x.ldb = x.ldc = a->dim;
  x.k = x.lda = a->experts;
  x.alpha = x.beta = 1.0f;
  x.dtype = x.dtype_c = a->dtype;
  return x;
}

#endif

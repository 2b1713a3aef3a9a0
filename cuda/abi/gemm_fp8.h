/* The products of grouped_gemm_fp8 and its gradient as grouped_gemm has them, over factors that have been rounded and
 * lie in bf16 as the caller's do: for the CPU, and for GPUs without products of 8 bits. */
#ifndef NN_ABI_GEMM_FP8_H
#define NN_ABI_GEMM_FP8_H

#include "abi/gemm.h"
#include "abi/generated/gemm.h"
#include "interface.h"

#include <string.h>

static inline nn_gemm_args nn_fp8_products(const nn_grouped_gemm_fp8_args *a, const void *rounded_a,
                                           const void *rounded_b) {
  nn_gemm_args x = nn_grouped_rows(a->offsets, a->groups, a->rows, a->n, a->k, a->trans_b, NNCUDA_BF16);
  x.a = rounded_a;
  x.b = rounded_b;
  x.c = a->c;
  x.dtype_c = a->dtype_c;
  return x;
}

static inline nn_gemm_args nn_fp8_weight_products(const nn_grouped_gemm_wgrad_fp8_args *a, const void *rounded_a,
                                                  const void *rounded_b) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.a = rounded_a;
  x.b = rounded_b;
  x.c = a->c;
  x.offsets = a->offsets;
  x.count = a->groups;
  x.m = x.lda = a->m;
  x.n = x.ldb = x.ldc = a->n;
  x.k = a->rows;
  x.alpha = 1.0f;
  x.beta = a->beta;
  x.trans_a = 1;
  x.dtype = NNCUDA_BF16;
  x.dtype_c = a->dtype_c;
  x.ragged = NN_GEMM_RAGGED_K;
  return x;
}

#endif

/* What all matrix products of both engines are run with. */
#ifndef NN_ABI_GEMM_H
#define NN_ABI_GEMM_H

#include <stdint.h>

/* Which size `offsets` cuts into groups. */
enum { NN_GEMM_EVEN = 0, NN_GEMM_RAGGED_M = 1, NN_GEMM_RAGGED_K = 2 };

typedef struct nn_gemm_args {
  const void *a, *b;
  void *c;
  const void *bias;       /* [n] of dtype_c, or null */
  const void *residual;   /* laid out as c, of dtype_c, or null */
  const int32_t *offsets; /* [count + 1], or null when even */
  int64_t count;          /* products: batch entries or groups */
  int64_t m, n, k;        /* of one product; the ragged one is the room for all groups together */
  int64_t lda, ldb, ldc;
  float alpha, beta;
  int32_t trans_a, trans_b;
  int32_t activation;
  int32_t dtype, dtype_c;
  int32_t ragged;
} nn_gemm_args;

#endif

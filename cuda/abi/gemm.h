/* What all matrix products of both engines are run with. */
#ifndef NN_ABI_GEMM_H
#define NN_ABI_GEMM_H

#include <stdint.h>
#include <string.h>

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
  int32_t
      alike; /* on a CPU: a row has the same bits however many rows its product has, at the cost of few rows' speed */
} nn_gemm_args;

/* Dense products of rows in groups with a matrix for each, [n, k] where `trans_b` says so; without the pointers. */
static inline nn_gemm_args nn_grouped_rows(const int32_t *offsets, int64_t groups, int64_t rows, int64_t n, int64_t k,
                                           int32_t trans_b, int32_t dtype) {
  nn_gemm_args x;
  memset(&x, 0, sizeof x); /* which C and C++ both read without a warning */
  x.offsets = offsets;
  x.count = groups;
  x.m = rows;
  x.n = x.ldc = n;
  x.k = x.lda = k;
  x.ldb = trans_b ? k : n;
  x.alpha = 1.0f;
  x.trans_b = trans_b;
  x.dtype = x.dtype_c = dtype;
  x.ragged = NN_GEMM_RAGGED_M;
  return x;
}

#endif

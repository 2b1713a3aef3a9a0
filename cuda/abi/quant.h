/* What both engines' kernels on stored weights share. */
#ifndef NN_ABI_QUANT_H
#define NN_ABI_QUANT_H

#include "abi/generated/quant.h"

/* One matrix of a product: n rows a group, each of row_bytes bytes. */
typedef struct nn_quant_matrix {
  const void *w;
  int64_t n, row_bytes;
  int32_t format;
} nn_quant_matrix;

enum { NN_QUANT_MATRICES = 3 };

/* How the products of the matrices make y: side by side, or as silu(first) * second. */
enum { NN_QUANT_COLUMNS = 0, NN_QUANT_SWIGLU = 1 };

/* All products with stored weights take the same struct. */
typedef struct nn_gemm_quant_args {
  const void *x;
  const void *norm; /* [k], the gains of a norm of x that comes first, or null */
  nn_quant_matrix matrix[NN_QUANT_MATRICES];
  const int32_t *offsets; /* [groups + 1], or null for one group of all rows */
  const void *bias;       /* [n], or null */
  const void *residual;   /* [m, n], or null */
  void *y;                /* [m, n] */
  int64_t groups, m, n, k;
  int32_t matrices; /* of `matrix`, in use */
  int32_t combine;  /* NN_QUANT_* */
  int32_t activation, dtype;
  float eps; /* of the norm */
} nn_gemm_quant_args;

#endif

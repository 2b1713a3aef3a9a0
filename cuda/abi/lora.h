/*
 * What both engines' gradients through stored weights share. W is read as numbers of the product's dtype, a panel of
 * columns at a time: all rows of W, so that a sum over them is one product's, and where columns are cut decides no bit.
 */
#ifndef NN_ABI_LORA_H
#define NN_ABI_LORA_H

#include "abi/gemm.h"
#include "abi/generated/lora.h"
#include "abi/generated/quant.h"
#include "numbers/format.h"
#include "numbers/sizes.h"

/* Whole blocks of every format. */
enum { NN_LORA_COLUMNS = 256 };

/* dx = dy * W + beta * dx, whatever W is stored as. */
typedef struct nn_lora_product {
  const void *dy;
  void *dx;
  const int32_t *offsets; /* or null: one group of all rows */
  int64_t groups, m, n, k;
  int64_t columns; /* of a panel, but for the last one */
  float beta;
  int32_t dtype;
} nn_lora_product;

/* Columns of a panel of about `bytes`. */
static inline int64_t nn_lora_columns(int64_t rows, int64_t k, int32_t dtype, int64_t bytes) {
  const int64_t each = (dtype == NNCUDA_F32 ? 4 : 2) * NN_LORA_COLUMNS, blocks = bytes / each / (rows > 0 ? rows : 1);
  return nn_min(k, (blocks > 1 ? blocks : 1) * NN_LORA_COLUMNS);
}

static inline size_t nn_lora_panel_bytes(const nn_lora_product *p) {
  return (size_t)(p->groups * p->n * p->columns) * (p->dtype == NNCUDA_F32 ? 4 : 2);
}

static inline nn_lora_product nn_lora_stored(const nn_gemm_quant_backward_args *a, int64_t bytes) {
  const nn_lora_product p = {a->dy,   a->dx,   a->offsets, a->groups,
                             a->m,    a->n,    a->k,       nn_lora_columns(a->groups * a->n, a->k, a->dtype, bytes),
                             a->beta, a->dtype};
  return p;
}

static inline nn_lora_product nn_lora_ternary(const nn_bitlinear_backward_args *a, int64_t bytes) {
  const nn_lora_product p = {a->dy,   a->dx,   NULL, 1, a->m, a->n, a->k, nn_lora_columns(a->n, a->k, a->dtype, bytes),
                             a->beta, a->dtype};
  return p;
}

/* Columns of the last panel. */
static inline int64_t nn_lora_rest(const nn_lora_product *p) {
  const int64_t rest = p->columns > 0 ? p->k % p->columns : 0;
  return rest == 0 ? p->columns : rest;
}

/* The product with columns first .. first+columns-1 of W, which are in `panel`. */
static inline nn_gemm_args nn_lora_part(const nn_lora_product *p, const void *panel, int64_t first, int64_t columns) {
  nn_gemm_args x = nn_grouped_rows(p->offsets, p->groups, p->m, columns, p->n, 0, p->dtype);
  x.ragged = p->offsets == NULL ? NN_GEMM_EVEN : NN_GEMM_RAGGED_M;
  x.a = p->dy;
  x.b = panel;
  x.c = (char *)p->dx + first * (p->dtype == NNCUDA_F32 ? 4 : 2);
  x.ldc = p->k;
  x.beta = p->beta;
  x.alike = 1;
  return x;
}

/* What reads columns first .. first+columns-1 of stored rows. */
static inline nn_dequantize_args nn_lora_numbers(const nn_gemm_quant_backward_args *a, void *panel, int64_t first,
                                                 int64_t columns) {
  const nn_format_block block = nn_format_block_of(a->format);
  nn_dequantize_args d;
  memset(&d, 0, sizeof d); /* which C and C++ both read without a warning */
  d.x = (const char *)a->w + first / block.elements * block.bytes;
  d.y = panel;
  d.rows = a->groups * a->n;
  d.k = columns;
  d.row_bytes = a->row_bytes; /* from one row to the next */
  d.format = a->format;
  d.dtype = a->dtype;
  return d;
}

#endif

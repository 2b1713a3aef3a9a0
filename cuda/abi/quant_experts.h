/* The products of gemm_quant_route and gemm_quant_experts as gemm_quant has them, for both engines. */
#ifndef NN_ABI_QUANT_EXPERTS_H
#define NN_ABI_QUANT_EXPERTS_H

#include "abi/generated/moe.h"
#include "abi/quant.h"

#include <string.h>

static inline nn_quant_matrix nn_quant_matrix_of(const void *w, int64_t n, int64_t row_bytes, int32_t format) {
  nn_quant_matrix matrix;
  matrix.w = w;
  matrix.n = n;
  matrix.row_bytes = row_bytes;
  matrix.format = format;
  return matrix;
}

/* logits = y * W^T. */
static inline nn_gemm_quant_args nn_route_product(const nn_gemm_quant_route_args *a) {
  nn_gemm_quant_args p;
  memset(&p, 0, sizeof p); /* which C and C++ both read without a warning */
  p.x = a->y;
  p.y = a->logits;
  p.matrix[0] = nn_quant_matrix_of(a->w, a->experts, a->row_bytes, a->format);
  p.matrices = 1;
  p.groups = 1;
  p.m = a->tokens;
  p.n = a->experts;
  p.k = a->dim;
  return p;
}

/* What gemm_quant_route leaves to moe_route: no rows are wanted, and no loss. */
static inline nn_moe_route_args nn_quant_route_rest(const nn_gemm_quant_route_args *a) {
  nn_moe_route_args r;
  memset(&r, 0, sizeof r); /* which C and C++ both read without a warning */
  r.logits = a->logits;
  r.weights = a->weights;
  r.indices = a->indices;
  r.probs = a->probs;
  r.counts = a->counts;
  r.offsets = a->offsets;
  r.slot_row = a->slot_row;
  r.row_slot = a->row_slot;
  r.tokens = a->tokens;
  r.experts = a->experts;
  r.k = a->k;
  r.dim = a->dim;
  r.norm = a->norm;
  return r;
}

/* inner = silu(x * Wg^T) * (x * Wu^T) of the rows x. */
static inline nn_gemm_quant_args nn_experts_inner(const nn_gemm_quant_experts_args *a, const void *x, void *inner) {
  nn_gemm_quant_args p;
  memset(&p, 0, sizeof p); /* which C and C++ both read without a warning */
  p.x = x;
  p.y = inner;
  p.matrix[0] = nn_quant_matrix_of(a->w_gate, a->n, a->row_bytes_gate, a->format_gate);
  p.matrix[1] = nn_quant_matrix_of(a->w_up, a->n, a->row_bytes_up, a->format_up);
  p.matrices = 2;
  p.combine = NN_QUANT_SWIGLU;
  p.offsets = a->offsets;
  p.groups = a->experts;
  p.m = a->tokens * a->k;
  p.n = a->n;
  p.k = a->dim;
  return p;
}

/* outputs = inner * Wd^T. */
static inline nn_gemm_quant_args nn_experts_outer(const nn_gemm_quant_experts_args *a, const void *inner,
                                                  void *outputs) {
  nn_gemm_quant_args p;
  memset(&p, 0, sizeof p); /* which C and C++ both read without a warning */
  p.x = inner;
  p.y = outputs;
  p.matrix[0] = nn_quant_matrix_of(a->w_down, a->dim, a->row_bytes_down, a->format_down);
  p.matrices = 1;
  p.offsets = a->offsets;
  p.groups = a->experts;
  p.m = a->tokens * a->k;
  p.n = a->dim;
  p.k = a->n;
  return p;
}

#endif

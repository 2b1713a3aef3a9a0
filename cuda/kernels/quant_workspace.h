/* How the GPU's kernels of quant lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_QUANT_WORKSPACE_H
#define NN_KERNELS_QUANT_WORKSPACE_H

#include "abi/quant_experts.h"
#include "kernels/moe_workspace.h"
#include "runtime/engine.h"

enum { NN_UNIT_BYTES = 8 }; /* of a quant_unit (quant_gemm.cuh) */

/* The activations in the forms that the matrices need: rounded for blocks, cast for dtypes; for their own dtype they
 * are used as they are, or normed, or, where rows are gathered, in their order. */
typedef struct nn_quant_activations {
  uint32_t *codes; /* with `units`, or null */
  void *units;
  void *cast[3]; /* by dtype, or null */
} nn_quant_activations;

static inline nn_quant_activations nn_quant_lay_out(const nn_gemm_quant_args *a, int32_t gathers, nn_workspace *w) {
  nn_quant_activations forms = {NULL, NULL, {NULL, NULL, NULL}};
  uint32_t made = 0; /* forms: a dtype, or 3 for blocks */
  for (int32_t i = 0; i < a->matrices; i++) {
    const int32_t format = a->matrix[i].format, form = format <= NNCUDA_FORMAT_BF16 ? format : 3;
    if ((form == a->dtype && a->norm == NULL && !gathers) || (made >> form & 1u) != 0) {
      continue;
    }
    made |= 1u << form;
    if (form == 3) {
      forms.codes = (uint32_t *)nn_workspace_piece(w, (size_t)(a->m * a->k));
      forms.units = nn_workspace_piece(w, (size_t)(a->m * (a->k / 32)) * NN_UNIT_BYTES);
    } else {
      forms.cast[form] = nn_workspace_piece(w, (size_t)(a->m * a->k) * (form == NNCUDA_FORMAT_F32 ? 4 : 2));
    }
  }
  return forms;
}

typedef struct nn_quant_experts_space {
  float *inner, *rows; /* [tokens * k, n], [tokens * k, dim] */
} nn_quant_experts_space;

/* gemm_quant_experts, but for its products. */
static inline nn_quant_experts_space nn_quant_experts_lay_out(const nn_gemm_quant_experts_args *a, nn_workspace *w) {
  const int64_t slots = a->tokens * a->k;
  nn_quant_experts_space space;
  space.inner = (float *)nn_workspace_piece(w, (size_t)(slots * a->n) * sizeof(float));
  space.rows = (float *)nn_workspace_piece(w, (size_t)(slots * a->dim) * sizeof(float));
  return space;
}

/* gemm_quant_route, one call after the other. */
static inline void nn_quant_route_lay_out(const nn_gemm_quant_route_args *a, nn_workspace *w) {
  const nn_gemm_quant_args product = nn_route_product(a);
  const nn_moe_route_args rest = nn_quant_route_rest(a);
  nn_quant_lay_out(&product, 0, w);
  nn_moe_route_lay_out(&rest, w);
}

static inline void nn_quant_experts_workspace(const nn_gemm_quant_experts_args *a, nn_workspace *w) {
  nn_quant_experts_lay_out(a, w);
  const nn_gemm_quant_args inner = nn_experts_inner(a, a->x, NULL), outer = nn_experts_outer(a, NULL, NULL);
  nn_quant_lay_out(&inner, 1, w);
  nn_quant_lay_out(&outer, 0, w);
}

#endif

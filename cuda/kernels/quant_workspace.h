/* How the GPU's kernels of quant lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_QUANT_WORKSPACE_H
#define NN_KERNELS_QUANT_WORKSPACE_H

#include "abi/quant.h"
#include "runtime/engine.h"

enum { NN_UNIT_BYTES = 8 }; /* of a quant_unit (quant_gemm.cuh) */

/* The activations in the forms that the matrices need: rounded for blocks, cast for dtypes; for their own dtype they
 * are used as they are, or normed. */
typedef struct nn_quant_activations {
  uint32_t *codes; /* with `units`, or null */
  void *units;
  void *cast[3]; /* by dtype, or null */
} nn_quant_activations;

static inline nn_quant_activations nn_quant_lay_out(const nn_gemm_quant_args *a, nn_workspace *w) {
  nn_quant_activations forms = {NULL, NULL, {NULL, NULL, NULL}};
  uint32_t made = 0; /* forms: a dtype, or 3 for blocks */
  for (int32_t i = 0; i < a->matrices; i++) {
    const int32_t format = a->matrix[i].format, form = format <= NNCUDA_FORMAT_BF16 ? format : 3;
    if ((form == a->dtype && a->norm == NULL) || (made >> form & 1u) != 0) {
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

#endif

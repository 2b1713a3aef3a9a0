/* How the GPU's kernels of quant lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_QUANT_WORKSPACE_H
#define NN_KERNELS_QUANT_WORKSPACE_H

#include "abi/quant.h"
#include "runtime/engine.h"

enum { NN_UNIT_BYTES = 8 }; /* of a quant_unit (quant_gemm.cuh) */

/* The left factor in the forms that the matrices need: rounded for blocks, as it is for its own dtype, cast for others.
 */
typedef struct nn_quant_left {
  uint32_t *codes; /* with `units`, or null */
  void *units;
  void *cast[3]; /* by dtype, or null */
} nn_quant_left;

static inline nn_quant_left nn_quant_lay_out(const nn_gemm_quant_args *a, nn_workspace *w) {
  nn_quant_left left = {NULL, NULL, {NULL, NULL, NULL}};
  uint32_t taken = 0; /* forms: a dtype, or 3 for blocks */
  for (int32_t i = 0; i < a->matrices; i++) {
    const int32_t format = a->matrix[i].format, form = format <= NNCUDA_FORMAT_BF16 ? format : 3;
    if (form == a->dtype || (taken >> form & 1u) != 0) {
      continue;
    }
    taken |= 1u << form;
    if (form == 3) {
      left.codes = (uint32_t *)nn_take(w, (size_t)(a->m * a->k));
      left.units = nn_take(w, (size_t)(a->m * (a->k / 32)) * NN_UNIT_BYTES);
    } else {
      left.cast[form] = nn_take(w, (size_t)(a->m * a->k) * (form == NNCUDA_FORMAT_F32 ? 4 : 2));
    }
  }
  return left;
}

#endif

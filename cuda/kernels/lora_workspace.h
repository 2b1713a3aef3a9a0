/* How the GPU's kernels of lora lay out their workspaces: see workspace.c. */
#ifndef NN_KERNELS_LORA_WORKSPACE_H
#define NN_KERNELS_LORA_WORKSPACE_H

#include "abi/lora.h"
#include "kernels/gemm_workspace.h"

/* Of numbers in a panel of columns of W: large enough that its product has a tile for each multiprocessor, about what
 * L2 holds. By count. */
enum { NN_LORA_PANEL_BYTES = 32 << 20 };

static inline void *nn_lora_lay_out_panel(const nn_lora_product *p, nn_workspace *w) {
  return nn_workspace_piece(w, nn_lora_panel_bytes(p));
}

/* The panel, and behind it the workspaces of the products with a whole panel and with the last one: a product finds
 * room for whichever of the two it is. */
static inline void nn_lora_lay_out(nn_lora_product p, nn_workspace *w) {
  void *const panel = nn_lora_lay_out_panel(&p, w);
  const nn_gemm_args whole = nn_lora_part(&p, panel, 0, p.columns), last = nn_lora_part(&p, panel, 0, nn_lora_rest(&p));
  nn_gemm_lay_out(&whole, w);
  nn_gemm_lay_out(&last, w);
}

#endif

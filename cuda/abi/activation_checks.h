#include "abi/checks.h"
#include "abi/generated/activation.h"

NN_FLOPS(softcap, 6.0 * a->n)
NN_FLOPS(geglu, 10.0 * a->rows * a->dim)
NN_FLOPS(swiglu_clipped, 9.0 * a->rows * a->dim)
NN_FLOPS(relu2_gate_backward, 6.0 * a->rows * a->dim)
NN_FLOPS(act_dequant_i8, 1.0 * a->rows * a->cols)
NN_FLOPS(grouped_bias, 1.0 * a->rows * a->dim)

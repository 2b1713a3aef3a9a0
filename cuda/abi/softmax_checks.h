#include "abi/checks.h"
#include "abi/generated/softmax.h"

NN_FLOPS(softmax, 5.0 * a->rows * a->cols)
NN_FLOPS(softmax_backward, 4.0 * a->rows * a->cols)
NN_FLOPS(softmax_topk, 6.0 * a->rows * a->cols)
NN_FLOPS(softmax_topk_backward, 4.0 * a->rows * ((double)a->cols + a->k))

#include "abi/checks.h"
#include "abi/generated/rmsnorm.h"

NN_FLOPS(rmsnorm, 4.0 * a->rows * a->cols)
NN_FLOPS(rmsnorm_residual, 5.0 * a->rows * a->cols)
NN_FLOPS(rmsnorm_backward, 10.0 * a->rows * a->cols)

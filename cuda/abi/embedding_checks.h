#include "abi/checks.h"
#include "abi/generated/embedding.h"

NN_FLOPS(embedding, 0)
NN_FLOPS(scatter_add, (double)a->tokens * a->dim)
NN_FLOPS(pool_rows, 9.0 * a->rows * a->dim)
NN_FLOPS(pool_unit, 4.0 * a->dim)

#include "abi/checks.h"
#include "abi/generated/embedding.h"

NN_FLOPS(embedding, 0)
NN_FLOPS(scatter_add, (double)a->tokens * a->dim)

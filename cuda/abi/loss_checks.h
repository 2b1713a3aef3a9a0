#include "abi/checks.h"
#include "abi/generated/loss.h"

NN_FLOPS(cross_entropy_forward, 3.0 * a->rows * a->vocab)
NN_FLOPS(cross_entropy_backward, 3.0 * a->rows * a->vocab)
NN_FLOPS(aux_loss_forward, (double)a->tokens * a->experts)
NN_FLOPS(aux_loss_backward, a->experts)
NN_FLOPS(weighted_mean, 2.0 * a->n)

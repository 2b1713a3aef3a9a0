/* What both engines' softmax kernels share. */
#ifndef NN_ABI_SOFTMAX_H
#define NN_ABI_SOFTMAX_H

#include "abi/generated/softmax.h"

/* Most experts a token that softmax_topk gives; bindings.h says the same of its k. */
enum { NN_TOPK_MAX = 64 };

#endif

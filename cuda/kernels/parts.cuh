/* The kernels of all calls, for those that are made of others. */
#ifndef NN_KERNELS_PARTS_CUH
#define NN_KERNELS_PARTS_CUH

#include "interface.h"
#include "runtime/ops.h"

#define NN_DECLARE(op) extern "C" int32_t nn_cuda_##op(nncuda_ctx *ctx, const void *args);
NN_OPS(NN_DECLARE)
#undef NN_DECLARE

#endif

/* Device memory in parts, as nn_memory has it (runtime/device.h). */
#ifndef NN_KERNELS_MEMORY_PARTS_CUH
#define NN_KERNELS_MEMORY_PARTS_CUH

#include "kernels/engine.cuh"

/* Null also where the driver has no virtual memory management, as some virtual GPUs have none. */
void *nn_gpu_take_parts(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t count);
void nn_gpu_give_parts(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t count);

#endif

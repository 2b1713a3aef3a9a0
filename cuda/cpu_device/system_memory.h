/* Memory from the system, for the pools and arenas of every context alike. */
#ifndef NN_CPU_DEVICE_SYSTEM_MEMORY_H
#define NN_CPU_DEVICE_SYSTEM_MEMORY_H

#include "interface.h"

#include <stddef.h>
#include <stdint.h>

/* Uninitialised, aligned to NN_MEMORY_ALIGNMENT, large pieces on huge pages. Null when there is none. `bytes` > 0. */
void *nn_system_take(nncuda_ctx *ctx, size_t bytes);
void nn_system_give(nncuda_ctx *ctx, void *memory, size_t bytes);

/* Memory in parts, as nn_memory.take_parts (runtime/device.h). Whoever touches an address between them gets SIGSEGV. */
void *nn_system_take_parts(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t count);
void nn_system_give_parts(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t count);

/* Bytes that the machine (or the control group of this process) has in all and could still give. False when the system
 * does not say. */
int32_t nn_system_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes);

#endif

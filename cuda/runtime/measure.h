/*
 * Engines that run nothing: a context on one of them counts memory, calls, operations and bytes as the device would,
 * whether this machine has that device or not.
 */
#ifndef NN_RUNTIME_MEASURE_H
#define NN_RUNTIME_MEASURE_H

#include "device.h"

extern const nn_engine nn_measuring_cpu, nn_measuring_gpu;

/* Multiprocessors of the usual GPU of a compute capability. */
int32_t nn_measuring_sms(int32_t capability);

/* Whether there can be such a machine. */
int32_t nn_measuring_check(int32_t device, const nn_machine *machine);

#endif

/*
 * The memory nodes (NUMA) that this process may use: those with a processor of its affinity mask, numbered from 0 on
 * whatever the system's numbers are. As they are when first asked for.
 */
#ifndef NN_CPU_DEVICE_NODES_H
#define NN_CPU_DEVICE_NODES_H

#include <stdint.h>

/* At least 1, also where the system does not say. */
int32_t nn_nodes_count(void);

/* The node of the processor on which the calling thread runs. */
int32_t nn_nodes_here(void);

/* Lets the calling thread run on that node's processors alone. */
void nn_nodes_bind(int32_t node);

#endif

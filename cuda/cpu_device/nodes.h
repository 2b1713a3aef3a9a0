/*
 * The memory nodes of nn_nodes_count, numbered from 0 on whatever the system's numbers are, as they are when first
 * asked for.
 */
#ifndef NN_CPU_DEVICE_NODES_H
#define NN_CPU_DEVICE_NODES_H

#include <stdint.h>

/* The node of the processor on which the calling thread runs. */
int32_t nn_nodes_here(void);

/* Lets the calling thread run on that node's processors alone. */
void nn_nodes_bind(int32_t node);

#endif

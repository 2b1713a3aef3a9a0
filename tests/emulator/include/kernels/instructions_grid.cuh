/* Twin of cuda/kernels/instructions_grid.cuh. Kernels run one after another here, so that there is nothing to wait for;
 * but who was started ahead must wait. */
#ifndef NN_INSTRUCTIONS_GRID_CUH
#define NN_INSTRUCTIONS_GRID_CUH

#include <cuda_runtime.h>

inline void nn_wait_for_kernels() { nn_emulated_waits_for_kernels(); }
inline void nn_let_next_start() {}
inline void nn_prefetch(const void *) {}

#endif

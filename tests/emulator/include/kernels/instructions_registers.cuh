/* In place of cuda/kernels/instructions_registers.cuh: the CPU's compiler may do as it likes. */
#ifndef NN_INSTRUCTIONS_REGISTERS_CUH
#define NN_INSTRUCTIONS_REGISTERS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

inline uint32_t nn_anew(uint32_t x) { return x; }

inline uint32_t nn_uniform(uint32_t x, nn_site site = nn_site::here()) {
  const uint32_t first = __shfl_sync(~0u, x, 0, 32, site.in("nn_uniform"));
  if (x != first) {
    nn_emulated_fail("nn_uniform: a lane has %u, the first one %u", x, first);
  }
  return first;
}

#endif

/*
 * Twin of cuda/kernels/instructions.cuh for the emulator, found instead of it by the order of the include path: the
 * same functions, in plain C++, written from the same sections of the PTX ISA. What an architecture lacks ends the
 * process with a report.
 */
#ifndef NN_INSTRUCTIONS_CUH
#define NN_INSTRUCTIONS_CUH

#include "kernels/instructions_barrier.cuh"
#include "kernels/instructions_cluster.cuh"
#include "kernels/instructions_convert.cuh"
#include "kernels/instructions_copy.cuh"
#include "kernels/instructions_grid.cuh"
#include "kernels/instructions_mma.cuh"
#include "kernels/instructions_tensor.cuh"
#include "kernels/instructions_turns.cuh"
#include "kernels/instructions_wgmma.cuh"

#endif

/*
 * The PTX instructions that the kernels use, each behind one small function; no other file holds inline assembly. A
 * function that its architecture cannot carry out correctly traps instead of returning something else.
 *
 * "PTX 9.7.14" in a comment means that section of the PTX ISA, version 9.0. tests/emulator/include/kernels/ has a file
 * of the same name for each of these, with the same functions in plain C++ written from the same sections.
 *
 * Shared memory is addressed by 32-bit numbers (nn_shared_address). 16-bit floats travel as their bits: uint16_t, or
 * two in a uint32_t with the element of the lower index in the lower half. "Lane" is a thread's place in its warp.
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

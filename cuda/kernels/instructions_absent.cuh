/* What stands in for an instruction on architectures that lack it. */
#ifndef NN_INSTRUCTIONS_ABSENT_CUH
#define NN_INSTRUCTIONS_ABSENT_CUH

#include <cuda_runtime.h>

/* Ends the kernel with an error; takes what the instruction would have taken. The host chooses kernels by
 * nn_gpu_arch(ctx), so this is never reached. */
template <class... T> __device__ __forceinline__ void nn_absent(const T &...) { __trap(); }

#endif

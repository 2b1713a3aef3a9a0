/* Functions of the CUDA driver, which the library finds at run time and is not linked with. */
#ifndef NN_KERNELS_DRIVER_CUH
#define NN_KERNELS_DRIVER_CUH

#include <cuda_runtime.h>

/* Finds the function of this name as CUDA 12.0 has it; false, and null, where the driver has none. */
template <class F> bool nn_driver_find(F &function, const char *name) {
  void *entry = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) {
    cudaGetLastError(); /* nobody else's business */
  }
  const bool found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  function = found ? reinterpret_cast<F>(entry) : nullptr;
  return function != nullptr;
}

#endif

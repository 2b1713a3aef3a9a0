/* What the emulator's test programs share: checks, and a launch that must succeed. */
#ifndef NN_EMULATOR_PROGRAM_CUH
#define NN_EMULATOR_PROGRAM_CUH

#include <cuda_runtime.h>
#include <stdio.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define OK(call) CHECK((call) == cudaSuccess)
#define FAILS(call, error)                                                                                             \
  do {                                                                                                                 \
    CHECK((call) == (error));                                                                                          \
    CHECK(cudaGetLastError() == (error));                                                                              \
  } while (0)

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Blocks of a cluster, along x. */
template <class... P, class... A>
cudaError_t launch_clusters(void (*kernel)(P...), unsigned cluster, dim3 grid, dim3 block, A... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class T> T *device_array(size_t count) {
  T *p = nullptr;
  OK(cudaMalloc(&p, count * sizeof(T)));
  return p;
}

#endif

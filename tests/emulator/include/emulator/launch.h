/* Launching kernels: the typed front of nn_emulated_launch, which checks what the GPU and driver would check. */
#ifndef NN_EMULATOR_LAUNCH_H
#define NN_EMULATOR_LAUNCH_H

#include "runtime.h"

#include <functional>
#include <tuple>

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8,
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative, programmaticStreamSerializationAllowed, priority;
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute *attrs = nullptr;
  unsigned numAttrs = 0;
};

/* `body` is one thread of the kernel; it holds copies of the arguments, `bytes` in all. */
cudaError_t nn_emulated_launch(const cudaLaunchConfig_t *config, const void *kernel, size_t bytes,
                               std::function<void()> body);

/* How the driver packs arguments: each at its own alignment. */
template <class... P> constexpr size_t nn_argument_bytes() {
  size_t bytes = 0;
  ((bytes = (bytes + alignof(P) - 1) / alignof(P) * alignof(P) + sizeof(P)), ...);
  return bytes;
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  static_assert((std::is_trivially_copyable<std::remove_cv_t<P>>::value && ...), "arguments are copied as bytes");
  std::tuple<std::remove_cv_t<P>...> copies(static_cast<P>(static_cast<A &&>(arguments))...);
  return nn_emulated_launch(config, (const void *)kernel, nn_argument_bytes<P...>(),
                            [kernel, copies] { std::apply(kernel, copies); });
}

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13,
};
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
  int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
cudaError_t nn_emulated_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t nn_emulated_get_attributes(cudaFuncAttributes *attributes, const void *kernel);
cudaError_t nn_emulated_occupancy(int *blocks, const void *kernel, int threads, size_t shared);
template <class T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
  return nn_emulated_set_attribute((const void *)kernel, attribute, value);
}
template <class T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T *kernel) {
  return nn_emulated_get_attributes(attributes, (const void *)kernel);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *kernel, int threads, size_t shared) {
  return nn_emulated_occupancy(blocks, (const void *)kernel, threads, shared);
}

#endif
